#pragma once

#include <cstdint>

#include "common/time.h"

namespace tokura {

// Learns how fast something goes, and predicts from it, never below a floor: a prediction bounds
// how long a caller waits, so one bad measurement must not stretch it without end. Pure.
// Thread-compatible.
class RateEstimator {
 public:
  struct Options {
    double initial_bytes_per_second;
    double floor_bytes_per_second;
    uint64_t sample_bytes_min;  // smaller samples measure latency, not rate
  };
  explicit RateEstimator(Options options)
      : options_(options), bytes_per_second_(options.initial_bytes_per_second) {}

  void Observe(uint64_t bytes, Duration took);
  Duration Predict(uint64_t bytes) const;
  double bytes_per_second() const { return bytes_per_second_; }

 private:
  Options options_;
  double bytes_per_second_;
};

// When one operation ends: at `end` in any case, and earlier when a peer it waits for makes no
// progress for `patience`. Pure. Thread-compatible.
class OperationDeadline {
 public:
  OperationDeadline(TimePoint start, Duration total, Duration patience)
      : end_(start + total), patience_(patience), last_progress_(start) {}

  // progress_timeout + 2 × predicted.
  static Duration DefaultTotal(Duration progress_timeout, Duration predicted) {
    return progress_timeout + 2 * predicted;
  }

  enum class Waiting { kForNode, kForUs };
  enum class Verdict { kGoOn, kStalled, kOver };
  Verdict Check(TimePoint now, Waiting waiting) const;
  // When to check again, at `now`, after kGoOn.
  TimePoint NextCheck(TimePoint now, Waiting waiting) const;

  // Something arrived or was finished. `allowance`: how much longer than `patience` the next thing
  // may take (the predicted time of a transfer under way, twice).
  void Progress(TimePoint now, Duration allowance = Duration::zero());
  TimePoint end() const { return end_; }
  void ShortenTo(TimePoint end) { end_ = end < end_ ? end : end_; }

 private:
  TimePoint StallsAt() const { return last_progress_ + patience_ + allowance_; }

  TimePoint end_;
  Duration patience_;
  Duration allowance_ = Duration::zero();
  TimePoint last_progress_;
};

}  // namespace tokura
