// `tokura bench lookup`, which starts a coordinator and, where it is installed, Redis.

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "tests/integration/server_under_test.h"

namespace tokura::integration {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Finished {
  int exit_code = -1;
  std::string out;
  std::string error;
};

Finished BenchLookup(const std::vector<std::string>& flags) {
  std::vector<std::string> command = {TOKURA_PROGRAM, "bench", "lookup", "--seconds", "1"};
  command.insert(command.end(), flags.begin(), flags.end());
  const ChildProcess::Output files{FreshPath(".out"), FreshPath(".err")};
  ChildProcess process(command, files);
  const auto ended = process.WaitForEnd(std::chrono::seconds(60));
  return {ended && WIFEXITED(*ended) ? WEXITSTATUS(*ended) : -1, ReadText(files.out_path),
          ReadText(files.error_path)};
}

TEST(BenchLookupTest, ReportsLookupsBesideRedisAndTheCoordinatorsOwnTime) {
  const Finished run = BenchLookup({"--filter", "lookup/64/index1e5", "--json", "-"});
  ASSERT_EQ(run.exit_code, 0) << run.error;
  const json report = json::parse(run.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << run.out;
  std::map<std::string, json> rows;
  for (const json& row : report["results"]) {
    rows[row["name"]] = row;
  }
  ASSERT_EQ(rows.size(), 3u) << run.out;
  for (const char* name :
       {"lookup/64/index1e5", "lookup/64/index1e5/server", "lookup/64/index1e5/server/key"}) {
    ASSERT_EQ(rows.count(name), 1u) << run.out;
    EXPECT_GT(rows[name]["value"], 0) << name;
  }
  const json& lookup = rows["lookup/64/index1e5"];
  EXPECT_GE(lookup["repeats"], 15);
  EXPECT_EQ(lookup["unit"], "us");
  if (lookup["bound_name"] != "") {  // Redis is installed.
    EXPECT_GT(lookup["bound"], 0);
    EXPECT_GT(lookup["ratio"], 0);
  } else {
    EXPECT_TRUE(lookup["ratio"].is_null());
  }
}

TEST(BenchLookupTest, PlotsTheIndexsMemoryWhichIsWithinItsLimit) {
  const Finished run = BenchLookup({"--filter", "lookup/memory/index1e5"});
  ASSERT_EQ(run.exit_code, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("lookup/memory/index1e5/resident"));
  const size_t plot = run.out.find("\n  index1e5  ");
  ASSERT_NE(plot, std::string::npos) << run.out;
  const double bytes = std::stod(run.out.substr(plot + 13));
  EXPECT_GT(bytes, 40);
  EXPECT_LE(bytes, 100);
}

TEST(BenchLookupTest, FilterThatMatchesNothingIsWrongUsage) {
  const Finished run = BenchLookup({"--filter", "lookup/65"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.error, HasSubstr("lookup/{64,1024,16384}/index{1e5,1e6,1e7}"));
}

}  // namespace
}  // namespace tokura::integration
