#include "client-lib/src/deadline.h"

#include <algorithm>

namespace tokura {
namespace {
constexpr double kNewSampleWeight = 0.2;
}  // namespace

void RateEstimator::Observe(uint64_t bytes, Duration took) {
  if (bytes < options_.sample_bytes_min || took <= Duration::zero()) {
    return;
  }
  const double seconds = std::chrono::duration<double>(took).count();
  const double sample = static_cast<double>(bytes) / seconds;
  bytes_per_second_ = std::max(options_.floor_bytes_per_second,
                               bytes_per_second_ + kNewSampleWeight * (sample - bytes_per_second_));
}

Duration RateEstimator::Predict(uint64_t bytes) const {
  const std::chrono::duration<double> seconds(static_cast<double>(bytes) / bytes_per_second_);
  return std::chrono::duration_cast<Duration>(seconds);
}

OperationDeadline::Verdict OperationDeadline::Check(TimePoint now, Waiting waiting) const {
  if (now >= end_) {
    return Verdict::kOver;
  }
  return waiting == Waiting::kForNode && now >= StallsAt() ? Verdict::kStalled : Verdict::kGoOn;
}

TimePoint OperationDeadline::NextCheck(TimePoint now, Waiting waiting) const {
  // Work of our own reports progress when it is finished, so looking again one patience later never
  // misses a stall: it could not begin earlier than now.
  return std::min(end_, waiting == Waiting::kForNode ? StallsAt() : now + patience_);
}

void OperationDeadline::Progress(TimePoint now, Duration allowance) {
  last_progress_ = now;
  allowance_ = allowance;
}

}  // namespace tokura
