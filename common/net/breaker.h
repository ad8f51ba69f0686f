#pragma once

#include <cstdint>

#include "common/time.h"

namespace tokura::net {

// Circuit breaker of one peer: a dead peer costs one deadline, not one per request.
// Thread-compatible, pure: time is passed in.
//   closed --failure--> open --backoff over--> half-open --probe ok--> closed
//                                                        --probe failed--> open, backoff doubled up
//                                                        to the maximum
// A peer that answers probes and then no request is not well: its backoff keeps growing until
// OnSuccess.
// Requests are allowed only when closed. The owner sends one probe (reconnect and HELLO, or PING)
// when ProbeDue().
class Breaker {
 public:
  struct Options {
    Duration backoff_min = std::chrono::milliseconds(100);
    Duration backoff_max = std::chrono::milliseconds(2000);
  };
  enum class State { kClosed, kOpen, kHalfOpen };

  explicit Breaker(Options options) : options_(options), backoff_(options.backoff_min) {}

  State state() const { return state_; }
  bool AllowsRequests() const { return state_ == State::kClosed; }
  // When the next probe may start; kNever when closed or while one is under way.
  TimePoint next_probe() const;

  // A request failed by deadline or by a lost connection, or a probe failed.
  void OnFailure(TimePoint now);
  // The probe was answered, which allows requests; the backoff starts over with OnSuccess.
  void OnProbeAnswered();
  // A request was answered (or a probe, where that proves as much).
  void OnSuccess();
  // The owner starts a probe. Only when open and now >= next_probe().
  void OnProbeStarted();

 private:
  Options options_;
  Duration backoff_;
  TimePoint next_probe_ = kNever;
  State state_ = State::kClosed;
  bool proven_ = true;  // since the last OnSuccess no probe has ended an outage
};

}  // namespace tokura::net
