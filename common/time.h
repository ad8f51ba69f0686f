#pragma once

#include <chrono>
#include <cstdint>

namespace tokura {

using Duration = std::chrono::nanoseconds;

// Monotonic time. Only differences mean something, and only within one process. It never comes from
// a global: an Executor or a Clock hands it in, so that a simulation can replace it.
struct MonotonicClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};
using TimePoint = MonotonicClock::time_point;
inline constexpr TimePoint kNever = TimePoint::max();

// Source of time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // Microseconds since the Unix epoch; for incarnations and timestamps shown to people, never for
  // deadlines.
  virtual uint64_t WallMicros() const = 0;
};

// The machine's clocks. Thread-safe; lives for ever.
const Clock& SystemClock();

}  // namespace tokura
