#include "cli/statistics.h"

#include <gtest/gtest.h>

namespace tokura::cli {
namespace {

TEST(StatisticsTest, QuantilesInterpolateBetweenNeighbours) {
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({7}, 0.9), 7);
  EXPECT_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 0), 1);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 1), 4);
  EXPECT_NEAR(Quantile({0, 10, 20, 30, 40, 50}, 0.1), 5, 1e-12);
}

TEST(StatisticsTest, RatioIsTheMedianOfThePairsNotTheRatioOfTheMedians) {
  PairedSamples samples;
  // The machine is slow in the second pair and fast in the third: each pair's ratio is what counts.
  samples.Add({.value = 8, .bound = 10});
  samples.Add({.value = 1, .bound = 2});
  samples.Add({.value = 90, .bound = 100});
  const BenchRow row = samples.Row("a/b", "GB/s", "memcpy");
  EXPECT_EQ(row.name, "a/b");
  EXPECT_EQ(row.unit, "GB/s");
  EXPECT_EQ(row.bound_name, "memcpy");
  EXPECT_EQ(row.value, 8);
  EXPECT_EQ(row.bound, 10);
  EXPECT_NEAR(*row.ratio, 0.8, 1e-12);
  EXPECT_EQ(row.repeats, 3u);
  EXPECT_NEAR(row.p10, 0.56, 1e-12);
  EXPECT_NEAR(row.p90, 0.88, 1e-12);
}

TEST(StatisticsTest, RatioCanSayHowManyTimesSooner) {
  PairedSamples samples;
  samples.Add({.value = 2, .bound = 20});
  samples.Add({.value = 4, .bound = 12});
  samples.Add({.value = 1, .bound = 6});
  const BenchRow row = samples.Row("a/b", "us", "peer", PairedSamples::Ratio::kBoundOverValue);
  EXPECT_EQ(row.value, 2);
  EXPECT_EQ(row.bound, 12);
  EXPECT_NEAR(*row.ratio, 6, 1e-12);  // of 10, 3, 6
  EXPECT_NEAR(row.p10, 3.6, 1e-12);
}

TEST(StatisticsTest, SamplesWithoutABoundHaveTheirOwnQuantiles) {
  const BenchRow row = SampleRow("a", "s", {3, 1, 2});
  EXPECT_EQ(row.value, 2);
  EXPECT_NEAR(row.p10, 1.2, 1e-12);
  EXPECT_NEAR(row.p90, 2.8, 1e-12);
  EXPECT_EQ(row.repeats, 3u);
  EXPECT_FALSE(row.ratio.has_value());
}

TEST(StatisticsTest, HistogramQuantilesAreRightToTwoPercent) {
  LatencyHistogram histogram;
  for (int us = 1; us <= 100000; ++us) {
    histogram.Add(std::chrono::microseconds(us));
  }
  EXPECT_EQ(histogram.count(), 100000u);
  EXPECT_EQ(histogram.max(), std::chrono::milliseconds(100));
  for (const double q : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const double expected_ns = q * 1e8;
    EXPECT_NEAR(static_cast<double>(histogram.AtQuantile(q).count()), expected_ns,
                expected_ns * 0.02);
  }
  EXPECT_EQ(histogram.AtQuantile(1), histogram.max());
}

TEST(StatisticsTest, HistogramTakesAnyDuration) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.AtQuantile(0.5), Duration{0});
  histogram.Add(Duration(-5));
  histogram.Add(Duration(0));
  histogram.Add(Duration(63));
  histogram.Add(Duration(64));
  histogram.Add(Duration::max());
  EXPECT_EQ(histogram.count(), 5u);
  EXPECT_EQ(histogram.AtQuantile(0.2), Duration(0));
  EXPECT_EQ(histogram.AtQuantile(0.6), Duration(63));
  EXPECT_EQ(histogram.AtQuantile(0.8), Duration(64));
  EXPECT_EQ(histogram.AtQuantile(1), Duration::max());
}

TEST(StatisticsTest, MergedHistogramsCountTogether) {
  LatencyHistogram a;
  LatencyHistogram b;
  a.Add(Duration(10));
  b.Add(Duration(20));
  b.Add(Duration(30));
  a.Merge(b);
  EXPECT_EQ(a.count(), 3u);
  EXPECT_EQ(a.AtQuantile(0.5), Duration(20));
  EXPECT_EQ(a.max(), Duration(30));
}

}  // namespace
}  // namespace tokura::cli
