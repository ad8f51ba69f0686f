#include "cli/bench_lookup_growth.h"

#include <gtest/gtest.h>

namespace tokura::cli {
namespace {

using std::chrono::microseconds;

TEST(PlaceTimesTest, WhatComesBackAtAPlaceCountsAndADisturbanceDoesNot) {
  PlaceTimes times(3);
  for (size_t run = 0; run < PlaceTimes::kRuns; ++run) {
    times.Set(run, 0, microseconds(1));
    times.Set(run, 1, microseconds(7 + run));  // growth: in every run
    times.Set(run, 2, microseconds(1));
  }
  times.Set(1, 0, microseconds(900));  // the machine: in one
  EXPECT_EQ(times.Longest(), microseconds(8));
}

TEST(PlaceTimesTest, TimesBeyondItsRangeAreItsLargest) {
  PlaceTimes times(1);
  for (size_t run = 0; run < PlaceTimes::kRuns; ++run) {
    times.Set(run, 0, std::chrono::hours(1));
  }
  EXPECT_GE(times.Longest(), std::chrono::seconds(4));
}

TEST(MeasureGrowthTest, FillsTheIndexAndNamesBothRowsWithTheirLimit) {
  int told = 0;
  const auto rows = MeasureGrowth(3000, [&told](std::string_view) { ++told; });
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].name, "lookup/growth");
  EXPECT_EQ((*rows)[1].name, "lookup/growth/batch");
  EXPECT_GT((*rows)[0].value, 0);
  EXPECT_GT((*rows)[1].value, (*rows)[0].value);
  EXPECT_EQ((*rows)[0].bound, 1000);
  EXPECT_EQ(told, 3);
}

}  // namespace
}  // namespace tokura::cli
