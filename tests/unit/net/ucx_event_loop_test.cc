#include "common/net/ucx_event_loop.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace tokura::net {
namespace {

using Wake = UcxTransport::Options::Wake;

// A source with an event descriptor that tests ring.
class FakeSource final : public LoopSource {
 public:
  FakeSource() : fd_(eventfd(0, EFD_NONBLOCK)) {}
  ~FakeSource() override { close(fd_); }
  bool Progress() override {
    uint64_t value = 0;
    ++progressed;
    return read(fd_, &value, sizeof(value)) > 0;
  }
  bool Arm() override {
    ++armed;
    return !refuse_arm;
  }
  int event_fd() const override { return fd_; }
  bool busy() const override { return is_busy; }
  void Ring() {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof(one)), 8);
  }

  bool refuse_arm = false;
  bool is_busy = false;
  int armed = 0;
  int progressed = 0;

 private:
  const int fd_;
};

struct LoopTest : testing::Test {
  std::unique_ptr<UcxEventLoop> Make(UcxEventLoop::Options options = {Wake::kSleep, {}, 4}) {
    return std::move(UcxEventLoop::Create(options, source)).value();
  }
  FakeSource source;
};

TEST_F(LoopTest, TasksRunInOrderAndNeverInline) {
  auto loop = Make();
  std::vector<int> order;
  for (int i = 0; i < 600; ++i) {  // more than one round runs
    loop->Post([&order, i] { order.push_back(i); });
  }
  EXPECT_TRUE(order.empty());
  while (loop->Poll(Duration::zero())) {
  }
  ASSERT_EQ(order.size(), 600u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(LoopTest, StaysAwakeForWhatIsExpectedAndNotForLong) {
  auto loop = Make();
  loop->Expect(std::chrono::hours(1));
  EXPECT_FALSE(loop->Poll(std::chrono::microseconds(50)));
  EXPECT_EQ(source.armed, 0);
  EXPECT_FALSE(loop->Poll(std::chrono::milliseconds(20)));
  EXPECT_GE(source.armed, 1);
}

TEST_F(LoopTest, TaskPostedByATaskRunsLater) {
  auto loop = Make();
  std::vector<int> order;
  loop->Post([&] {
    loop->Post([&] { order.push_back(2); });
    order.push_back(1);
  });
  while (loop->Poll(Duration::zero())) {
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(LoopTest, TryPostRefusesBeyondTheLimitAndPostDoesNot) {
  auto loop = Make();
  int ran = 0;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(loop->TryPost([&] { ++ran; }));
  }
  auto token = std::make_shared<int>(0);
  EXPECT_FALSE(loop->TryPost([token] {}));
  EXPECT_EQ(token.use_count(), 1) << "a refused task is destroyed";
  loop->Post([&] { ++ran; });
  while (loop->Poll(Duration::zero())) {
  }
  EXPECT_EQ(ran, 5);
  EXPECT_TRUE(loop->TryPost([] {}));
}

TEST_F(LoopTest, TimersRunInOrderOfTimeThenOfMaking) {
  auto loop = Make();
  std::vector<int> order;
  const TimePoint now = loop->Now();
  loop->RunAt(now + std::chrono::nanoseconds(2), [&] { order.push_back(3); });
  loop->RunAt(now + std::chrono::nanoseconds(1), [&] { order.push_back(1); });
  loop->RunAt(now + std::chrono::nanoseconds(1), [&] { order.push_back(2); });
  EXPECT_TRUE(order.empty());
  while (order.size() < 3) {
    loop->Poll(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(LoopTest, TimerNeverRunsEarlyAndWakesTheLoop) {
  auto loop = Make();
  const TimePoint due = loop->Now() + std::chrono::milliseconds(3);
  TimePoint ran{};
  loop->RunAt(due, [&] { ran = loop->Now(); });
  EXPECT_TRUE(loop->Poll(std::chrono::seconds(20)));
  EXPECT_GE(ran, due);
}

TEST_F(LoopTest, CancelledTimerIsDestroyedUnrun) {
  auto loop = Make();
  auto token = std::make_shared<int>(0);
  bool ran = false;
  const TimerId id = loop->RunAt(loop->Now(), [&, token] { ran = true; });
  EXPECT_NE(id, 0u);
  loop->CancelTimer(id);
  EXPECT_EQ(token.use_count(), 1);
  loop->CancelTimer(id);
  loop->CancelTimer(12345);
  loop->Poll(Duration::zero());
  EXPECT_FALSE(ran);
}

TEST_F(LoopTest, TimerMayCancelItsNeighbourAndMakeAnother) {
  auto loop = Make();
  bool second = false;
  bool third = false;
  TimerId id = 0;
  loop->RunAt(loop->Now(), [&] {
    loop->CancelTimer(id);
    loop->RunAt(loop->Now(), [&] { third = true; });
  });
  id = loop->RunAt(loop->Now(), [&] { second = true; });
  while (!third) {
    loop->Poll(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(second);
}

TEST_F(LoopTest, PostWakesASleepingLoop) {
  auto loop = Make();
  // Each task proves that the one before it has put the loop to sleep or was on its way there; a
  // lost wake-up would take the whole idle second each time.
  std::thread thread([&] { loop->Run(); });
  const TimePoint start = SystemClock().Now();
  for (int i = 0; i < 200; ++i) {
    std::atomic<bool> ran{false};
    loop->Post([&] {
      ran = true;
      ran.notify_one();
    });
    ran.wait(false);
  }
  EXPECT_LT(SystemClock().Now() - start, std::chrono::seconds(20));
  loop->Stop();
  thread.join();
}

TEST_F(LoopTest, EventsWakeASleepingLoop) {
  auto loop = Make();
  std::thread thread([&] { source.Ring(); });
  EXPECT_TRUE(loop->Poll(std::chrono::seconds(20)));
  thread.join();
}

TEST_F(LoopTest, StopBeforeAndDuringRunReturns) {
  auto loop = Make();
  loop->Stop();
  loop->Run();
  std::thread thread([&] { loop->Run(); });
  loop->Post([&] { loop->Stop(); });
  thread.join();
}

TEST_F(LoopTest, DoesNotSleepWhenTheSourceIsNotArmed) {
  auto loop = Make();
  source.refuse_arm = true;
  const TimePoint start = SystemClock().Now();
  loop->Poll(std::chrono::seconds(20));
  EXPECT_LT(SystemClock().Now() - start, std::chrono::seconds(10));
  EXPECT_EQ(source.armed, 1);
}

TEST_F(LoopTest, LooksAgainWithinMillisecondsWhenBusy) {
  auto loop = Make();
  source.is_busy = true;
  const TimePoint start = SystemClock().Now();
  EXPECT_FALSE(loop->Poll(std::chrono::seconds(20)));
  EXPECT_LT(SystemClock().Now() - start, std::chrono::seconds(10));
  EXPECT_EQ(source.armed, 1);
}

TEST_F(LoopTest, SpinningLoopNeverArms) {
  auto loop = Make({Wake::kSpin, {}, 4});
  EXPECT_FALSE(loop->Poll(std::chrono::milliseconds(2)));
  EXPECT_EQ(source.armed, 0);
  EXPECT_GT(source.progressed, 2);
}

TEST_F(LoopTest, KnowsItsThread) {
  auto loop = Make();
  EXPECT_FALSE(loop->IsCurrent());
  bool inside = false;
  std::thread thread([&] {
    loop->Post([&] {
      inside = loop->IsCurrent();
      loop->Stop();
    });
    loop->Run();
  });
  thread.join();
  EXPECT_TRUE(inside);
  EXPECT_FALSE(loop->IsCurrent());
  loop->Poll(Duration::zero());
  EXPECT_TRUE(loop->IsCurrent());
}

// Posts once more when it is destroyed.
struct Reposter {
  Reposter(UcxEventLoop& loop, std::shared_ptr<int> token) : loop(loop), token(std::move(token)) {}
  ~Reposter() {
    loop.Post([token = token] { FAIL() << "ran after the end"; });
  }
  UcxEventLoop& loop;
  std::shared_ptr<int> token;
};

TEST_F(LoopTest, DestructionDropsTasksThatPostMoreTasks) {
  auto loop = Make();
  auto token = std::make_shared<int>(0);
  loop->Post(
      [reposter = std::make_unique<Reposter>(*loop, token)] { FAIL() << "ran after the end"; });
  loop->RunAt(loop->Now() + std::chrono::hours(1), [token] { FAIL() << "ran after the end"; });
  EXPECT_GT(token.use_count(), 1);
  loop.reset();
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace tokura::net
