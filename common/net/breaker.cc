#include "common/net/breaker.h"

#include <algorithm>

#include "common/check.h"

namespace tokura::net {

TimePoint Breaker::next_probe() const {
  return state_ == State::kOpen ? next_probe_ : kNever;
}

void Breaker::OnFailure(TimePoint now) {
  switch (state_) {
    case State::kClosed:
      backoff_ = proven_ ? options_.backoff_min : std::min(backoff_ * 2, options_.backoff_max);
      break;
    case State::kHalfOpen:
      backoff_ = std::min(backoff_ * 2, options_.backoff_max);
      break;
    case State::kOpen:
      // Requests that were under way when the breaker opened fail one after another: they are the
      // same outage, and neither lengthen the backoff nor postpone the probe.
      return;
  }
  state_ = State::kOpen;
  next_probe_ = now + backoff_;
}

void Breaker::OnProbeAnswered() {
  if (state_ == State::kHalfOpen) {
    state_ = State::kClosed;
    proven_ = false;
  }
}

void Breaker::OnSuccess() {
  proven_ = true;
  state_ = State::kClosed;
  backoff_ = options_.backoff_min;
}

void Breaker::OnProbeStarted() {
  TOKURA_CHECK(state_ == State::kOpen);
  state_ = State::kHalfOpen;
}

}  // namespace tokura::net
