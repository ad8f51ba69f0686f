#include "cli/cpu_option.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "cli/codec_commands.h"
#include "cli/output.h"
#include "kernels/cpu_features.h"

namespace tokura::cli {
namespace {

OptionTable::Outcome Parse(const std::vector<std::string>& args) {
  CpuOption cpu;
  OptionTable options("test", "A test.");
  cpu.AddTo(&options);
  return options.Parse(args, [](const char*) -> const char* { return nullptr; });
}

TEST(CpuOption, ForcesWhatRunsAndRefusesTheRest) {
  for (const kernels::Isa isa : kernels::kIsas) {
    const auto outcome = Parse({"--cpu", std::string(kernels::IsaName(isa))});
    EXPECT_EQ(outcome.run, kernels::IsaAvailable(isa));
    if (outcome.run) {
      EXPECT_EQ(kernels::ActiveIsa(), isa);
    } else {
      EXPECT_EQ(outcome.exit_code, 2);
    }
  }
  ASSERT_TRUE(kernels::SetIsa(kernels::BestIsa()).ok());
  EXPECT_TRUE(Parse({}).run);
  EXPECT_EQ(kernels::ActiveIsa(), kernels::BestIsa());
}

TEST(CpuOption, CodecListSaysWhatIsInForce) {
  const std::string path = testing::TempDir() + "/codec_list.json";
  testing::internal::CaptureStdout();
  EXPECT_EQ(RunCodecList({"--cpu", "scalar", "--json", path}), 0);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("instruction set here: scalar"),
            std::string::npos);
  ASSERT_TRUE(kernels::SetIsa(kernels::BestIsa()).ok());
  std::ifstream file(path);
  const Json json = Json::parse(file);
  EXPECT_EQ(json["instruction_set"], "scalar");
}

}  // namespace
}  // namespace tokura::cli
