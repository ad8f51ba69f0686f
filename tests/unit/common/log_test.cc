#include "common/log.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tokura {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return now; }
  uint64_t WallMicros() const override { return 0; }
  TimePoint now{std::chrono::hours(1)};
};

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    SetLogLevel(LogLevel::kInfo);
    SetLogFormat(LogFormat::kText);
  }
  template <typename Body>
  static std::string Capture(Body body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, TextLineHasLevelTimeThreadComponentEventAndFields) {
  const std::string out = Capture([] {
    Log(LogLevel::kInfo, "node", "started", {{"name", "node-0"}, {"blocks", 17}, {"ratio", 0.5}});
  });
  EXPECT_THAT(out, MatchesRegex("INFO [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
                                "\\.[0-9]{6}Z [0-9]+ node started name=node-0 blocks=17 "
                                "ratio=0.5\n"));
}

TEST_F(LogTest, HostileValueCannotForgeALine) {
  const std::string out = Capture([] {
    Log(LogLevel::kInfo, "node", "hello",
        {{"peer", std::string("x\nERROR fake \"q\" \x1b[31m\r\t\\\0end", 29)}, {"empty", ""}});
  });
  EXPECT_EQ(Lines(out).size(), 1u);
  EXPECT_THAT(
      out, EndsWith("peer=\"x\\nERROR fake \\\"q\\\" \\x1b[31m\\r\\t\\\\\\x00end\" empty=\"\"\n"));
}

TEST_F(LogTest, LongValueIsCut) {
  const std::string out = Capture([] {
    Log(LogLevel::kInfo, "node", "hello", {{"peer", std::string(100'000, 'a')}});
  });
  EXPECT_LT(out.size(), kLogValueBytesMax + 200);
  EXPECT_THAT(out, HasSubstr("(100000 bytes)"));
}

TEST_F(LogTest, JsonLineParsesAndKeepsNumbers) {
  SetLogFormat(LogFormat::kJson);
  const std::string out = Capture([] {
    Log(LogLevel::kInfo, "node", "hello",
        {{"peer", "a \"b\"\n"},
         {"bytes", uint64_t{1} << 63},
         {"bad", std::string("\xff\xfe")},
         {"nan", std::numeric_limits<double>::quiet_NaN()}});
  });
  ASSERT_EQ(Lines(out).size(), 1u);
  const auto line = nlohmann::json::parse(out);
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["component"], "node");
  EXPECT_EQ(line["event"], "hello");
  EXPECT_EQ(line["peer"], "a \"b\"\n");
  EXPECT_EQ(line["bytes"], uint64_t{1} << 63);
  EXPECT_TRUE(line["nan"].is_string());
  EXPECT_TRUE(line.contains("ts"));
}

TEST_F(LogTest, LevelHidesLinesButCountsThem) {
  SetLogLevel(LogLevel::kError);
  const LogCount before = LogCounts();
  const std::string out = Capture([] {
    Log(LogLevel::kWarn, "test", "hidden");
    Log(LogLevel::kError, "test", "shown");
    Log(LogLevel::kInfo, "test", "hidden");
  });
  EXPECT_EQ(Lines(out).size(), 1u);
  EXPECT_THAT(out, HasSubstr("ERROR"));
  EXPECT_EQ(LogCounts().warnings - before.warnings, 1u);
  EXPECT_EQ(LogCounts().errors - before.errors, 1u);
  EXPECT_FALSE(LogEnabled(LogLevel::kWarn));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
}

TEST_F(LogTest, ParsesLevelNamesOnly) {
  LogLevel level = LogLevel::kInfo;
  EXPECT_TRUE(ParseLogLevel("trace", &level));
  EXPECT_EQ(level, LogLevel::kTrace);
  EXPECT_TRUE(ParseLogLevel("error", &level));
  EXPECT_EQ(level, LogLevel::kError);
  EXPECT_FALSE(ParseLogLevel("ERROR", &level));
  EXPECT_FALSE(ParseLogLevel("", &level));
  EXPECT_EQ(level, LogLevel::kError);
}

TEST_F(LogTest, LimiterAllowsABurstThenOneEachInterval) {
  FakeClock clock;
  LogLimiter limiter(clock, {.burst = 3, .interval = std::chrono::seconds(1)});
  const auto storm = [&] {
    for (int i = 0; i < 10; ++i) {
      LogLimited(limiter, LogLevel::kInfo, "node", "refused", {{"i", i}});
    }
  };
  EXPECT_EQ(Lines(Capture(storm)).size(), 3u);
  EXPECT_EQ(Lines(Capture(storm)).size(), 0u);
  clock.now += std::chrono::milliseconds(1000);
  const std::string later = Capture(storm);
  EXPECT_EQ(Lines(later).size(), 1u);
  EXPECT_THAT(later, EndsWith("i=0 suppressed=17\n"));
  clock.now += std::chrono::hours(1);
  EXPECT_EQ(Lines(Capture(storm)).size(), 3u) << "an idle hour buys one burst, not 3600 lines";
}

TEST_F(LogTest, SuppressedWarningsAreCounted) {
  FakeClock clock;
  LogLimiter limiter(clock, {.burst = 1, .interval = std::chrono::seconds(1)});
  const LogCount before = LogCounts();
  Capture([&] {
    LogLimited(limiter, LogLevel::kWarn, "node", "refused");
    LogLimited(limiter, LogLevel::kWarn, "node", "refused");
  });
  EXPECT_EQ(LogCounts().warnings - before.warnings, 2u);
}

TEST_F(LogTest, LinesOfManyThreadsDoNotMix) {
  const std::string out = Capture([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 200; ++i) {
          Log(LogLevel::kInfo, "test", "line", {{"fill", std::string(300, 'x')}});
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  const std::vector<std::string> lines = Lines(out);
  EXPECT_EQ(lines.size(), 800u);
  for (const std::string& line : lines) {
    EXPECT_THAT(line, EndsWith(" test line fill=" + std::string(300, 'x')));
    EXPECT_THAT(line.substr(1), Not(HasSubstr("INFO")));
  }
}

}  // namespace
}  // namespace tokura
