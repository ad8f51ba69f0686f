#include "common/config.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/config_yaml.h"
#include "common/log.h"

namespace tokura {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// ---- values ----

TEST(ParseBytesTest, ReadsWholeNumbersWithBinaryUnits) {
  const std::map<std::string, uint64_t> good = {
      {"0", 0},
      {"4096", 4096},
      {"1B", 1},
      {"64MiB", 64ull << 20},
      {"512 KiB", 512ull << 10},
      {" 2GiB ", 2ull << 30},
      {"1TiB", 1ull << 40},
      {"18446744073709551615", std::numeric_limits<uint64_t>::max()},
      {"16777215TiB", 16777215ull << 40}};
  for (const auto& [text, bytes] : good) {
    EXPECT_EQ(ParseBytes(text).value_or(~bytes), bytes) << text;
  }
}

TEST(ParseBytesTest, RefusesEverythingElseAndSaysWhy) {
  const std::map<std::string, std::string> bad = {{"", "is empty"},
                                                  {"  ", "is empty"},
                                                  {"-1", "is negative"},
                                                  {"-1GiB", "is negative"},
                                                  {"+1", "does not begin with a number"},
                                                  {"GiB", "does not begin with a number"},
                                                  {"1.5GiB", "has a fraction"},
                                                  {"1,5GiB", "has a fraction"},
                                                  {"1GB", "unknown unit 'GB'"},
                                                  {"1gib", "unknown unit 'gib'"},
                                                  {"1 GiB x", "unknown unit 'GiB x'"},
                                                  {"0x10", "unknown unit 'x10'"},
                                                  {"1e3", "unknown unit 'e3'"},
                                                  {"18446744073709551616", "is too large"},
                                                  {"16777216TiB", "is too large"},
                                                  {"99999999999999999999GiB", "is too large"}};
  for (const auto& [text, why] : bad) {
    const auto value = ParseBytes(text);
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(value.status().message()),
                AllOf(HasSubstr(why), HasSubstr("'" + text + "'")));
  }
}

TEST(ParseDurationTest, ReadsWholeNumbersWithUnits) {
  using std::chrono::hours, std::chrono::minutes, std::chrono::seconds;
  const std::map<std::string, Duration> good = {{"0", Duration(0)},
                                                {"5ns", Duration(5)},
                                                {"100us", std::chrono::microseconds(100)},
                                                {"250ms", std::chrono::milliseconds(250)},
                                                {"2 s", seconds(2)},
                                                {"1m", minutes(1)},
                                                {"3h", hours(3)},
                                                {"2562047h", hours(2562047)},
                                                {"9223372036854775807ns", Duration::max()}};
  for (const auto& [text, value] : good) {
    EXPECT_EQ(ParseDuration(text).value_or(Duration(-1)), value) << text;
  }
}

TEST(ParseDurationTest, RefusesEverythingElseAndSaysWhy) {
  const std::map<std::string, std::string> bad = {{"", "is empty"},
                                                  {"5", "needs a unit"},
                                                  {"-5s", "is negative"},
                                                  {"0.5s", "has a fraction"},
                                                  {"5sec", "unknown unit 'sec'"},
                                                  {"5S", "unknown unit 'S'"},
                                                  {"2562048h", "is too large"},
                                                  {"9223372036854775808ns", "is too large"},
                                                  {"ms", "does not begin with a number"}};
  for (const auto& [text, why] : bad) {
    const auto value = ParseDuration(text);
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(value.status().message()), HasSubstr(why));
  }
}

