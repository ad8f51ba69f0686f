#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench.h"
#include "common/time.h"

namespace tokura::cli {

// The value below which the share `quantile` (0…1) of `samples` lies, interpolated linearly between
// neighbours; 0 for no samples.
double Quantile(std::vector<double> samples, double quantile);

// A row without a bound: median, p10 and p90 of the samples.
BenchRow SampleRow(std::string name, std::string unit, const std::vector<double>& samples);

// Measurements of a thing (A) and of its bound (B) taken in alternation, so that whatever disturbs
// the machine disturbs both alike. Thread-compatible.
class PairedSamples {
 public:
  // Both in the row's unit; the bound must be positive.
  struct Pair {
    double value = 0;
    double bound = 0;
  };
  void Add(Pair pair);
  size_t size() const { return values_.size(); }
  // Medians of value and bound, and median, p10 and p90 of the ratios of the pairs.
  enum class Ratio {
    kValueOverBound,
    kBoundOverValue,  // how many times sooner; every value must be positive
  };
  BenchRow Row(std::string name, std::string unit, std::string bound_name,
               Ratio ratio = Ratio::kValueOverBound) const;

 private:
  std::vector<double> values_;
  std::vector<double> bounds_;
};

// Latencies of any number of operations in fixed memory: quantiles are right to 2 %.
// Thread-compatible: each thread fills its own, then they are merged.
class LatencyHistogram {
 public:
  void Add(Duration latency);
  void Merge(const LatencyHistogram& other);
  uint64_t count() const { return count_; }
  Duration max() const { return max_; }
  // Upper end of the bucket that holds the quantile, never above max(); zero when empty.
  Duration AtQuantile(double quantile) const;

 private:
  // Bucket = power of two of the nanoseconds, split into 64 linear steps.
  static constexpr size_t kSteps = 64;
  static constexpr size_t kBuckets = 64 * kSteps;
  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  Duration max_{0};
};

}  // namespace tokura::cli
