// Bits that flip in a node's memory, as seen by clients.

#include <gtest/gtest.h>

#include "tests/integration/node_fixture.h"
#include "tests/integration/process_memory.h"

namespace tokura::integration {
namespace {

TEST_F(NodeTest, FlippedBitInStoredMemoryIsAMiss) {
  constexpr uint32_t kBlocks = 8;
  constexpr uint32_t kDamaged = 5;
  NodeUnderTest node({}, NodeLogs::kErrors);
  auto client = Connect({node.data()});
  KvMemory source(kBlocks), target(kBlocks);
  source.Fill(1);
  target.Clear();
  ASSERT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
  const auto space = *client->OpenNamespace(TestSpace());
  const Match match = Held(*client, 1, kBlocks);
  const ProcessMemory memory(node.process().pid());
  // Half a token's keys: together in every order that a raw slab could have.
  const auto row = source.KeyRow(2, kDamaged * kBlockTokens + 9).first(64);
  ASSERT_GE(memory.Flip(row), 1u) << "the stored bytes were not found";
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
}

}  // namespace
}  // namespace tokura::integration
