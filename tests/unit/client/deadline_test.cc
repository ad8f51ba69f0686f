#include "client-lib/src/deadline.h"

#include <gtest/gtest.h>

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = OperationDeadline::Verdict;

constexpr TimePoint kStart{seconds(100)};

TEST(OperationDeadlineTest, DefaultTotalIsPatienceAndTwiceThePrediction) {
  EXPECT_EQ(OperationDeadline::DefaultTotal(milliseconds(200), milliseconds(50)),
            milliseconds(300));
}

TEST(OperationDeadlineTest, StallsOnlyWhileItWaitsForANode) {
  const OperationDeadline clock(kStart, seconds(10), milliseconds(200));
  const TimePoint stall = kStart + milliseconds(200);
  EXPECT_EQ(clock.Check(stall - milliseconds(1), stall), Verdict::kGoOn);
  EXPECT_EQ(clock.Check(stall, stall), Verdict::kStalled);
  EXPECT_EQ(clock.Check(stall, kNever), Verdict::kGoOn);
  EXPECT_EQ(clock.Check(kStart + seconds(10), kNever), Verdict::kOver);
  EXPECT_EQ(clock.Check(kStart + seconds(10), stall), Verdict::kOver);
}

TEST(OperationDeadlineTest, LooksAgainBeforeAStallThatHasNotBegunCouldEnd) {
  const OperationDeadline clock(kStart, milliseconds(500), milliseconds(200));
  EXPECT_EQ(clock.NextCheck(kStart, kNever), kStart + milliseconds(200));
  EXPECT_EQ(clock.NextCheck(kStart, kStart + milliseconds(50)), kStart + milliseconds(50));
  EXPECT_EQ(clock.NextCheck(kStart + milliseconds(400), kNever), kStart + milliseconds(500));
}

TEST(OperationDeadlineTest, DurationsSaturate) {
  EXPECT_EQ(After(kStart, Duration::max()), kNever);
  EXPECT_EQ(After(kNever, seconds(1)), kNever);
  EXPECT_EQ(After(TimePoint::min(), Duration::min()), TimePoint::min());
  EXPECT_EQ(After(kStart, seconds(1)), kStart + seconds(1));
  EXPECT_EQ(OperationDeadline::DefaultTotal(Duration::max(), seconds(1)), Duration::max());
  const OperationDeadline clock(kStart, Duration::max(), Duration::max());
  EXPECT_EQ(clock.end(), kNever);
  EXPECT_EQ(clock.NextCheck(kStart, kNever), kNever);
  EXPECT_EQ(clock.Check(kStart + seconds(1000000), kNever), Verdict::kGoOn);
  const RateEstimator rate(
      {.initial_bytes_per_second = 1, .floor_bytes_per_second = 1, .sample_bytes_min = 0});
  EXPECT_EQ(rate.Predict(UINT64_MAX), std::chrono::hours(1));
}

TEST(PauseWatchTest, TimeInWhichTheProcessDidNotRunDoesNotCount) {
  PauseWatch pauses;
  const TimePoint due = kStart + milliseconds(100);
  pauses.OnTimer(due, due + milliseconds(20), milliseconds(200));
  EXPECT_EQ(pauses.Counted(kStart), kStart) << "a little late is normal";
  pauses.OnTimer(due, due + milliseconds(21), milliseconds(200));
  EXPECT_EQ(pauses.Counted(kStart), due + milliseconds(21));
  EXPECT_EQ(pauses.Counted(due + seconds(1)), due + seconds(1));
}

TEST(OperationDeadlineTest, EndOnlyMovesCloser) {
  OperationDeadline clock(kStart, seconds(1), milliseconds(200));
  clock.ShortenTo(kStart + seconds(2));
  EXPECT_EQ(clock.end(), kStart + seconds(1));
  clock.ShortenTo(kStart + milliseconds(10));
  EXPECT_EQ(clock.end(), kStart + milliseconds(10));
}

TEST(RateEstimatorTest, LearnsSlowlyAndNeverBelowTheFloor) {
  RateEstimator rate({.initial_bytes_per_second = 100e6,
                      .floor_bytes_per_second = 10e6,
                      .sample_bytes_min = 1000});
  EXPECT_EQ(rate.Predict(100'000'000), seconds(1));
  rate.Observe(999, seconds(1));
  rate.Observe(5000, Duration::zero());
  EXPECT_EQ(rate.bytes_per_second(), 100e6) << "not worth learning from";
  rate.Observe(200'000'000, seconds(1));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(), 120e6);
  for (int i = 0; i < 100; ++i) {
    rate.Observe(1000, seconds(1));
  }
  EXPECT_EQ(rate.bytes_per_second(), 10e6);
}

}  // namespace
}  // namespace tokura
