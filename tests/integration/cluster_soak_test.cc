// `tokura bench soak` against a cluster whose nodes and coordinators are killed and stopped.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/wait.h>

#include "absl/strings/str_join.h"
#include "tests/integration/cluster_fixture.h"

namespace tokura::integration {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kChains = 36;
constexpr int kSoakSeconds = 15;
// Hits over what survives are back within this after any fault,
constexpr Duration kRecovery = seconds(5);
// to this share of what they were.
constexpr double kRecovered = 0.9;
// As long as it takes to be suspected and a little more.
constexpr Duration kStopped = milliseconds(1200);

class SoakTest : public ClusterTest {
 protected:
  SoakTest() : client_(ConnectVia(cluster_.addresses(), 3)) {
    const ChildProcess::Output files{out_path_, error_path_};
    soak_ = std::make_unique<ChildProcess>(
        std::vector<std::string>{TOKURA_PROGRAM, "bench", "soak", "--coordinator",
                                 absl::StrJoin(cluster_.addresses(), ","), "--seconds",
                                 std::to_string(kSoakSeconds * TOKURA_TIME_SCALE), "--threads", "3",
                                 "--block-bytes", "64KiB", "--chains", "12", "--verify", "--json",
                                 "-", "--log-level", "error"},
        files);
  }

  // Put all chains, which are as long as a segment, so that each lies on one node; wait until they
  // are found, and remember where.
  void Fill() {
    const auto stored = [&] {
      holders_.clear();
      for (uint64_t seed = 1; seed <= kChains; ++seed) {
        Store(*client_, seed, kSegmentBlocks);
        const Match match = Lookup(*client_, seed, kSegmentBlocks);
        if (match.blocks() == kSegmentBlocks) {
          holders_[seed] = match.HolderOf(0)->node;
        }
      }
      return holders_.size() == kChains && HitRatio("") == 1;
    };
    ASSERT_TRUE(WaitFor(stored)) << holders_.size() << " chains of " << kChains;
  }

  // Share of the blocks of chains that are not at `lost` that come back.
  double HitRatio(const std::string& lost) {
    size_t wanted = 0, hit = 0;
    for (const auto& [seed, holder] : holders_) {
      if (holder != lost) {
        wanted += kSegmentBlocks;
        hit += Fetch(*client_, seed, kSegmentBlocks);
      }
    }
    EXPECT_GT(wanted, 0u);
    return static_cast<double>(hit) / static_cast<double>(wanted);
  }

  void ExpectBack(const char* fault, const std::string& lost = "") {
    EXPECT_TRUE(WaitFor([&] { return HitRatio(lost) >= kRecovered; }, kRecovery)) << fault;
  }

  // Stop a process for a while; hits come back while it is, and when it goes on.
  void StopFor(const char* what, ChildProcess& process, const std::string& lost) {
    process.Stop();
    const TimePoint end = SystemClock().Now() + Scaled(kStopped);
    ExpectBack(what, lost);
    WaitFor([&] { return SystemClock().Now() >= end; });
    process.Signal(SIGCONT);
    ExpectBack(what);
  }

  void ExpectCleanReport() {
    const auto ended = soak_->WaitForEnd(seconds(kSoakSeconds + 15));
    ASSERT_TRUE(ended.has_value()) << "the soak hangs";
    const json report = json::parse(ReadText(out_path_), nullptr, false);
    ASSERT_TRUE(report.is_object()) << ReadText(out_path_) << ReadText(error_path_);
    EXPECT_EQ(report["wrong"], 0) << ReadText(error_path_);
    EXPECT_GT(report["hits"], 100);
    if (TOKURA_TIME_SCALE == 1) {  // The soak's own limits do not know of sanitizers.
      EXPECT_EQ(report["hung"], 0) << ReadText(error_path_);
      EXPECT_TRUE(WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0);
      for (const json& recovery : report["recovery_ms"]) {
        EXPECT_LT(recovery, 5000);
      }
    }
  }

  ClusterUnderTest cluster_{{.nodes = 3, .coordinators = 2}};
  const std::unique_ptr<Client> client_;
  std::map<uint64_t, std::string> holders_;  // of the chains, by seed
  const std::string out_path_ = FreshPath(".out");
  const std::string error_path_ = FreshPath(".err");
  std::unique_ptr<ChildProcess> soak_;
};

TEST_F(SoakTest, NothingIsWrongOrHangsAndHitsComeBackAfterKillsAndStops) {
  Fill();
  cluster_.node(1).Kill();
  ExpectBack("a killed node", ClusterUnderTest::NodeName(1));
  cluster_.RestartNode(1);
  Fill();
  StopFor("a stopped node", cluster_.node(2).process(), ClusterUnderTest::NodeName(2));
  StopFor("the stopped holder", cluster_.coordinator(0).process(), "");
  StopFor("the stopped follower", cluster_.coordinator(1).process(), "");
  cluster_.coordinator(0).Kill();
  ExpectBack("the killed holder");
  cluster_.RestartCoordinator(0);
  ExpectBack("the restarted holder");
  EXPECT_TRUE(cluster_.WaitUntilUp(3));
  cluster_.coordinator(1).Kill();
  ExpectBack("the killed follower");
  cluster_.RestartCoordinator(1);
  EXPECT_TRUE(cluster_.WaitUntilUp(3));
  ExpectBack("the restarted follower");
  EXPECT_FALSE(soak_->WaitForEnd(Duration::zero()).has_value()) << "the soak has missed some of it";
  ExpectCleanReport();
}

}  // namespace
}  // namespace tokura::integration
