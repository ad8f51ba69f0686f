#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace tokura {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };
enum class LogFormat { kText, kJson };

// One key=value of an event. Values are converted at once; never payload bytes.
struct LogField {
  template <typename T>
  LogField(std::string_view key, const T& value) : key(key), value(absl::StrCat(value)) {}
  std::string_view key;
  std::string value;
};

// Log one event, one line on standard error: level ts thread component event key=value…
// `event` is lower_case. ERROR: an operator should act; WARN: degraded; INFO: lifecycle; DEBUG: per
// object; TRACE: per message. Thread-safe. WARN and ERROR are counted per component (LogCounts), so
// that tests can forbid them.
void Log(LogLevel level, std::string_view component, std::string_view event,
         std::initializer_list<LogField> fields = {});
bool LogEnabled(LogLevel level);

void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
// "trace" … "error"; false when `name` is none of them.
bool ParseLogLevel(std::string_view name, LogLevel* level);

// WARN and ERROR lines so far in this process. Thread-safe.
struct LogCount {
  uint64_t warnings = 0;
  uint64_t errors = 0;
};
LogCount LogCounts();

}  // namespace tokura
