// What coordinators are told of the store and tell it: the change log, descriptions, the walk,
// orphans and touches by key, times to live.

#include <algorithm>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache-node/index.h"
#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StoreOptions Options(uint64_t host_bytes = 1 << 20) {
  StoreOptions options;
  options.host_bytes = host_bytes;
  options.change_log_max = 8;
  return options;
}

std::vector<BlockKey> ChangedAfter(const BlockStore& store, uint64_t position) {
  const auto changes = store.ChangesAfter(position, 100);
  EXPECT_TRUE(changes.ok()) << changes.status();
  return changes.ok() ? changes->keys : std::vector<BlockKey>();
}

absl::StatusOr<CommitResult> PutFor(BlockStore& store, const BlockPut& put, double ttl, double at) {
  ReserveRequest request = RequestFor(put, {0, 0});
  request.ttl = At(ttl).time_since_epoch();
  auto room = store.Reserve(request, At(at));
  if (!room.ok()) {
    return room.status();
  }
  return store.Commit(std::move(*room), InfoFor(put, {0, 0}), At(at));
}

// A chain of `count` blocks of 10,000 bytes from `first`, put at `at`.
void PutChain(BlockStore& store, uint64_t first, uint32_t count, double at) {
  for (uint32_t i = 0; i < count; ++i) {
    BlockPut put;
    put.key = first + i;
    put.parent = i == 0 ? -1 : static_cast<int64_t>(first + i - 1);
    put.position = i;
    ASSERT_TRUE(PutBlock(store, put, At(at)).ok());
  }
}

