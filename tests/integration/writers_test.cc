// Several processes that write the same blocks.

#include "tests/integration/writers.h"

#include <string>

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/node_fixture.h"

namespace tokura::integration {
namespace {

using std::chrono::seconds;

// Leading blocks of a chain that are held and got whole.
size_t GetBoth(Client& client, const NamespaceRef& space, uint64_t chain, KvMemory& memory) {
  LookupOptions lookup;
  lookup.deadline = Scaled(seconds(5));
  const auto match = client.Lookup(space, MakeChain(*space, chain, kRivalBlocks), lookup);
  if (!match.ok() || match->blocks() == 0) {
    return 0;
  }
  SequenceView view = memory.View();
  view.shards = 2;
  GetOptions get;
  get.deadline = Scaled(seconds(5));
  return client.Get(space, *match, view, get).prefix_ok();
}

TEST_F(NodeTest, GetNeverMixesTwoWritersOfOneKey) {
  NodeUnderTest node;
  auto client = Connect({node.data()});
  ChildProcess rival({TOKURA_CLIENT_CHILD, node.data(), "rival"});
  const auto space = *client->OpenNamespace(ShardedSpace());
  KvMemory source(kRivalBlocks), target(kRivalBlocks), ours(kRivalBlocks), theirs(kRivalBlocks);
  size_t from_us = 0, from_rival = 0;
  uint64_t round = 0;
  const auto both_seen_often = [&] {
    const uint64_t chain = ++round % kRivalChains;
    const TokenChain keys = MakeChain(*space, chain, kRivalBlocks);
    client->Remove(space, {keys.keys().begin(), keys.keys().end()});
    PutAsWriter(*client, space, Writer::kTest, chain, source);
    const size_t got = GetBoth(*client, space, chain, target);
    FillAsWriter(Writer::kTest, chain, ours);
    FillAsWriter(Writer::kRival, chain, theirs);
    for (uint32_t i = 0; i < got; ++i) {
      const bool is_ours = target.SameData(ours, i, 1);
      const bool is_theirs = target.SameData(theirs, i, 1);
      EXPECT_TRUE(is_ours || is_theirs) << "chain " << chain << " block " << i << " is a mixture";
      from_us += is_ours ? 1 : 0;
      from_rival += is_theirs ? 1 : 0;
    }
    return ::testing::Test::HasFailure() || (from_us > 100 && from_rival > 100 && round > 100);
  };
  EXPECT_TRUE(WaitFor(both_seen_often)) << from_us << " of ours, " << from_rival << " of theirs";
}

TEST_F(NodeTest, HalfWrittenBlockIsNeverVisibleAndItsSpaceReturns) {
  NodeUnderTest node({"--incomplete-age", "3s"});
  auto client = Connect({node.data()});
  const auto space = *client->OpenNamespace(ShardedSpace());
  KvMemory memory(kRivalBlocks), target(kRivalBlocks);
  ChildProcess other({TOKURA_CLIENT_CHILD, node.data(), "shard"});
  ASSERT_TRUE(WaitFor(
      [&] { return node.Metric("tokura_node_put_parts_total{result=\"stored\"}") >= 100; }));
  // Both are alive: what they have both written is there.
  PutShard(*client, space, 0, 1, memory);
  EXPECT_EQ(GetBoth(*client, space, 1, target), kRivalBlocks);
  EXPECT_TRUE(target.SameData(memory, 0, kRivalBlocks));
  other.Signal(SIGKILL);
  ASSERT_TRUE(other.WaitForEnd().has_value());
  // The other half of these never comes.
  constexpr uint64_t kNeverWhole = 1'000'000;
  const auto visible = [&] {
    size_t blocks = 0;
    for (uint64_t seed = kNeverWhole; seed < kNeverWhole + 4; ++seed) {
      blocks += GetBoth(*client, space, seed, target);
    }
    return blocks;
  };
  for (uint64_t seed = kNeverWhole; seed < kNeverWhole + 4; ++seed) {
    PutShard(*client, space, 0, seed, memory);
  }
  // Gauges are sampled a few times a second.
  EXPECT_TRUE(WaitFor([&] {
    return node.Metric("tokura_tier_incomplete_blocks{tier=\"host\"}") >= 4 * kRivalBlocks;
  }));
  EXPECT_TRUE(WaitFor([&] {
    EXPECT_EQ(visible(), 0u);
    return node.Metric("tokura_tier_incomplete_blocks{tier=\"host\"}") == 0;
  }));
  EXPECT_EQ(visible(), 0u);
  EXPECT_EQ(node.Metric("tokura_tier_reserved_bytes{tier=\"host\"}"), 0);
  // What is in use belongs to the blocks that are whole.
  const double blocks = node.Metric("tokura_tier_blocks{tier=\"host\"}");
  EXPECT_LT(node.Metric("tokura_tier_used_bytes{tier=\"host\"}"),
            blocks * 2.0 * static_cast<double>(memory.block_bytes()) + 1e6);
}

}  // namespace
}  // namespace tokura::integration
