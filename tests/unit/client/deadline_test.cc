#include "client-lib/src/deadline.h"

#include <gtest/gtest.h>

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Waiting = OperationDeadline::Waiting;
using Verdict = OperationDeadline::Verdict;

constexpr TimePoint kStart{seconds(100)};

TEST(OperationDeadlineTest, DefaultTotalIsPatienceAndTwiceThePrediction) {
  EXPECT_EQ(OperationDeadline::DefaultTotal(milliseconds(200), milliseconds(50)),
            milliseconds(300));
}

TEST(OperationDeadlineTest, StallsOnlyWhileItWaitsForANode) {
  const OperationDeadline clock(kStart, seconds(10), milliseconds(200));
  EXPECT_EQ(clock.Check(kStart + milliseconds(199), Waiting::kForNode), Verdict::kGoOn);
  EXPECT_EQ(clock.Check(kStart + milliseconds(200), Waiting::kForNode), Verdict::kStalled);
  EXPECT_EQ(clock.Check(kStart + milliseconds(200), Waiting::kForUs), Verdict::kGoOn);
  EXPECT_EQ(clock.Check(kStart + seconds(10), Waiting::kForUs), Verdict::kOver);
}

TEST(OperationDeadlineTest, ProgressMovesTheStallAndNotTheEnd) {
  OperationDeadline clock(kStart, milliseconds(500), milliseconds(200));
  clock.Progress(kStart + milliseconds(150), milliseconds(100));
  EXPECT_EQ(clock.NextCheck(kStart + milliseconds(150), Waiting::kForNode),
            kStart + milliseconds(450));
  EXPECT_EQ(clock.Check(kStart + milliseconds(449), Waiting::kForNode), Verdict::kGoOn);
  EXPECT_EQ(clock.Check(kStart + milliseconds(450), Waiting::kForNode), Verdict::kStalled);
  clock.Progress(kStart + milliseconds(450));
  EXPECT_EQ(clock.NextCheck(kStart + milliseconds(450), Waiting::kForNode),
            kStart + milliseconds(500));
  EXPECT_EQ(clock.Check(kStart + milliseconds(500), Waiting::kForNode), Verdict::kOver);
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