TEST(StoreChanges, NumbersWhatCanBeFoundAndNothingElse) {
  auto store = MakeStore(Options());
  EXPECT_EQ(store->change_position(), 0u);
  const BlockPut halves{.key = 1, .shards = 2};
  ASSERT_TRUE(PutPart(*store, halves, {0, 0}, At(0)).ok());
  EXPECT_EQ(store->change_position(), 0u) << "not visible yet";
  ASSERT_TRUE(PutPart(*store, halves, {0, 1}, At(0)).ok());
  EXPECT_THAT(ChangedAfter(*store, 0), ElementsAre(Key(1)));
  ASSERT_TRUE(PutPart(*store, halves, {0, 1}, At(0)).status().code() ==
              absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(PutBlock(*store, {.key = 1, .codec = "raw", .epsilon = 0}, At(0)).ok());
  EXPECT_FALSE(store->Remove(Space(), Key(9), At(0)));
  ASSERT_TRUE(store->Remove(Space(), Key(1), At(0)));
  EXPECT_THAT(ChangedAfter(*store, 1), ElementsAre(Key(1), Key(1), Key(1)))
      << "one more form, two less";
  EXPECT_THAT(ChangedAfter(*store, 4), IsEmpty());
}

TEST(StoreChanges, ReachesBackAsFarAsItsSize) {
  auto store = MakeStore(Options());
  PutChain(*store, 0, 10, 0);
  EXPECT_EQ(store->change_position(), 10u);
  EXPECT_EQ(store->ChangesAfter(1, 4).status().code(), absl::StatusCode::kOutOfRange);
  const auto changes = store->ChangesAfter(2, 4);
  ASSERT_TRUE(changes.ok());
  EXPECT_THAT(changes->keys, ElementsAre(Key(2), Key(3), Key(4), Key(5)));
  EXPECT_EQ(changes->last, 6u);
  EXPECT_EQ(store->ChangesAfter(11, 4).status().code(), absl::StatusCode::kOutOfRange)
      << "of another store";
}

TEST(StoreChanges, WithoutALogNothingIsKept) {
  StoreOptions options = Options();
  options.change_log_max = 0;
  auto store = MakeStore(options);
  PutChain(*store, 0, 3, 0);
  EXPECT_EQ(store->change_position(), 0u);
}

TEST(StoreDescribe, SaysWhatIsHeldOfEachKey) {
  auto store = MakeStore(Options());
  ASSERT_TRUE(PutBlock(*store, {.key = 2, .parent = 1, .position = 1}, At(0)).ok());
  ASSERT_TRUE(PutBlock(*store, {.key = 2, .parent = 1, .codec = "raw", .epsilon = 0}, At(0)).ok());
  ASSERT_TRUE(PutBlock(*store, {.key = 3, .space = 4}, At(0)).ok());
  const std::vector<BlockKey> keys = {Key(3), Key(1), Key(2)};
  const Inventory inventory = store->Describe(keys, At(0));
  ASSERT_EQ(inventory.records.size(), 3u);
  EXPECT_EQ(inventory.records[0].key, Key(3));
  EXPECT_EQ(inventory.records[0].forms, 1u);
  EXPECT_TRUE(inventory.records[0].parent.empty());
  EXPECT_EQ(inventory.records[1].forms, 0u) << "a parent that is only named";
  EXPECT_EQ(inventory.records[2].forms, 2u);
  EXPECT_EQ(inventory.records[2].parent, Key(1));
  std::set<std::string> codecs;
  for (uint32_t i = 0; i < 2; ++i) {
    const FormInfo& form = inventory.forms[inventory.records[2].first_form + i];
    codecs.insert(std::string(store->CodecText(form.codec)));
  }
  EXPECT_THAT(codecs, ElementsAre("kivi4", "raw"));
}

TEST(StoreDescribe, AKeyOfSeveralNamespacesIsOne) {
  auto store = MakeStore(Options());
  for (uint64_t space = 0; space < 3; ++space) {
    ASSERT_TRUE(PutBlock(*store, {.key = 1, .space = space}, At(0)).ok());
  }
  const std::vector<BlockKey> key = {Key(1)};
  EXPECT_EQ(store->Describe(key, At(0)).records[0].forms, 3u);
  EXPECT_THAT(store->ListHeld(0, 100).keys, ElementsAre(Key(1)));
  // The first one of the key's list goes, then the last.
  ASSERT_TRUE(store->Remove(Space(0), Key(1), At(0)));
  EXPECT_EQ(store->Describe(key, At(0)).records[0].forms, 2u);
  ASSERT_TRUE(store->Remove(Space(2), Key(1), At(0)));
  EXPECT_EQ(store->Describe(key, At(0)).records[0].forms, 1u);
  EXPECT_TRUE(Has(*store, 1, 1));
  EXPECT_TRUE(store->CheckInvariants().ok()) << store->CheckInvariants();
  ASSERT_TRUE(store->Remove(Space(1), Key(1), At(0)));
  EXPECT_EQ(store->Describe(key, At(0)).records[0].forms, 0u);
}

TEST(StoreDescribe, NamespacesOfOneKeyAreBounded) {
  auto store = MakeStore(Options());
  for (uint64_t space = 0; space < BlockIndex::kNamesakesMax; ++space) {
    ASSERT_TRUE(PutBlock(*store, {.key = 1, .bytes = 100, .space = space}, At(0)).ok()) << space;
  }
  EXPECT_EQ(PutBlock(*store, {.key = 1, .bytes = 100, .space = 99}, At(0)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->CheckInvariants().ok());
  ASSERT_TRUE(store->Remove(Space(3), Key(1), At(0)));
  EXPECT_TRUE(PutBlock(*store, {.key = 1, .bytes = 100, .space = 99}, At(0)).ok());
}

TEST(StoreDescribe, CutsToTheBestForms) {
  auto store = MakeStore(Options());
  for (uint32_t mask = 1; mask <= 60; ++mask) {
    // A later form with more groups; every one has its own error.
    BlockPut put{.key = 1, .content = mask, .group_mask = mask, .bytes = 100};
    put.epsilon = 0.5 - 0.001 * mask;
    const auto result = PutBlock(*store, put, At(0));
    ASSERT_TRUE(result.ok() || result.status().code() == absl::StatusCode::kAlreadyExists);
  }
  const std::vector<BlockKey> key = {Key(1)};
  ASSERT_GT(store->Forms(Space(), Key(1)).size(), kInventoryFormsMax);
  const Inventory inventory = store->Describe(key, At(0));
  EXPECT_EQ(inventory.records[0].forms, kInventoryFormsMax);
  ASSERT_EQ(inventory.forms.size(), kInventoryFormsMax);
  EXPECT_EQ(inventory.forms[0], store->Forms(Space(), Key(1))[0]);
}

TEST(StoreListHeld, MeetsWhatStaysWhateverElseChanges) {
  auto store = MakeStore(Options(4 << 20));
  PutChain(*store, 0, 40, 0);
  std::set<BlockKey> met;
  HeldKeys piece;
  for (uint64_t i = 0; !piece.end; ++i) {
    piece = store->ListHeld(piece.cursor, 7);
    EXPECT_LE(piece.keys.size(), 7u);
    met.insert(piece.keys.begin(), piece.keys.end());
    // Some that were met and some that were not go; new ones take their places.
    ASSERT_TRUE(store->Remove(Space(), Key(39 - i), At(0)));
    ASSERT_TRUE(store->Remove(Space(), Key(i), At(0)));
    PutChain(*store, 100 + 2 * i, 2, 0);
  }
  for (uint64_t key = 10; key < 30; ++key) {
    EXPECT_EQ(met.count(Key(key)), 1u) << key;
  }
}

TEST(StoreOrphans, GoFirstWithWhatBuildsOnThem) {
  // Room for 10 blocks below the watermark.
  auto store = MakeStore(Options(110'000));
  PutChain(*store, 0, 3, 1);
  PutChain(*store, 10, 3, 2);
  PutChain(*store, 20, 3, 3);
  const std::vector<BlockKey> marked = {Key(21), Key(77), Key(21)};
  EXPECT_EQ(store->MarkOrphans(marked), 1u);
  EXPECT_EQ(store->MarkOrphans(marked), 0u) << "again";
  store->Maintain(At(3));
  PutChain(*store, 30, 3, 4);
  EXPECT_FALSE(Has(*store, 22)) << "a descendant, first";
  EXPECT_FALSE(Has(*store, 21));
  EXPECT_TRUE(Has(*store, 20)) << "its prefix is there";
  EXPECT_TRUE(Has(*store, 2)) << "colder, but of use";
  EXPECT_EQ(store->counters().evicted_forms[static_cast<size_t>(EvictReason::kOrphan)], 2u);
  EXPECT_TRUE(store->CheckInvariants().ok()) << store->CheckInvariants();
}

TEST(StoreOrphans, ATouchTakesThemBack) {
  auto store = MakeStore(Options(110'000));
  PutChain(*store, 0, 3, 1);
  PutChain(*store, 10, 3, 2);
  PutChain(*store, 20, 3, 3);
  const std::vector<BlockKey> marked = {Key(20)};
  EXPECT_EQ(store->MarkOrphans(marked), 1u);
  store->Maintain(At(3));
  store->TouchKeys(marked, At(4));
  store->Maintain(At(4));
  PutChain(*store, 30, 2, 5);
  EXPECT_TRUE(Has(*store, 22)) << "what builds on it is of use again";
  EXPECT_FALSE(Has(*store, 2)) << "the coldest";
  EXPECT_EQ(store->counters().evicted_forms[static_cast<size_t>(EvictReason::kOrphan)], 0u);
}

TEST(StoreOrphans, APutTakesThemBack) {
  auto store = MakeStore(Options(110'000));
  PutChain(*store, 0, 3, 1);
  PutChain(*store, 10, 3, 2);
  const std::vector<BlockKey> marked = {Key(12)};
  EXPECT_EQ(store->MarkOrphans(marked), 1u);
  ASSERT_TRUE(
      PutBlock(*store, {.key = 12, .parent = 11, .position = 2, .codec = "raw"}, At(3)).ok());
  PutChain(*store, 20, 5, 4);
  EXPECT_TRUE(Has(*store, 12));
  EXPECT_EQ(store->counters().evicted_forms[static_cast<size_t>(EvictReason::kOrphan)], 0u);
  EXPECT_GT(store->counters().evicted_forms[static_cast<size_t>(EvictReason::kAllocation)], 1u)
      << "too little pressure to tell";
}

TEST(StoreOrphans, TouchesByKeyKeepABlockWarm) {
  auto store = MakeStore(Options(110'000));
  for (uint64_t key = 0; key < 9; ++key) {
    ASSERT_TRUE(PutBlock(*store, {.key = key}, At(static_cast<double>(key))).ok());
  }
  const std::vector<BlockKey> touched = {Key(0), Key(55)};
  store->TouchKeys(touched, At(20));
  PutChain(*store, 30, 2, 21);
  EXPECT_TRUE(Has(*store, 0));
  EXPECT_FALSE(Has(*store, 1));
}

TEST(StoreTimeToLive, MissingAtOnceAndDroppedByMaintain) {
  auto store = MakeStore(Options());
  ASSERT_TRUE(PutFor(*store, {.key = 1}, 10, 5).ok());
  ASSERT_TRUE(PutFor(*store, {.key = 2}, 0, 5).ok());
  const std::vector<BlockKey> keys = {Key(1)};
  const AcceptRule any;
  EXPECT_EQ(store->Find(Space(), keys, any, Touch::kNo, At(14.9)).size(), 1u);
  EXPECT_EQ(store->Find(Space(), keys, any, Touch::kNo, At(15)).size(), 0u);
  EXPECT_EQ(PinKeys(*store, keys, At(15)).size(), 0u);
  EXPECT_THAT(store->Forms(Space(), Key(1), At(15)), IsEmpty());
  EXPECT_EQ(store->Describe(keys, At(15)).records[0].forms, 0u);
  EXPECT_EQ(store->change_position(), 2u);
  const uint64_t used = store->stats().used_bytes;
  store->Maintain(At(14.9));
  EXPECT_EQ(store->stats().used_bytes, used);
  store->Maintain(At(15));
  EXPECT_LT(store->stats().used_bytes, used);
  EXPECT_THAT(ChangedAfter(*store, 2), ElementsAre(Key(1)));
  EXPECT_EQ(store->counters().evicted_forms[static_cast<size_t>(EvictReason::kExpired)], 1u);
  EXPECT_TRUE(Has(*store, 2));
  EXPECT_TRUE(store->CheckInvariants().ok());
}

TEST(StoreTimeToLive, ReadersKeepWhatTheyPin) {
  auto store = MakeStore(Options());
  BlockPut put{.key = 1};
  ReserveRequest request = RequestFor(put, {0, 0});
  request.ttl = std::chrono::seconds(1);
  auto room = store->Reserve(request, At(0));
  ASSERT_TRUE(room.ok());
  std::fill(room->bytes().begin(), room->bytes().end(), FillOf(1, 1, {0, 0}));
  ASSERT_TRUE(store->Commit(std::move(*room), InfoFor(put, {0, 0}), At(0)).ok());
  std::vector<FormPin> pins = PinKeys(*store, {Key(1)}, At(0));
  ASSERT_EQ(pins.size(), 1u);
  store->Maintain(At(2));
  EXPECT_FALSE(Has(*store, 1));
  EXPECT_TRUE(BytesAreRight(pins[0], 1, 1));
  EXPECT_GT(store->stats().used_bytes, 0u);
  pins.clear();
  EXPECT_EQ(store->stats().used_bytes, 0u);
}

TEST(StoreTimeToLive, APutOfWhatExpiredIsAPut) {
  auto store = MakeStore(Options());
  ASSERT_TRUE(PutFor(*store, {.key = 1, .content = 1}, 1, 0).ok());
  EXPECT_EQ(PutFor(*store, {.key = 1, .content = 2}, 1, 0.5).status().code(),
            absl::StatusCode::kAlreadyExists);
  const auto again = PutFor(*store, {.key = 1, .content = 2}, 5, 1);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, CommitResult::kVisible);
  store->Maintain(At(1));
  ASSERT_EQ(store->Forms(Space(), Key(1), At(1)).size(), 1u);
  EXPECT_EQ(store->Forms(Space(), Key(1), At(1))[0].content_id, Content(2));
  store->Maintain(At(6));
  EXPECT_FALSE(Has(*store, 1));
}

TEST(StoreTimeToLive, OfSeveralWritersTheShortestHolds) {
  auto store = MakeStore(Options());
  const BlockPut put{.key = 1, .shards = 2};
  const double ttls[] = {50, 5};
  for (uint8_t shard = 0; shard < 2; ++shard) {
    ReserveRequest request = RequestFor(put, {0, shard});
    request.ttl = At(ttls[shard]).time_since_epoch();
    auto room = store->Reserve(request, At(0));
    ASSERT_TRUE(room.ok());
    ASSERT_TRUE(store->Commit(std::move(*room), InfoFor(put, {0, shard}), At(0)).ok());
  }
  EXPECT_EQ(store->Forms(Space(), Key(1), At(4.9)).size(), 1u);
  EXPECT_EQ(store->Forms(Space(), Key(1), At(5)).size(), 0u);
}

TEST(StoreTimeToLive, ExpiredBlocksMakeRoomFirst) {
  auto store = MakeStore(Options(110'000));
  PutChain(*store, 0, 8, 0);
  ASSERT_TRUE(PutFor(*store, {.key = 20}, 1, 5).ok());
  ASSERT_TRUE(PutFor(*store, {.key = 21}, 1, 5).ok());
  PutChain(*store, 30, 2, 7);
  EXPECT_TRUE(Has(*store, 7)) << "colder, but of use";
  EXPECT_FALSE(Has(*store, 20) && Has(*store, 21));
}

}  // namespace
}  // namespace tokura::node
