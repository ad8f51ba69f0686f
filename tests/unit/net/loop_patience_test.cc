#include "common/net/loop_patience.h"

#include "gtest/gtest.h"

namespace tokura::net {
namespace {

constexpr Duration Micros(int64_t count) {
  return std::chrono::microseconds(count);
}

TEST(LoopPatienceTest, WaitsLongerAfterAGapThatWasWorthIt) {
  LoopPatience patience(Micros(50), Micros(200));
  EXPECT_EQ(patience.now(), Micros(50));
  patience.Waited(Micros(120));
  EXPECT_EQ(patience.now(), Micros(200));
}

TEST(LoopPatienceTest, ShortWaitsBetweenLongOnesChangeNothing) {
  LoopPatience patience(Micros(50), Micros(200));
  patience.Waited(Micros(200));
  for (int i = 0; i < 100; ++i) {
    patience.Waited(Micros(3));
  }
  EXPECT_EQ(patience.now(), Micros(200));
}

TEST(LoopPatienceTest, ALongWaitEndsIt) {
  LoopPatience patience(Micros(50), Micros(200));
  patience.Waited(Micros(51));
  patience.Waited(Micros(201));
  EXPECT_EQ(patience.now(), Micros(50));
  patience.Waited(std::chrono::seconds(1));
  EXPECT_EQ(patience.now(), Micros(50));
}

TEST(LoopPatienceTest, NeverBelowTheLeast) {
  LoopPatience patience(Micros(300), Micros(200));  // the operator asks for more than the most
  patience.Waited(Micros(250));
  EXPECT_EQ(patience.now(), Micros(300));
  patience.Waited(Micros(400));
  EXPECT_EQ(patience.now(), Micros(300));
}

}  // namespace
}  // namespace tokura::net
