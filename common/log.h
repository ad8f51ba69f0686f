#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/time.h"

namespace tokura {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };
enum class LogFormat { kText, kJson };

// One key=value of an event. Values are converted at once; never payload bytes. `key` is a
// lower_case literal. A value that is long is cut (kLogValueBytesMax), one with blanks, quotes or
// control characters is quoted and escaped: what a peer sends can never forge a second line.
struct LogField {
  template <typename T>
  LogField(std::string_view key, const T& value)
      : key(key), value(absl::StrCat(value)), number(std::is_arithmetic_v<T>) {}
  std::string_view key;
  std::string value;
  bool number;  // JSON shows it without quotes
};
inline constexpr size_t kLogValueBytesMax = 512;

// Log one event, one line on standard error: level ts thread component event key=value…
// `event` is lower_case. ERROR: an operator should act; WARN: degraded; INFO: lifecycle; DEBUG: per
// object; TRACE: per message. Thread-safe. Every WARN and ERROR is counted (LogCounts), written or
// not, so that tests can forbid them.
void Log(LogLevel level, std::string_view component, std::string_view event,
         std::initializer_list<LogField> fields = {});
bool LogEnabled(LogLevel level);

// Bounds the lines of one event that a client can trigger: `burst` at once, then one per
// `interval`. Thread-safe; usually a member of the component that logs the event.
class LogLimiter {
 public:
  struct Options {
    uint32_t burst = 10;
    Duration interval = std::chrono::seconds(1);
  };
  // `clock` is borrowed and outlives the limiter.
  LogLimiter(const Clock& clock, Options options);

  // Whether a line may be written now. When it may, `*suppressed` is the number refused since the
  // last one that was not.
  bool Allow(uint64_t* suppressed);

 private:
  const Clock& clock_;
  const int64_t interval_ns_;
  const int64_t burst_ns_;
  // The time up to which lines have been paid for (a leaky bucket in one word).
  std::atomic<int64_t> paid_until_ns_;
  std::atomic<uint64_t> suppressed_{0};
};

// As Log, within the bounds of `limiter`; a line that follows refused ones carries suppressed=N.
void LogLimited(LogLimiter& limiter, LogLevel level, std::string_view component,
                std::string_view event, std::initializer_list<LogField> fields = {});

// Default: INFO, text. Thread-safe.
void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
// "trace" … "error"; false when `name` is none of them.
bool ParseLogLevel(std::string_view name, LogLevel* level);

// WARN and ERROR events so far in this process, those below the level or suppressed included.
// Thread-safe.
struct LogCount {
  uint64_t warnings = 0;
  uint64_t errors = 0;
};
LogCount LogCounts();

}  // namespace tokura
