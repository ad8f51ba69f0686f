#pragma once

#include <algorithm>
#include <optional>

#include "common/time.h"

namespace tokura {

// From the first request of an operation to the last thing that came for it. Thread-compatible.
class WireSpan {
 public:
  void Begin(TimePoint now) { begin_ = begin_.value_or(now); }
  void Extend(TimePoint now) { end_ = now; }
  // Zero when nothing was asked or nothing came.
  Duration duration() const {
    return begin_.has_value() ? std::max(end_ - *begin_, Duration::zero()) : Duration::zero();
  }

 private:
  std::optional<TimePoint> begin_;
  TimePoint end_;
};

}  // namespace tokura
