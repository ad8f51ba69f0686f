#include "tests/integration/soak_under_test.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/integration/server_under_test.h"

namespace tokura::integration {
namespace {

// A call that ends so long after its deadline hangs. What hangs does so for much longer; a thread
// that got no processor for a while does not.
constexpr char kSlack[] = "2s";
constexpr int kRecoveryMs = 5000 * TOKURA_TIME_SCALE;

}  // namespace

SoakUnderTest::SoakUnderTest(const std::vector<std::string>& flags,
                             const std::vector<std::string>& launcher)
    : out_path_(FreshPath(".out")), error_path_(FreshPath(".err")) {
  std::vector<std::string> command = launcher;
  command.insert(command.end(),
                 {TOKURA_PROGRAM, "bench", "soak", "--seconds", "600", "--block-bytes", "64KiB",
                  "--verify", "--slack", kSlack, "--json", "-", "--log-level", "error"});
  command.insert(command.end(), flags.begin(), flags.end());
  process_ = std::make_unique<ChildProcess>(command, ChildProcess::Output{out_path_, error_path_});
}

nlohmann::json SoakUnderTest::End() {
  if (!process_->RunsFor(Duration::zero())) {
    ADD_FAILURE() << "the soak has ended by itself: " << ReadText(error_path_);
    return nlohmann::json::object();
  }
  process_->Signal(SIGTERM);
  const auto ended = process_->WaitForEnd(std::chrono::seconds(30));
  EXPECT_TRUE(ended.has_value()) << "the soak hangs";
  EXPECT_TRUE(ended && WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0) << ReadText(error_path_);
  nlohmann::json report = nlohmann::json::parse(ReadText(out_path_), nullptr, false);
  if (!report.is_object()) {
    ADD_FAILURE() << "no report: " << ReadText(out_path_) << ReadText(error_path_);
    return nlohmann::json::object();
  }
  EXPECT_EQ(report["wrong"], 0) << ReadText(error_path_);
  EXPECT_EQ(report["hung"], 0) << ReadText(error_path_);
  EXPECT_GT(report["hits"], 100);
  for (const nlohmann::json& recovery : report["recovery_ms"]) {
    EXPECT_LT(recovery, kRecoveryMs);
  }
  return report;
}

}  // namespace tokura::integration
