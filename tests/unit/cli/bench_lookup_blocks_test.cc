#include "cli/bench_lookup_blocks.h"

#include <set>

#include <gtest/gtest.h>

namespace tokura::cli {
namespace {

proto::NodeRef Holder() {
  proto::NodeRef node;
  node.set_node("n");
  node.set_incarnation(7);
  return node;
}

// An answer that finds `blocks` blocks at the holder, in two runs.
proto::LocateReply Found(uint32_t blocks) {
  proto::LocateReply reply;
  reply.set_prefix_blocks(blocks);
  *reply.add_nodes() = Holder();
  reply.add_classes()->set_codec(kMadeCodec);
  for (const uint32_t first : {0u, blocks / 2}) {
    proto::Run* run = reply.add_runs();
    run->set_first(first);
    run->set_count(first == 0 ? blocks / 2 : blocks - blocks / 2);
    run->set_stored_bytes(run->count() * kMadeStoredBytes);
  }
  return reply;
}

std::string KeyBytes(const BlockKey& key) {
  return std::string(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
}

TEST(MadeBlocksTest, KeysDiffer) {
  std::set<BlockKey> keys;
  for (const BlockKey& key : MadeKeys(0, 10'000)) {
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 10'000u);
  EXPECT_EQ(MadeKeys(500, 2)[1], MadeKey(501));
}

TEST(MadeBlocksTest, RightAnswerPasses) {
  EXPECT_TRUE(CheckLocated(Found(10), 10, Holder()).ok());
  EXPECT_TRUE(CheckLocated(proto::LocateReply(), 0, Holder()).ok());
}

TEST(MadeBlocksTest, EveryWrongAnswerIsDataLoss) {
  const auto expect_wrong = [](const char* what, const auto& damage) {
    proto::LocateReply reply = Found(10);
    damage(reply);
    EXPECT_TRUE(absl::IsDataLoss(CheckLocated(reply, 10, Holder()))) << what;
  };
  expect_wrong("shorter prefix", [](auto& r) { r.set_prefix_blocks(9); });
  expect_wrong("lost run", [](auto& r) { r.mutable_runs()->RemoveLast(); });
  expect_wrong("gap", [](auto& r) { r.mutable_runs(1)->set_first(6); });
  expect_wrong("overlap", [](auto& r) { r.mutable_runs(1)->set_first(4); });
  expect_wrong("too long", [](auto& r) { r.mutable_runs(1)->set_count(6); });
  expect_wrong("empty run", [](auto& r) { r.add_runs()->set_first(10); });
  expect_wrong("bytes", [](auto& r) { r.mutable_runs(0)->set_stored_bytes(1); });
  expect_wrong("node", [](auto& r) { r.mutable_nodes(0)->set_node("other"); });
  expect_wrong("life", [](auto& r) { r.mutable_nodes(0)->set_incarnation(6); });
  expect_wrong("node index", [](auto& r) { r.mutable_runs(0)->set_node(1); });
  expect_wrong("class index", [](auto& r) { r.mutable_runs(0)->set_form_class(1); });
  expect_wrong("codec", [](auto& r) { r.mutable_classes(0)->set_codec("raw"); });
}

TEST(MadeInventoryTest, DeltasFollowEachOtherAndNameRealParents) {
  MadeInventory inventory(Holder());
  const proto::InventoryBatch first = inventory.Added(1000, 100);
  EXPECT_EQ(first.node(), "n");
  EXPECT_EQ(first.incarnation(), 7u);
  EXPECT_EQ(first.first_seq(), 0u);
  EXPECT_EQ(first.last_seq(), 100u);
  EXPECT_EQ(first.snapshot(), 0u);
  ASSERT_EQ(first.keys().size(), 100 * BlockKey::kBytes);
  ASSERT_EQ(first.parents().size(), 100 * BlockKey::kBytes);
  EXPECT_EQ(first.keys().substr(0, BlockKey::kBytes), KeyBytes(MadeKey(1000)));
  const auto parent = [&](size_t block) {
    return first.parents().substr((block - 1000) * BlockKey::kBytes, BlockKey::kBytes);
  };
  EXPECT_EQ(parent(1000), KeyBytes(MadeKey(999)));
  EXPECT_EQ(parent(1023), KeyBytes(MadeKey(1022)));
  EXPECT_EQ(parent(1024), KeyBytes(BlockKey{})) << "a chain begins";
  EXPECT_EQ(first.forms_size(), 100);
  EXPECT_EQ(first.error_max_size(), 100);
  const proto::InventoryBatch second = inventory.Removed(3);
  EXPECT_EQ(second.first_seq(), 100u);
  EXPECT_EQ(second.last_seq(), 101u);
  EXPECT_EQ(second.removed(), KeyBytes(MadeKey(3)));
}

TEST(MadeInventoryTest, SnapshotIsCutIntoChunksOfWhichTheLastSaysSo) {
  MadeInventory inventory(Holder());
  const auto empty = inventory.Snapshot(0, 0);
  ASSERT_EQ(empty.size(), 1u);
  EXPECT_TRUE(empty[0].last_chunk());
  EXPECT_EQ(empty[0].keys(), "");
  inventory.Added(0, 5);
  const auto chunks = inventory.Snapshot(100, 2 * MadeInventory::kBatchBlocks + 1);
  ASSERT_EQ(chunks.size(), 3u);
  size_t keys = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].snapshot(), 2u);
    EXPECT_EQ(chunks[i].chunk(), i);
    EXPECT_EQ(chunks[i].first_seq(), 5u);
    EXPECT_EQ(chunks[i].last_seq(), 5u);
    EXPECT_EQ(chunks[i].last_chunk(), i == 2);
    keys += chunks[i].keys().size() / BlockKey::kBytes;
  }
  EXPECT_EQ(keys, 2 * MadeInventory::kBatchBlocks + 1);
  EXPECT_EQ(chunks[2].keys(), KeyBytes(MadeKey(100 + 2 * MadeInventory::kBatchBlocks)));
}

}  // namespace
}  // namespace tokura::cli
