#include "common/log.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

namespace tokura {
namespace {

constexpr const char* kLevelNames[] = {"trace", "debug", "info", "warn", "error"};
constexpr const char* kLevelLabels[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR"};

struct State {
  State() : sink(std::make_shared<spdlog::sinks::stderr_sink_mt>()), logger("tokura", sink) {
    logger.set_pattern("%v");
    logger.set_level(spdlog::level::trace);
  }
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<LogFormat> format{LogFormat::kText};
  std::atomic<uint64_t> warnings{0};
  std::atomic<uint64_t> errors{0};
  // Shared with the logger, which spdlog wants to own it too.
  std::shared_ptr<spdlog::sinks::stderr_sink_mt> sink;
  spdlog::logger logger;
};

// Never destroyed: destructors of other statics and late threads may still log.
State& GetState() {
  static State& state = *new State;
  return state;
}

void Count(LogLevel level) {
  if (level == LogLevel::kWarn) {
    GetState().warnings.fetch_add(1, std::memory_order_relaxed);
  } else if (level == LogLevel::kError) {
    GetState().errors.fetch_add(1, std::memory_order_relaxed);
  }
}

// "2026-01-31T12:00:00.123456Z".
std::string Timestamp(uint64_t wall_micros) {
  const auto seconds = static_cast<std::time_t>(wall_micros / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + length, sizeof(text) - length, ".%06uZ",
                static_cast<unsigned>(wall_micros % 1'000'000));
  return text;
}

bool NeedsQuotes(std::string_view value) {
  return value.empty() || std::any_of(value.begin(), value.end(), [](unsigned char c) {
           return c <= ' ' || c == '"' || c == '\\' || c == '=' || c == 0x7f;
         });
}

void AppendEscaped(unsigned char c, std::string* out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  switch (c) {
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    case '"':
    case '\\':
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
      return;
    default:
      break;
  }
  if (c < ' ' || c == 0x7f) {
    out->append("\\x");
    out->push_back(kDigits[c >> 4]);
    out->push_back(kDigits[c & 15]);
  } else {
    out->push_back(static_cast<char>(c));
  }
}

std::string CutValue(std::string_view value) {
  if (value.size() <= kLogValueBytesMax) {
    return std::string(value);
  }
  return absl::StrCat(std::string(value.substr(0, kLogValueBytesMax)), "...(", value.size(),
                      " bytes)");
}

void AppendTextField(const LogField& field, std::string* line) {
  absl::StrAppend(line, " ", std::string(field.key), "=");
  const std::string value = CutValue(field.value);
  if (!NeedsQuotes(value)) {
    line->append(value);
    return;
  }
  line->push_back('"');
  for (const char c : value) {
    AppendEscaped(static_cast<unsigned char>(c), line);
  }
  line->push_back('"');
}

struct Event {
  LogLevel level;
  std::string_view component;
  std::string_view name;
  std::span<const LogField> fields;
  uint64_t suppressed = 0;
};

std::string TextLine(const Event& event) {
  std::string line =
      absl::StrCat(kLevelLabels[static_cast<int>(event.level)], " ",
                   Timestamp(SystemClock().WallMicros()), " ", static_cast<int64_t>(gettid()), " ",
                   std::string(event.component), " ", std::string(event.name));
  for (const LogField& field : event.fields) {
    AppendTextField(field, &line);
  }
  if (event.suppressed > 0) {
    AppendTextField(LogField("suppressed", event.suppressed), &line);
  }
  return line;
}

// A number as JSON writes it; infinities and NaN, which it does not know, stay text.
nlohmann::ordered_json JsonValue(const LogField& field) {
  if (field.number) {
    nlohmann::ordered_json number =
        nlohmann::ordered_json::parse(field.value, nullptr, /*allow_exceptions=*/false);
    if (number.is_number()) {
      return number;
    }
  }
  return CutValue(field.value);
}

std::string JsonLine(const Event& event) {
  nlohmann::ordered_json line;
  line.emplace("level", kLevelNames[static_cast<int>(event.level)]);
  line.emplace("ts", Timestamp(SystemClock().WallMicros()));
  line.emplace("thread", static_cast<int64_t>(gettid()));
  line.emplace("component", std::string(event.component));
  line.emplace("event", std::string(event.name));
  for (const LogField& field : event.fields) {
    line.emplace(std::string(field.key), JsonValue(field));
  }
  if (event.suppressed > 0) {
    line.emplace("suppressed", event.suppressed);
  }
  // Bytes that are not UTF-8 become U+FFFD instead of an exception.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void Write(const Event& event) {
  State& state = GetState();
  const bool json = state.format.load(std::memory_order_relaxed) == LogFormat::kJson;
  const std::string line = json ? JsonLine(event) : TextLine(event);
  state.logger.log(spdlog::level::info, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

void Log(LogLevel level, std::string_view component, std::string_view event,
         std::initializer_list<LogField> fields) {
  Count(level);
  if (LogEnabled(level)) {
    Write(Event{level, component, event, {fields.begin(), fields.size()}});
  }
}

bool LogEnabled(LogLevel level) {
  return level >= GetState().level.load(std::memory_order_relaxed);
}

LogLimiter::LogLimiter(const Clock& clock, Options options)
    : clock_(clock),
      interval_ns_(options.interval.count()),
      burst_ns_(options.interval.count() * options.burst),
      paid_until_ns_(clock.Now().time_since_epoch().count()) {}

bool LogLimiter::Allow(uint64_t* suppressed) {
  const int64_t now = clock_.Now().time_since_epoch().count();
  int64_t paid_until = paid_until_ns_.load(std::memory_order_relaxed);
  int64_t next = 0;
  do {
    next = std::max(paid_until, now) + interval_ns_;
    if (next - now > burst_ns_) {
      suppressed_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!paid_until_ns_.compare_exchange_weak(paid_until, next, std::memory_order_relaxed));
  *suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

void LogLimited(LogLimiter& limiter, LogLevel level, std::string_view component,
                std::string_view event, std::initializer_list<LogField> fields) {
  Count(level);
  uint64_t suppressed = 0;
  if (LogEnabled(level) && limiter.Allow(&suppressed)) {
    Write(Event{level, component, event, {fields.begin(), fields.size()}, suppressed});
  }
}

void SetLogLevel(LogLevel level) {
  GetState().level.store(level, std::memory_order_relaxed);
}

void SetLogFormat(LogFormat format) {
  GetState().format.store(format, std::memory_order_relaxed);
}

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  const auto* const found = std::find(std::begin(kLevelNames), std::end(kLevelNames), name);
  if (found == std::end(kLevelNames)) {
    return false;
  }
  *level = static_cast<LogLevel>(found - std::begin(kLevelNames));
  return true;
}

LogCount LogCounts() {
  const State& state = GetState();
  return {state.warnings.load(std::memory_order_relaxed),
          state.errors.load(std::memory_order_relaxed)};
}

}  // namespace tokura
