#include "common/net/breaker.h"

#include <gtest/gtest.h>

namespace tokura::net {
namespace {

using std::chrono::milliseconds;
using State = Breaker::State;

constexpr TimePoint At(int64_t ms) {
  return TimePoint{} + milliseconds(ms);
}

Breaker MakeBreaker(State state) {
  Breaker breaker({.backoff_min = milliseconds(100), .backoff_max = milliseconds(350)});
  if (state != State::kClosed) {
    breaker.OnFailure(At(0));
  }
  if (state == State::kHalfOpen) {
    breaker.OnProbeStarted();
  }
  return breaker;
}

struct Row {
  State from;
  char event;  // f failure, s success, p probe started, a probe answered
  State to;
};

TEST(BreakerTest, TransitionTable) {
  const Row rows[] = {
      {State::kClosed, 'f', State::kOpen},     {State::kClosed, 's', State::kClosed},
      {State::kOpen, 'f', State::kOpen},       {State::kOpen, 's', State::kClosed},
      {State::kOpen, 'p', State::kHalfOpen},   {State::kHalfOpen, 'f', State::kOpen},
      {State::kHalfOpen, 's', State::kClosed}, {State::kHalfOpen, 'a', State::kClosed},
      {State::kClosed, 'a', State::kClosed},   {State::kOpen, 'a', State::kOpen},
  };
  for (const Row& row : rows) {
    Breaker breaker = MakeBreaker(row.from);
    ASSERT_EQ(breaker.state(), row.from);
    if (row.event == 'f') {
      breaker.OnFailure(At(500));
    } else if (row.event == 's') {
      breaker.OnSuccess();
    } else if (row.event == 'a') {
      breaker.OnProbeAnswered();
    } else {
      breaker.OnProbeStarted();
    }
    EXPECT_EQ(breaker.state(), row.to)
        << "from " << static_cast<int>(row.from) << " on " << row.event;
    EXPECT_EQ(breaker.AllowsRequests(), row.to == State::kClosed);
    EXPECT_EQ(breaker.next_probe() == kNever, row.to != State::kOpen);
  }
}

TEST(BreakerTest, BackoffDoublesUpToTheMaximumAndStartsOverAfterSuccess) {
  Breaker breaker = MakeBreaker(State::kClosed);
  breaker.OnFailure(At(0));
  EXPECT_EQ(breaker.next_probe(), At(100));
  breaker.OnProbeStarted();
  breaker.OnFailure(At(1000));
  EXPECT_EQ(breaker.next_probe(), At(1200));
  breaker.OnProbeStarted();
  breaker.OnFailure(At(2000));
  EXPECT_EQ(breaker.next_probe(), At(2350));
  breaker.OnProbeStarted();
  breaker.OnSuccess();
  breaker.OnFailure(At(3000));
  EXPECT_EQ(breaker.next_probe(), At(3100));
}

TEST(BreakerTest, PeerThatAnswersOnlyProbesIsProbedLessAndLess) {
  Breaker breaker = MakeBreaker(State::kOpen);
  for (const int backoff : {200, 350, 350}) {
    breaker.OnProbeStarted();
    breaker.OnProbeAnswered();
    EXPECT_TRUE(breaker.AllowsRequests());
    breaker.OnFailure(At(1000));
    EXPECT_EQ(breaker.next_probe(), At(1000 + backoff));
  }
  breaker.OnProbeStarted();
  breaker.OnProbeAnswered();
  breaker.OnSuccess();
  breaker.OnFailure(At(2000));
  EXPECT_EQ(breaker.next_probe(), At(2100));
}

TEST(BreakerTest, LateFailuresOfOneOutageDoNotPostponeTheProbe) {
  Breaker breaker = MakeBreaker(State::kOpen);
  for (int ms = 1; ms < 100; ++ms) {
    breaker.OnFailure(At(ms));
  }
  EXPECT_EQ(breaker.next_probe(), At(100));
}

TEST(BreakerDeathTest, ProbeOnlyWhenOpen) {
  Breaker closed = MakeBreaker(State::kClosed);
  EXPECT_DEATH(closed.OnProbeStarted(), "kOpen");
}

}  // namespace
}  // namespace tokura::net