TEST(FormatTest, GivesTheShortestFormThatParsesBack) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(1000), "1000");
  EXPECT_EQ(FormatBytes(65536), "64KiB");
  EXPECT_EQ(FormatBytes(3ull << 30), "3GiB");
  EXPECT_EQ(FormatBytes((3ull << 30) + 1024), "3145729KiB");
  EXPECT_EQ(FormatDuration(Duration(0)), "0s");
  EXPECT_EQ(FormatDuration(std::chrono::milliseconds(250)), "250ms");
  EXPECT_EQ(FormatDuration(std::chrono::seconds(90)), "90s");
  EXPECT_EQ(FormatDuration(std::chrono::minutes(120)), "2h");
  EXPECT_EQ(FormatDuration(Duration(-1'000)), "-1us");
  for (const uint64_t bytes : {1ull, 1023ull, 1024ull, 1ull << 41, ~0ull}) {
    EXPECT_EQ(ParseBytes(FormatBytes(bytes)).value_or(0), bytes);
  }
  for (const Duration value : {Duration(1), Duration(1'000'001), Duration::max()}) {
    EXPECT_EQ(ParseDuration(FormatDuration(value)).value_or(Duration(0)), value);
  }
}

// ---- the table ----

struct Values {
  std::string name = "node-0";
  std::vector<std::string> nodes = {"a:1"};
  int64_t threads = 1;
  double ratio = 0.5;
  bool verify = true;
  uint64_t host_bytes = 1 << 20;
  Duration age = std::chrono::seconds(10);
  std::string codec = "raw";
};

class OptionTableTest : public ::testing::Test {
 protected:
  OptionTableTest() {
    directory_ =
        std::filesystem::path(::testing::TempDir()) / ("tokura-config-" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  ~OptionTableTest() override { std::filesystem::remove_all(directory_); }
  void TearDown() override {
    SetLogLevel(LogLevel::kInfo);
    SetLogFormat(LogFormat::kText);
  }

  std::string WriteFile(const std::string& text) {
    const std::string path = (directory_ / "config.yaml").string();
    std::ofstream(path) << text;
    return path;
  }

  struct Result {
    OptionTable::Outcome outcome;
    std::string out;
    std::string err;
    Values values;
  };

  using Declare = std::function<void(OptionTable&)>;
  Result Run(const std::vector<std::string>& args,
             const std::map<std::string, std::string>& environment = {},
             const Declare& declare = {}) {
    Result result;
    OptionTable table("tokura-test", "Tests options.");
    table.AddString("name", &result.values.name, "Name");
    table.AddStrings("nodes", &result.values.nodes, "Nodes");
    table.AddInt("io-threads", &result.values.threads, "Threads");
    table.AddDouble("ratio", &result.values.ratio, "Ratio");
    table.AddBool("verify", &result.values.verify, "Verify");
    table.AddBytes("host-bytes", &result.values.host_bytes, "Memory");
    table.AddDuration("lease-age", &result.values.age, "Age");
    table.AddChoice("codec", &result.values.codec, {"raw", "int8", "kivi4"}, "Codec");
    if (declare) {
      declare(table);
    }
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    result.outcome = table.Parse(args, [&](const char* key) -> const char* {
      const auto found = environment.find(key);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
    result.out = ::testing::internal::GetCapturedStdout();
    result.err = ::testing::internal::GetCapturedStderr();
    return result;
  }

  // Expects a usage error whose text has `part`.
  void ExpectUsage(const Result& result, const std::string& part) {
    EXPECT_FALSE(result.outcome.run);
    EXPECT_EQ(result.outcome.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_THAT(result.err, HasSubstr("Try 'tokura-test --help'"));
    EXPECT_THAT(result.out, IsEmpty());
  }

  std::filesystem::path directory_;
};

TEST_F(OptionTableTest, DefaultsStayWithoutAnySource) {
  const Result result = Run({});
  EXPECT_TRUE(result.outcome.run);
  EXPECT_EQ(result.outcome.exit_code, 0);
  EXPECT_EQ(result.values.name, "node-0");
  EXPECT_THAT(result.values.nodes, ElementsAre("a:1"));
  EXPECT_EQ(result.values.host_bytes, 1u << 20);
  EXPECT_THAT(result.out + result.err, IsEmpty());
}

// Every option, from each source, and against every weaker source.
struct PrecedenceCase {
  const char* name;
  const char* flag;
  const char* environment;
  const char* yaml;
};

class PrecedenceTest : public OptionTableTest,
                       public ::testing::WithParamInterface<PrecedenceCase> {
 protected:
  static std::string EnvironmentName(std::string name) {
    for (char& c : name) {
      c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return "TOKURA_" + name;
  }
  std::string Value(const Result& printed) {
    const std::string key = std::string("\n") + GetParam().name + ": ";
    const size_t at = printed.out.find(key);
    EXPECT_NE(at, std::string::npos) << printed.out << printed.err;
    const size_t begin = at + key.size();
    return printed.out.substr(begin, printed.out.find('\n', begin) - begin);
  }
};

TEST_P(PrecedenceTest, FlagThenEnvironmentThenFileThenDefault) {
  const auto& [name, flag, environment, yaml] = GetParam();
  const std::string config = WriteFile("# comment\n" + std::string(name) + ": " + yaml + "\n");
  const std::string flag_arg = "--" + std::string(name) + "=" + flag;
  const std::map<std::string, std::string> env = {{EnvironmentName(name), environment}};

  EXPECT_THAT(Value(Run({"--print-config"})), HasSubstr("  # default"));
  EXPECT_EQ(Value(Run({"--print-config", "--config", config})),
            std::string(yaml) + "  # " + config + ":2");
  EXPECT_EQ(Value(Run({"--print-config", "--config", config}, env)),
            std::string(environment) + "  # environment " + EnvironmentName(name));
  EXPECT_EQ(Value(Run({"--print-config", "--config", config, flag_arg}, env)),
            std::string(flag) + "  # flag --" + name);
  EXPECT_EQ(Value(Run({"--print-config", flag_arg})), std::string(flag) + "  # flag --" + name);
  EXPECT_EQ(Value(Run({"--print-config"}, env)),
            std::string(environment) + "  # environment " + EnvironmentName(name));
}

INSTANTIATE_TEST_SUITE_P(EveryType, PrecedenceTest,
                         ::testing::Values(PrecedenceCase{"name", "f", "e", "y"},
                                           PrecedenceCase{"io-threads", "3", "-4", "5"},
                                           PrecedenceCase{"ratio", "0.25", "1e-09", "-3"},
                                           PrecedenceCase{"verify", "false", "true", "false"},
                                           PrecedenceCase{"host-bytes", "3GiB", "4KiB", "5"},
                                           PrecedenceCase{"lease-age", "3s", "40ms", "5h"},
                                           PrecedenceCase{"codec", "int8", "kivi4", "int8"},
                                           PrecedenceCase{"log-level", "warn", "error", "debug"},
                                           PrecedenceCase{"log-format", "json", "text", "json"}));

TEST_F(OptionTableTest, PrecedenceIsPerKey) {
  const std::string config =
      WriteFile("name: from-file\nio-threads: 7\nhost-bytes: 8MiB\ncodec: int8\n");
  const Result result =
      Run({"--name", "from-flag", "--config", config}, {{"TOKURA_IO_THREADS", "9"}});
  EXPECT_TRUE(result.outcome.run);
  EXPECT_EQ(result.values.name, "from-flag");
  EXPECT_EQ(result.values.threads, 9);
  EXPECT_EQ(result.values.host_bytes, 8u << 20);
  EXPECT_EQ(result.values.codec, "int8");
  EXPECT_EQ(result.values.ratio, 0.5);
}

TEST_F(OptionTableTest, FlagsTakeTheirValuesInBothForms) {
  const Result result = Run({"--name=", "--io-threads", "-5", "--ratio=-0.5", "--verify=false",
                             "--nodes=a:1,b:2", "--nodes", "[::1]:3,"});
  ASSERT_TRUE(result.outcome.run) << result.err;
  EXPECT_EQ(result.values.name, "");
  EXPECT_EQ(result.values.threads, -5);
  EXPECT_EQ(result.values.ratio, -0.5);
  EXPECT_FALSE(result.values.verify);
  EXPECT_THAT(result.values.nodes, ElementsAre("a:1", "b:2", "[::1]:3"));
}

TEST_F(OptionTableTest, ABareBoolFlagMeansTrue) {
  const Result result = Run({"--verify"}, {{"TOKURA_VERIFY", "false"}});
  EXPECT_TRUE(result.outcome.run);
  EXPECT_TRUE(result.values.verify);
  ExpectUsage(Run({"--verify=yes"}), "verify (flag --verify): 'yes' is neither true nor false");
}

TEST_F(OptionTableTest, AFlagThatNeedsAValueDoesNotRunWithoutOne) {
  ExpectUsage(Run({"--name"}), "--name");
}

TEST_F(OptionTableTest, ListsComeFromCommasRepetitionsAndYamlLists) {
  EXPECT_THAT(Run({}, {{"TOKURA_NODES", "x:1,y:2"}}).values.nodes, ElementsAre("x:1", "y:2"));
  EXPECT_THAT(Run({"--config", WriteFile("nodes: [p:1, 'q,r']\n")}).values.nodes,
              ElementsAre("p:1", "q,r"));
  EXPECT_THAT(Run({"--config", WriteFile("nodes: p:1,q:2\n")}).values.nodes,
              ElementsAre("p:1", "q:2"));
  EXPECT_THAT(Run({"--config", WriteFile("nodes: []\n")}).values.nodes, IsEmpty());
}

TEST_F(OptionTableTest, AnUnknownFlagNamesTheNearestOption) {
  ExpectUsage(Run({"--host-byte", "1"}),
              "unknown option '--host-byte'; did you mean '--host-bytes'");
  ExpectUsage(Run({"--host-byte=1"}), "did you mean '--host-bytes'");
  ExpectUsage(Run({"--zzzzzzzzzzzzzz"}), "unknown option '--zzzzzzzzzzzzzz'\n");
  ExpectUsage(Run({"-x"}), "unknown option '-x'");
  ExpectUsage(Run({"stray"}), "unexpected argument 'stray'");
}

TEST_F(OptionTableTest, AnUnknownKeyNamesTheNearestOptionAndItsLine) {
  const std::string config = WriteFile("name: x\n\nlease-aeg: 5s\n");
  ExpectUsage(Run({"--config", config}),
              config + ":3: unknown key 'lease-aeg'; did you mean 'lease-age'?");
  ExpectUsage(Run({"--config", WriteFile("config: other.yaml\n")}), "unknown key 'config'");
  ExpectUsage(Run({"--config", WriteFile("host_bytes: 1\n")}), "did you mean 'host-bytes'?");
}

TEST_F(OptionTableTest, TypeErrorsNameOptionSourceAndReason) {
  ExpectUsage(Run({"--host-bytes", "1.5GiB"}),
              "host-bytes (flag --host-bytes): '1.5GiB' has a fraction");
  ExpectUsage(Run({}, {{"TOKURA_IO_THREADS", "many"}}),
              "io-threads (environment TOKURA_IO_THREADS): 'many' is not a whole number");
  ExpectUsage(Run({"--io-threads", "99999999999999999999"}), "is out of range");
  ExpectUsage(Run({"--ratio", "nan"}), "'nan' is not a finite number");
  ExpectUsage(Run({"--ratio", "1x"}), "'1x' is not a finite number");
  ExpectUsage(Run({"--codec", "zip"}), "'zip' is none of raw, int8, kivi4");
  ExpectUsage(Run({"--log-level", "loud"}), "'loud' is none of trace");
  const std::string config = WriteFile("name: x\nlease-age: 5\n");
  ExpectUsage(Run({"--config", config}), "lease-age (" + config + ":2): '5' needs a unit");
  ExpectUsage(Run({"--config", WriteFile("io-threads: [1, 2]\n")}), "takes one value, not a list");
  ExpectUsage(Run({"--config", WriteFile("verify: yes\n")}), "'yes' is neither true nor false");
}

TEST_F(OptionTableTest, AValueGivenTwiceByFlagsIsAnError) {
  ExpectUsage(Run({"--name", "a", "--name", "b"}), "is given 2 times");
}

TEST_F(OptionTableTest, AllErrorsAreShownAndNothingIsWritten) {
  const Result result = Run({"--io-threads=x", "--ratio=y", "--name=z"});
  ExpectUsage(result, "io-threads");
  EXPECT_THAT(result.err, HasSubstr("ratio"));
  EXPECT_EQ(result.values.name, "node-0");
}

TEST_F(OptionTableTest, BadYamlIsAnErrorWithItsLine) {
  ExpectUsage(Run({"--config", WriteFile("name: x\nname: y\n")}), ":2: 'name' is there a second");
  ExpectUsage(Run({"--config", WriteFile("name:\n")}), "'name' has no value");
  ExpectUsage(Run({"--config", WriteFile("name: {a: b}\n")}), "must be a value or a list");
  ExpectUsage(Run({"--config", WriteFile("nodes: [[a]]\n")}), "must be a plain value");
  ExpectUsage(Run({"--config", WriteFile("- a\n- b\n")}), "must be a map");
  ExpectUsage(Run({"--config", WriteFile("just text\n")}), "must be a map");
  ExpectUsage(Run({"--config", WriteFile("a: b: c\n")}), "not YAML");
  ExpectUsage(Run({"--config", WriteFile("name: [open\n")}), "not YAML");
  ExpectUsage(Run({"--config", WriteFile("name: *nowhere\n")}), "not YAML");
  ExpectUsage(Run({"--config", WriteFile("[a, b]: c\n")}), "a key must be a name");
  ExpectUsage(Run({"--config", WriteFile("name: a\n---\nname: b\n")}), "a second document");
  ExpectUsage(Run({"--config", WriteFile("name: " + std::string(kYamlBytesMax, 'x'))}),
              "has more than");
  ExpectUsage(Run({"--config", (directory_ / "missing.yaml").string()}), "cannot read");
  ExpectUsage(Run({"--config", directory_.string()}), "cannot read");
}

TEST_F(OptionTableTest, TextOnWhichTheYamlParserMakesNoProgressIsRefused) {
  EXPECT_FALSE(ReadYamlSettings(",:2s", "file").ok());
  EXPECT_FALSE(ReadYamlSettings("name: x\n,\n", "file").ok());
}

TEST_F(OptionTableTest, AnEmptyFileSaysNothing) {
  EXPECT_TRUE(Run({"--config", WriteFile("")}).outcome.run);
  EXPECT_TRUE(Run({"--config", WriteFile("# only a comment\n")}).outcome.run);
}

TEST_F(OptionTableTest, TheConfigFileItselfCanComeFromTheEnvironment) {
  const std::string config = WriteFile("name: filed\n");
  EXPECT_EQ(Run({}, {{"TOKURA_CONFIG", config}}).values.name, "filed");
}

TEST_F(OptionTableTest, AnEmptyEnvironmentVariableCountsAsNone) {
  const Result result = Run({}, {{"TOKURA_NAME", ""}, {"TOKURA_IO_THREADS", ""}});
  EXPECT_TRUE(result.outcome.run);
  EXPECT_EQ(result.values.name, "node-0");
}

TEST_F(OptionTableTest, OtherVariablesOfTheEnvironmentAreNotLookedAt) {
  const Result result = Run({}, {{"NAME", "x"}, {"TOKURA_UNKNOWN", "x"}, {"tokura_name", "x"}});
  EXPECT_TRUE(result.outcome.run);
  EXPECT_EQ(result.values.name, "node-0");
}

TEST_F(OptionTableTest, PrintedConfigReadsBackTheSame) {
  const std::string odd = "a: b # c \"d\" \\ \n\x01 größe [x, y] {z}";
  const Result first = Run({"--print-config", "--name", odd, "--nodes", "null,a b,c", "--ratio",
                            "0.1", "--lease-age", "1500us"});
  ASSERT_EQ(first.outcome.exit_code, 0);
  EXPECT_FALSE(first.outcome.run);
  const Result second = Run({"--config", WriteFile(first.out)});
  ASSERT_TRUE(second.outcome.run) << second.err << first.out;
  EXPECT_EQ(second.values.name, odd);
  EXPECT_THAT(second.values.nodes, ElementsAre("null", "a b", "c"));
  EXPECT_EQ(second.values.ratio, 0.1);
  EXPECT_EQ(second.values.age, std::chrono::microseconds(1500));
}

TEST_F(OptionTableTest, ScalarsThatYamlReadsAsSomethingElseStayText) {
  for (const std::string name : {"", "null", "~", "true", "123", "0x1F", "- a", "a:", "*x", "&y",
                                 "!t", "%p", "@q", "`r", "'s'", "|", ">", "#"}) {
    const Result printed = Run({"--print-config", "--name", name});
    EXPECT_EQ(Run({"--config", WriteFile(printed.out)}).values.name, name) << printed.out;
  }
}

TEST_F(OptionTableTest, CheckConfigExitsZeroOrOne) {
  const Result good = Run({"--check-config", "--config", WriteFile("name: x\n")});
  EXPECT_FALSE(good.outcome.run);
  EXPECT_EQ(good.outcome.exit_code, 0);
  for (const char* bad : {"nam: x\n", "io-threads: x\n", "a: b: c\n"}) {
    const Result result = Run({"--check-config", "--config", WriteFile(bad)});
    EXPECT_FALSE(result.outcome.run);
    EXPECT_EQ(result.outcome.exit_code, 1) << bad;
    EXPECT_THAT(result.err, Not(IsEmpty()));
  }
  EXPECT_EQ(Run({"--check-config", "--unknown"}).outcome.exit_code, 2);
}

TEST_F(OptionTableTest, ChecksRunAfterParsingAndFailAsUsage) {
  int runs = 0;
  const auto declare = [&](OptionTable& table) {
    table.AddCheck([&] {
      ++runs;
      return runs > 1 ? absl::InvalidArgumentError("io-threads and ratio do not fit")
                      : absl::OkStatus();
    });
  };
  EXPECT_TRUE(Run({}, {}, declare).outcome.run);
  ExpectUsage(Run({}, {}, declare), "io-threads and ratio do not fit");
  EXPECT_EQ(Run({"--check-config"}, {}, declare).outcome.exit_code, 1);
  Run({"--io-threads=x"}, {}, declare);
  EXPECT_EQ(runs, 3) << "a check sees only values that were read";
}

TEST_F(OptionTableTest, PositionalsFillInOrderAndTheLastTakesTheRest) {
  std::vector<std::string> command;
  std::vector<std::string> files;
  const auto declare = [&](OptionTable& table) {
    table.AddPositional("command", &command, OptionTable::Presence::kRequired, "What to do");
    table.AddPositional("files", &files, OptionTable::Presence::kOptional, "Files");
  };
  const Result result = Run({"put", "--name", "x", "a", "b"}, {}, declare);
  EXPECT_TRUE(result.outcome.run) << result.err;
  EXPECT_THAT(command, ElementsAre("put"));
  EXPECT_THAT(files, ElementsAre("a", "b"));
  command.clear();
  ExpectUsage(Run({}, {}, declare), "'command' is missing");
  EXPECT_EQ(Run({"--print-config"}, {}, declare).outcome.exit_code, 0);
}

TEST_F(OptionTableTest, HelpShowsOptionsDefaultsAndExamples) {
  const Result result = Run({"--help", "--no-such-option"}, {}, [](OptionTable& table) {
    table.AddExample("tokura-test --name x", "Runs as x.");
  });
  EXPECT_FALSE(result.outcome.run);
  EXPECT_EQ(result.outcome.exit_code, 0);
  for (const char* part :
       {"Tests options.", "--host-bytes SIZE=1MiB", "Verify [true]", "--codec raw|int8|kivi4",
        "--config", "--print-config", "--check-config", "--version",
        "Examples:", "tokura-test --name x", "Runs as x.", "TOKURA_NAME"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(OptionTableTest, VersionNamesProgramVersionAndCommit) {
  const Result result = Run({"--version"});
  EXPECT_FALSE(result.outcome.run);
  EXPECT_EQ(result.outcome.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("tokura-test 0\\.1\\.0 \\(.+\\)\n"));
}

TEST_F(OptionTableTest, LogOptionsComeIntoForce) {
  EXPECT_TRUE(Run({"--log-level", "error"}).outcome.run);
  EXPECT_FALSE(LogEnabled(LogLevel::kWarn));
  EXPECT_TRUE(Run({}, {{"TOKURA_LOG_LEVEL", "debug"}}).outcome.run);
  EXPECT_TRUE(LogEnabled(LogLevel::kDebug));
}

TEST(OptionTableProcessTest, TheProcessEnvironmentIsTheDefault) {
  setenv("TOKURA_PROCESS_TEST_OPTION", "from-process", 1);
  std::string value;
  OptionTable table("tokura-test", "Tests options.");
  table.AddString("process-test-option", &value, "Value");
  EXPECT_TRUE(table.Parse({}).run);
  unsetenv("TOKURA_PROCESS_TEST_OPTION");
  EXPECT_EQ(value, "from-process");
}

TEST(OptionTableDeathTest, NamesAreDistinctKebabCase) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::string value;
  OptionTable table("tokura-test", "Tests options.");
  EXPECT_DEATH(table.AddString("config", &value, ""), "broken invariant");
  EXPECT_DEATH(table.AddString("Upper", &value, ""), "broken invariant");
  EXPECT_DEATH(table.AddString("under_score", &value, ""), "broken invariant");
}

}  // namespace
}  // namespace tokura
