// `tokura bench soak` against a cluster whose nodes and coordinators are killed and stopped.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/str_join.h"
#include "tests/integration/cluster_fixture.h"
#include "tests/integration/soak_under_test.h"

namespace tokura::integration {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kChains = 36;
// Hits over what survives are back within this after any fault,
constexpr Duration kRecovery = seconds(5);
// to this share of what they were.
constexpr double kRecovered = 0.9;
// As long as it takes to be suspected and a little more.
constexpr Duration kStopped = milliseconds(1200);

class SoakTest : public ClusterTest {
 protected:
  SoakTest() : client_(ConnectVia(cluster_.addresses(), 3)) {}

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
    EXPECT_TRUE(process.RunsFor(Lasting(kStopped)));
    ExpectBack(what, lost);
    process.Signal(SIGCONT);
    ExpectBack(what);
  }

  ClusterUnderTest cluster_{{.nodes = 3, .coordinators = 2}};
  const std::unique_ptr<Client> client_;
  std::map<uint64_t, std::string> holders_;  // of the chains, by seed
  SoakUnderTest soak_{{"--coordinator", absl::StrJoin(cluster_.addresses(), ","), "--threads", "3",
                       "--chains", "12"}};
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
  soak_.End();
}

}  // namespace
}  // namespace tokura::integration
