#include "client-lib/src/deadline.h"

#include <algorithm>

namespace tokura {
namespace {
constexpr double kNewSampleWeight = 0.2;
// No prediction is longer: it bounds how long a caller waits.
constexpr std::chrono::hours kPredictionMax{1};
// A timer that is late by this part of the patience tells of a pause.
constexpr int kLatePart = 10;
}  // namespace

TimePoint After(TimePoint time, Duration duration) {
  if (duration > Duration::zero() && time > TimePoint::max() - duration) {
    return TimePoint::max();
  }
  if (duration < Duration::zero() && time < TimePoint::min() - duration) {
    return TimePoint::min();
  }
  return time + duration;
}

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
  return seconds < kPredictionMax ? std::chrono::duration_cast<Duration>(seconds)
                                  : Duration(kPredictionMax);
}

Duration OperationDeadline::DefaultTotal(Duration progress_timeout, Duration predicted) {
  return After(TimePoint(progress_timeout), 2 * predicted).time_since_epoch();
}

OperationDeadline::Verdict OperationDeadline::Check(TimePoint now, TimePoint stalls_at) const {
  if (now >= end_) {
    return Verdict::kOver;
  }
  return now >= stalls_at ? Verdict::kStalled : Verdict::kGoOn;
}

TimePoint OperationDeadline::NextCheck(TimePoint now, TimePoint stalls_at) const {
  // Waiting that has not begun yet cannot be over sooner than one patience from now, so looking
  // again by then misses no stall.
  return std::min({end_, stalls_at, After(now, patience_)});
}

void PauseWatch::OnTimer(TimePoint due, TimePoint now, Duration patience) {
  if (now > After(due, patience / kLatePart)) {
    resumed_ = now;
  }
}

}  // namespace tokura
