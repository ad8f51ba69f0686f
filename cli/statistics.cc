#include "cli/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace tokura::cli {

double Quantile(std::vector<double> samples, double quantile) {
  if (samples.empty()) {
    return 0;
  }
  std::sort(samples.begin(), samples.end());
  const double at = std::clamp(quantile, 0.0, 1.0) * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (at - static_cast<double>(below)) * (samples[above] - samples[below]);
}

BenchRow SampleRow(std::string name, std::string unit, const std::vector<double>& samples) {
  BenchRow row;
  row.name = std::move(name);
  row.unit = std::move(unit);
  row.value = Quantile(samples, 0.5);
  row.p10 = Quantile(samples, 0.1);
  row.p90 = Quantile(samples, 0.9);
  row.repeats = static_cast<uint32_t>(samples.size());
  return row;
}

void PairedSamples::Add(Pair pair) {
  TOKURA_CHECK(pair.bound > 0);
  values_.push_back(pair.value);
  bounds_.push_back(pair.bound);
}

BenchRow PairedSamples::Row(std::string name, std::string unit, std::string bound_name,
                            Ratio ratio) const {
  std::vector<double> ratios;
  for (size_t i = 0; i < values_.size(); ++i) {
    TOKURA_CHECK(ratio == Ratio::kValueOverBound || values_[i] > 0);
    ratios.push_back(ratio == Ratio::kValueOverBound ? values_[i] / bounds_[i]
                                                     : bounds_[i] / values_[i]);
  }
  BenchRow row = SampleRow(std::move(name), std::move(unit), ratios);
  row.bound_name = std::move(bound_name);
  row.ratio = row.value;
  row.value = Quantile(values_, 0.5);
  row.bound = Quantile(bounds_, 0.5);
  return row;
}

namespace {

constexpr uint64_t kStepBits = 6;

size_t BucketOf(uint64_t nanoseconds) {
  if (nanoseconds < (uint64_t{1} << kStepBits)) {
    return nanoseconds;
  }
  const uint64_t exponent = std::bit_width(nanoseconds) - 1;
  const uint64_t step = (nanoseconds >> (exponent - kStepBits)) & ((1u << kStepBits) - 1);
  return ((exponent - kStepBits + 1) << kStepBits) + step;
}

// The largest value that falls into the bucket.
uint64_t BucketEnd(size_t bucket) {
  if (bucket < (size_t{1} << kStepBits)) {
    return bucket;
  }
  const uint64_t shift = (bucket >> kStepBits) - 1;
  const uint64_t step = bucket & ((1u << kStepBits) - 1);
  return (((uint64_t{1} << kStepBits) + step + 1) << shift) - 1;
}

}  // namespace

void LatencyHistogram::Add(Duration latency) {
  latency = std::max(latency, Duration{0});
  ++buckets_[BucketOf(static_cast<uint64_t>(latency.count()))];
  ++count_;
  max_ = std::max(max_, latency);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) {
    buckets_[i] += other.buckets_[i];
  }
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

Duration LatencyHistogram::AtQuantile(double quantile) const {
  const auto wanted = static_cast<uint64_t>(
      std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= std::max<uint64_t>(wanted, 1)) {
      return std::min(max_, Duration(static_cast<int64_t>(BucketEnd(i))));
    }
  }
  return Duration{0};
}

}  // namespace tokura::cli
