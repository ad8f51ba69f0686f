#include "tests/integration/tokura_run.h"

#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/integration/process.h"
#include "tests/integration/server_under_test.h"

namespace tokura::integration {

using nlohmann::json;

Finished Tokura(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TOKURA_PROGRAM);
  const ChildProcess::Output files{FreshPath(".out"), FreshPath(".err")};
  ChildProcess process(arguments, files);
  const auto ended = process.WaitForEnd(std::chrono::seconds(60));
  Finished run;
  run.exit_code = ended && WIFEXITED(*ended) ? WEXITSTATUS(*ended) : -1;
  run.out = ReadText(files.out_path);
  run.error = ReadText(files.error_path);
  return run;
}

json TokuraJson(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "-"});
  const Finished run = Tokura(std::move(arguments));
  EXPECT_EQ(run.exit_code, 0) << run.error;
  json result = json::parse(run.out, nullptr, false);
  EXPECT_TRUE(result.is_object() || result.is_array()) << run.out;
  return result;
}

std::string Captured(const std::string& name) {
  return std::string(TOKURA_CAPTURES) + "/" + name;
}

}  // namespace tokura::integration
