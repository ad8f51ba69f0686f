#pragma once

#include <cstdint>

#include "common/time.h"

namespace tokura {

// `time` + `duration`, cut at the ends of time: Duration::max() means no limit.
TimePoint After(TimePoint time, Duration duration);

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

// When one operation ends: at `end` in any case, and earlier when a node that it waits for stalls.
// Pure. Thread-compatible.
class OperationDeadline {
 public:
  // `patience`: how long a node may make no progress while an operation waits for it.
  OperationDeadline(TimePoint start, Duration total, Duration patience)
      : end_(After(start, total)), patience_(patience) {}

  // progress_timeout + 2 × predicted.
  static Duration DefaultTotal(Duration progress_timeout, Duration predicted);

  enum class Verdict { kGoOn, kStalled, kOver };
  // `stalls_at`: when the first of the nodes waited for will have used up its patience; kNever when
  // none is waited for.
  Verdict Check(TimePoint now, TimePoint stalls_at) const;
  // When to check again, at `now`, after kGoOn.
  TimePoint NextCheck(TimePoint now, TimePoint stalls_at) const;
  TimePoint end() const { return end_; }
  void ShortenTo(TimePoint end) { end_ = end < end_ ? end : end_; }

 private:
  TimePoint end_;
  Duration patience_;
};

// Notices that this process did not run for a while (stopped, or starved of CPU): what nodes did
// meanwhile lies unread, so that time must not be held against them. Owned by the core's executor.
class PauseWatch {
 public:
  // A timer due at `due` runs at `now`. `patience` as above.
  void OnTimer(TimePoint due, TimePoint now, Duration patience);
  // When waiting that began at `since` counts from.
  TimePoint Counted(TimePoint since) const { return since > resumed_ ? since : resumed_; }

 private:
  TimePoint resumed_ = TimePoint::min();
};

}  // namespace tokura
