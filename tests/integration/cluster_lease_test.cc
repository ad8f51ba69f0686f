// An engine's scheduler acquires a prefix, its workers load it in processes of their own.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "absl/strings/str_join.h"
#include "tests/integration/cluster_fixture.h"
#include "tests/integration/sharded_chain.h"

namespace tokura::integration {
namespace {

constexpr char kLeases[] = "tokura_node_leases";

class LeaseTest : public ClusterTest {
 protected:
  // Both shards of the chain, over both nodes.
  void PutChain() {
    const auto client = ConnectVia(cluster_.addresses());
    const auto space = *client->OpenNamespace(ShardedSpace());
    KvMemory memory(kShardedBlocks);
    memory.Fill(kShardedChain);
    SequenceView view = memory.View();
    view.shards = 2;
    PutOptions options;
    options.deadline = Scaled(std::chrono::seconds(5));
    const TokenChain chain = MakeChain(*space, kShardedChain, kShardedBlocks);
    ASSERT_EQ(client->Put(space, chain, view, options).stored(), kShardedBlocks);
    ASSERT_TRUE(cluster_.WaitForBlocks(kShardedBlocks));
  }

  std::unique_ptr<ChildProcess> StartChild(const std::string& what,
                                           const std::vector<std::string>& more,
                                           const std::string& out_path = "") {
    std::vector<std::string> command = {TOKURA_CLUSTER_CHILD, what,
                                        absl::StrJoin(cluster_.addresses(), ","), match_path_};
    command.insert(command.end(), more.begin(), more.end());
    return std::make_unique<ChildProcess>(command, ChildProcess::Output{out_path, ""});
  }

  // How often a worker has had right data so far.
  static size_t Rounds(const std::string& out_path) {
    const std::string text = ReadText(out_path);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  ClusterUnderTest cluster_{{.nodes = 2, .coordinators = 2}};
  const std::string match_path_ = FreshPath(".match");
};

TEST_F(LeaseTest, WorkersLoadWhatTheSchedulerHoldsWhoeverOfThemDies) {
  PutChain();
  const auto scheduler = StartChild("schedule", {});
  ASSERT_TRUE(WaitFor([&] { return !ReadText(match_path_).empty(); }));
  const auto match = Match::Parse(ReadText(match_path_));
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_EQ(match->blocks(), kShardedBlocks);
  EXPECT_EQ(HoldersOf(*match).size(), 2u);
  ASSERT_TRUE(WaitFor([&] { return cluster_.NodesMetric(kLeases) == 2; })) << "one at each node";

  const std::string killed_out = FreshPath(".out"), other_out = FreshPath(".out");
  const auto killed = StartChild("work", {"0", "0"}, killed_out);
  const auto other = StartChild("work", {"1", "0"}, other_out);
  EXPECT_TRUE(WaitFor([&] { return Rounds(killed_out) > 2 && Rounds(other_out) > 2; }));
  killed->Signal(SIGKILL);
  EXPECT_TRUE(killed->WaitForEnd().has_value());
  const size_t rounds = Rounds(other_out);
  EXPECT_TRUE(WaitFor([&] { return Rounds(other_out) > rounds + 10; }))
      << "the other worker's data is missing or wrong";
  // A replacement loads the shard of the one that died.
  const auto replacement = StartChild("work", {"0", "3"}, FreshPath(".out"));
  const auto ended = replacement->WaitForEnd();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0) << "wrong or missing data";
  EXPECT_EQ(cluster_.NodesMetric(kLeases), 2) << "the lease is the scheduler's";

  scheduler->Signal(SIGKILL);
  EXPECT_TRUE(scheduler->WaitForEnd().has_value());
  EXPECT_TRUE(WaitFor([&] { return cluster_.NodesMetric(kLeases) == 0; }));
  other->Signal(SIGKILL);
  EXPECT_TRUE(WaitFor([&] {
    return cluster_.NodesMetric("tokura_tier_pinned_bytes{tier=\"host\"}") == 0;
  })) << "something is pinned for nobody";
}

}  // namespace
}  // namespace tokura::integration
