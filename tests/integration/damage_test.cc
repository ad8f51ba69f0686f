// Bits that flip in a node's memory, as seen by clients.

#include <gtest/gtest.h>

#include "tests/integration/cluster_fixture.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/process_memory.h"

namespace tokura::integration {
namespace {

constexpr uint32_t kBlocks = 8;
constexpr uint32_t kDamaged = 5;

// Flip a bit of a stored block: half a token's keys lie together in every order that a raw slab
// could have.
size_t FlipStored(NodeUnderTest& node, KvMemory& source, uint32_t block) {
  return ProcessMemory(node.process().pid())
      .Flip(source.KeyRow(2, block * kBlockTokens + 9).first(64));
}

TEST_F(NodeTest, FlippedBitInStoredMemoryIsAMissAndHeals) {
  NodeUnderTest node({}, NodeLogs::kErrors);
  auto client = Connect({node.data()});
  KvMemory source(kBlocks), target(kBlocks);
  source.Fill(1);
  target.Clear();
  ASSERT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
  const auto space = *client->OpenNamespace(TestSpace());
  const Match match = Held(*client, 1, kBlocks);
  ASSERT_GE(FlipStored(node, source, kDamaged), 1u) << "the stored bytes were not found";
  GetOptions options;
  options.deadline = Scaled(std::chrono::seconds(10));
  const GetResult result = client->Get(space, match, target.View(), options);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    if (i == kDamaged) {
      EXPECT_TRUE(absl::IsDataLoss(result.blocks[i]) || absl::IsNotFound(result.blocks[i]))
          << result.blocks[i];
    } else {
      EXPECT_TRUE(result.blocks[i].ok()) << result.blocks[i];
      EXPECT_TRUE(target.SameData(source, i, 1)) << "block " << i;
    }
  }
  EXPECT_TRUE(target.CanariesIntact());
  // The node finds out for itself, and nobody pays again: the block is a miss until it is put.
  EXPECT_TRUE(
      WaitFor([&] { return node.Metric("tokura_node_suspect_blocks_total{result=\"ok\"}") == 1; }));
  EXPECT_EQ(Get(*client, 1, target, kBlocks), kDamaged);
  ASSERT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
  target.Clear();
  EXPECT_EQ(Get(*client, 1, target, kBlocks), kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    EXPECT_TRUE(target.SameData(source, i, 1)) << "block " << i;
  }
  EXPECT_TRUE(WaitFor([&] {
    return node.Metric("tokura_evictions_total{reason=\"damaged\",tier=\"host\"}") == 1;
  }));
}

// The coordinator hears of it, so that lookups end before the block and a plan sends it again.
TEST_F(ClusterTest, FlippedBitInStoredMemoryHealsThroughTheCoordinator) {
  ClusterUnderTest cluster({.nodes = 1, .coordinators = 2});
  const auto writer = ConnectVia(cluster.addresses(), 1);
  const auto reader = ConnectVia({cluster.addresses()[1]}, 1);
  KvMemory source(kBlocks);
  source.Fill(1);
  ASSERT_EQ(Put(*writer, 1, source, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  ASSERT_GE(FlipStored(cluster.node(0), source, kDamaged), 1u);
  KvMemory target(kBlocks);
  EXPECT_EQ(Get(*reader, 1, target, kBlocks), kDamaged);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks - 1));
  EXPECT_EQ(Lookup(*writer, 1, kBlocks).blocks(), kDamaged);
  ASSERT_EQ(Put(*writer, 1, source, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  EXPECT_EQ(Fetch(*reader, 1, kBlocks), kBlocks);
}

}  // namespace
}  // namespace tokura::integration
