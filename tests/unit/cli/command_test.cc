#include "cli/command.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bench_command.h"
#include "cli/bench_soak.h"
#include "cli/codec_commands.h"
#include "cli/demo.h"
#include "cli/kv_commands.h"
#include "cli/nodes_command.h"
#include "cli/output.h"
#include "cli/up_command.h"

namespace tokura::cli {
namespace {

using ::testing::HasSubstr;
using Args = std::vector<std::string>;

struct Captured {
  int exit_code;
  std::string out;
  std::string error;
};

template <typename F>
Captured CaptureOutput(F&& run) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Captured captured;
  captured.exit_code = run();
  captured.out = ::testing::internal::GetCapturedStdout();
  captured.error = ::testing::internal::GetCapturedStderr();
  return captured;
}

constexpr std::array kTable = {
    Command{"one", "first", [](const Args& args) { return 10 + static_cast<int>(args.size()); }},
    Command{"two words", "second",
            [](const Args& args) { return 20 + static_cast<int>(args.size()); }},
    Command{"hidden", "third", [](const Args&) { return 30; }, CommandKind::kInternal},
};

TEST(CommandTest, RunsTheCommandWithWhatFollowsIt) {
  EXPECT_EQ(RunCommand(kTable, {"one"}), 10);
  EXPECT_EQ(RunCommand(kTable, {"one", "--x", "y"}), 12);
  EXPECT_EQ(RunCommand(kTable, {"two", "words", "z"}), 21);
  EXPECT_EQ(RunCommand(kTable, {"hidden"}), 30);
}

TEST(CommandTest, HelpListsThePublicCommands) {
  const Captured help = CaptureOutput([] { return RunCommand(kTable, {"--help"}); });
  EXPECT_EQ(help.exit_code, kExitOk);
  EXPECT_THAT(help.out, HasSubstr("two words  second"));
  EXPECT_THAT(help.out, ::testing::Not(HasSubstr("hidden")));
  const Captured group = CaptureOutput([] { return RunCommand(kTable, {"two", "--help"}); });
  EXPECT_EQ(group.exit_code, kExitOk);
  EXPECT_THAT(group.out, HasSubstr("two words"));
  EXPECT_THAT(group.out, ::testing::Not(HasSubstr("one")));
}

TEST(CommandTest, UnknownAndMissingCommandsAreUsageErrors) {
  for (const Args& args : {Args{}, Args{"three"}, Args{"two"}, Args{"two", "oranges"}}) {
    const Captured wrong = CaptureOutput([&] { return RunCommand(kTable, args); });
    EXPECT_EQ(wrong.exit_code, kExitUsage);
    EXPECT_THAT(wrong.error, HasSubstr("two words"));
    EXPECT_EQ(wrong.out, "");
  }
  EXPECT_THAT(CaptureOutput([] { return RunCommand(kTable, {"three"}); }).error,
              HasSubstr("unknown command 'three'"));
}

TEST(CommandTest, VersionIsAnswered) {
  const Captured version = CaptureOutput([] { return RunCommand(kTable, {"--version"}); });
  EXPECT_EQ(version.exit_code, kExitOk);
  EXPECT_THAT(version.out, HasSubstr("tokura "));
}

struct RealCommand {
  const char* name;
  int (*run)(const Args&);
};
constexpr RealCommand kReal[] = {
    {"up", RunUp},          {"demo", RunDemo},      {"put", RunPut},
    {"get", RunGet},        {"stat", RunStat},      {"rm", RunRemove},
    {"list", RunCodecList}, {"eval", RunCodecEval}, {"codec", RunBenchCodec},
    {"soak", RunBenchSoak}, {"nodes", RunNodes},
};

TEST(CommandTest, EveryCommandHasHelpWithAnExampleAndJson) {
  for (const RealCommand& command : kReal) {
    const Captured help = CaptureOutput([&] { return command.run({"--help"}); });
    EXPECT_EQ(help.exit_code, kExitOk) << command.name;
    EXPECT_THAT(help.out, HasSubstr("Example")) << command.name;
    if (std::string(command.name) != "up") {
      EXPECT_THAT(help.out, HasSubstr("--json")) << command.name;
    }
  }
}

TEST(CommandTest, WrongArgumentsAreUsageErrorsThatSayWhatToDo) {
  struct Case {
    int (*run)(const Args&);
    Args args;
    const char* says;
  };
  const Case cases[] = {
      {RunPut, {"--kv", "x"}, "--node"},
      {RunPut, {"--node", "h:1"}, "--kv"},
      {RunPut, {"--coordinator", "h:1", "--node", "h:2", "--kv", "x"}, "give one of them"},
      {RunNodes, {}, "tokura up"},
      {RunNodes, {"--coordinator", "nowhere"}, "nowhere"},
      {RunPut, {"--node", "h:1", "--kv", "x", "--codec", "zip"}, "kivi4"},
      {RunPut, {"--node", "h:1", "--kv", "x", "--block-tokens", "0"}, "1 to 1024"},
      {RunGet, {"--node", "h:1", "--kv", "x", "--max-error", "-1"}, "--max-error"},
      {RunGet, {"--node", "h:1", "--kv", "x", "--max-error", "nan"}, "--max-error"},
      {RunStat, {}, "tokura up"},
      {RunRemove, {"--surprise"}, "surprise"},
      {RunDemo, {"--block-tokens", "2000"}, "1 to 1024"},
      {RunDemo, {"--codec", "zip"}, "kivi4"},
      {RunUp, {"--listen", "nowhere"}, "nowhere"},
      {RunUp, {"--listen", "0.0.0.0:0"}, "--allow-unauthenticated"},
      {RunCodecEval, {}, "--kv"},
      {RunBenchCodec, {"--memory", "cuda"}, "host"},
      {RunBenchCodec, {"--seconds", "-1"}, "negative"},
      {RunBenchCodec, {"--filter", "transport/"}, "codec/cpu/"},
      {RunBenchSoak, {"--node", "h:1", "--threads", "0"}, "--threads"},
      {RunBenchSoak, {"--node", "h:1", "--block-bytes", "1GiB"}, "8MiB"},
  };
  for (const Case& c : cases) {
    const Captured wrong = CaptureOutput([&] { return c.run(c.args); });
    EXPECT_EQ(wrong.exit_code, kExitUsage) << c.says;
    EXPECT_THAT(wrong.error, HasSubstr(c.says));
    EXPECT_EQ(wrong.out, "") << c.says;
  }
}

TEST(CommandTest, WhatCannotBeReadFails) {
  const Captured missing = CaptureOutput([] {
    return RunCodecEval({"--kv", "/nonexistent.kvcap"});
  });
  EXPECT_EQ(missing.exit_code, kExitFailed);
  EXPECT_THAT(missing.error, HasSubstr("/nonexistent.kvcap"));
  const Captured no_data = CaptureOutput([] { return RunDemo({"--data", "/nonexistent"}); });
  EXPECT_EQ(no_data.exit_code, kExitFailed);
  EXPECT_THAT(no_data.error, HasSubstr("--data"));
}

TEST(CommandTest, JsonDashLeavesStdoutToTheObject) {
  const Captured list = CaptureOutput([] { return RunCodecList({"--json", "-"}); });
  EXPECT_EQ(list.exit_code, kExitOk);
  const Json json = Json::parse(list.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << list.out;
  ASSERT_GE(json["codecs"].size(), 3u);
  bool found = false;
  for (const Json& codec : json["codecs"]) {
    EXPECT_TRUE(codec.contains("name") && codec.contains("k") && codec.contains("v"));
    found |= codec["name"] == "kivi4" && codec["bits_per_element_d128"] > 4.3 &&
             codec["bits_per_element_d128"] < 4.5;
  }
  EXPECT_TRUE(found);
}

TEST(BenchReportTest, RowsHaveTheKeysThatScriptsRelyOn) {
  BenchRow row;
  row.name = "codec/cpu/encode/raw";
  row.value = 2;
  row.unit = "GB/s";
  row.bound = 4;
  row.bound_name = "memcpy of the raw bytes";
  row.ratio = 0.5;
  row.repeats = 15;
  BenchRow alone;
  alone.name = "x";
  const Json json = BenchReport({row, alone});
  EXPECT_TRUE(json["commit"].is_string());
  EXPECT_TRUE(json["machine"].is_string());
  const Json& first = json["results"][0];
  for (const char* key : {"name", "value", "unit", "bound", "bound_name", "ratio", "repeats"}) {
    EXPECT_TRUE(first.contains(key)) << key;
  }
  EXPECT_EQ(first["ratio"], 0.5);
  EXPECT_FALSE(first.contains("ratio_without_crc"));
  EXPECT_TRUE(json["results"][1]["ratio"].is_null());
  row.ratio_without_crc = 0.25;
  EXPECT_EQ(BenchReport({row})["results"][0]["ratio_without_crc"], 0.25);
  EXPECT_THAT(BenchTable({row, alone}), HasSubstr("codec/cpu/encode/raw"));
}

TEST(BenchReportTest, FiltersArePrefixes) {
  BenchOptions options;
  EXPECT_TRUE(Selected(options, "codec/cpu/encode/raw"));
  options.filter = "codec/cpu/enc";
  EXPECT_TRUE(Selected(options, "codec/cpu/encode/raw"));
  EXPECT_FALSE(Selected(options, "codec/cpu/decode/raw"));
  EXPECT_FALSE(Selected(options, "codec"));
}

}  // namespace
}  // namespace tokura::cli
