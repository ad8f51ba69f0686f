#include "cache-node/inventory_feed.h"

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/node/inventory_model.h"
#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

constexpr uint64_t kLife = 5;

StoreOptions Options(uint64_t change_log_max, uint64_t host_bytes = 1 << 20) {
  StoreOptions options;
  options.host_bytes = host_bytes;
  options.change_log_max = change_log_max;
  return options;
}

std::vector<BlockKey> Keys(uint64_t count) {
  std::vector<BlockKey> keys;
  for (uint64_t i = 0; i < count; ++i) {
    keys.push_back(Key(i));
  }
  return keys;
}

// Deliver batches until there is none; returns how many.
int Deliver(InventoryFeed& feed, InventoryModel& model, TimePoint now) {
  int batches = 0;
  while (const auto batch = feed.Next(kLife, now)) {
    const bool again = model.Apply(*batch).send_snapshot();
    feed.Delivered();
    if (again) {
      feed.Restart();
    }
    EXPECT_LT(++batches, 1000) << "the feed does not end";
  }
  return batches;
}

TEST(InventoryFeed, BeginsWithASnapshotAlsoWhenNothingIsHeld) {
  auto store = MakeStore(Options(16));
  InventoryFeed feed(*store, "node-a", {}, {});
  const auto batch = feed.Next(kLife, At(0));
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->node(), "node-a");
  EXPECT_EQ(batch->incarnation(), kLife);
  EXPECT_EQ(batch->snapshot(), 1u);
  EXPECT_TRUE(batch->last_chunk());
  EXPECT_EQ(batch->keys(), "");
  EXPECT_FALSE(feed.Next(kLife, At(0)).has_value()) << "one batch outstanding";
  feed.Delivered();
  EXPECT_FALSE(feed.Next(kLife, At(0)).has_value()) << "everything is known";
}

TEST(InventoryFeed, ChangesFollowTheCutOfTheSnapshot) {
  auto store = MakeStore(Options(16));
  InventoryFeed feed(*store, "node-a", {}, {});
  InventoryModel model;
  ASSERT_TRUE(PutBlock(*store, {.key = 1}, At(0)).ok());
  const auto snapshot = feed.Next(kLife, At(0));
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->first_seq(), 1u);
  // Changes while the snapshot is under way: one key goes, one comes.
  ASSERT_TRUE(store->Remove(Space(), Key(1), At(0)));
  ASSERT_TRUE(PutBlock(*store, {.key = 2, .parent = 1, .position = 1}, At(0)).ok());
  EXPECT_EQ(feed.lag(), 3u);
  model.Apply(*snapshot);
  feed.Delivered();
  EXPECT_EQ(model.content.count(Key(1)), 1u);
  const auto changes = feed.Next(kLife, At(0));
  ASSERT_TRUE(changes.has_value());
  EXPECT_EQ(changes->snapshot(), 0u);
  EXPECT_EQ(changes->first_seq(), 1u);
  EXPECT_EQ(changes->last_seq(), 3u);
  model.Apply(*changes);
  feed.Delivered();
  EXPECT_EQ(feed.lag(), 0u);
  EXPECT_EQ(model.content, InventoryModel::Of(*store, Keys(4), At(0)));
  EXPECT_EQ(model.content.at(Key(2)).parent, Key(1));
}

TEST(InventoryFeed, ASnapshotComesInChunks) {
  auto store = MakeStore(Options(64, 4 << 20));
  for (uint64_t key = 0; key < 25; ++key) {
    ASSERT_TRUE(PutBlock(*store, {.key = key}, At(0)).ok());
  }
  InventoryFeed feed(*store, "node-a", {}, {.keys = 10});
  InventoryModel model;
  EXPECT_EQ(Deliver(feed, model, At(0)), 3);
  EXPECT_EQ(model.snapshots, 1);
  EXPECT_EQ(model.content, InventoryModel::Of(*store, Keys(25), At(0)));
  EXPECT_EQ(model.content.size(), 25u);
}

TEST(InventoryFeed, BatchesEndWhereTheirBytesDo) {
  auto store = MakeStore(Options(64, 4 << 20));
  InventoryFeed feed(*store, "node-a", {}, {.bytes = 4096});
  InventoryModel model;
  Deliver(feed, model, At(0));
  for (uint64_t key = 0; key < 60; ++key) {
    ASSERT_TRUE(PutBlock(*store, {.key = key}, At(0)).ok());
  }
  EXPECT_EQ(Deliver(feed, model, At(0)), 2) << "of at most some 45 keys";
  EXPECT_EQ(model.gaps, 0);
  EXPECT_EQ(model.content, InventoryModel::Of(*store, Keys(60), At(0)));
  feed.Restart();
  EXPECT_EQ(Deliver(feed, model, At(0)), 2) << "the walk is cut as well";
  EXPECT_EQ(model.content, InventoryModel::Of(*store, Keys(60), At(0)));
}

TEST(InventoryFeed, ALogThatIsTooShortIsASnapshot) {
  auto store = MakeStore(Options(4));
  InventoryFeed feed(*store, "node-a", {}, {});
  InventoryModel model;
  Deliver(feed, model, At(0));
  for (uint64_t key = 0; key < 5; ++key) {
    ASSERT_TRUE(PutBlock(*store, {.key = key}, At(0)).ok());
  }
  EXPECT_EQ(feed.lag(), 5u);
  Deliver(feed, model, At(0));
  EXPECT_EQ(model.snapshots, 2);
  EXPECT_EQ(model.gaps, 0) << "the node notices by itself";
  EXPECT_EQ(model.content, InventoryModel::Of(*store, Keys(5), At(0)));
}

TEST(InventoryFeed, WhatMayBeLostIsToldAgain) {
  auto store = MakeStore(Options(16));
  InventoryFeed feed(*store, "node-a", {}, {});
  InventoryModel model;
  Deliver(feed, model, At(0));
  ASSERT_TRUE(PutBlock(*store, {.key = 1}, At(0)).ok());
  const auto lost = feed.Next(kLife, At(0));
  ASSERT_TRUE(lost.has_value());
  feed.Lost();
  const auto again = feed.Next(kLife, At(0));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->SerializeAsString(), lost->SerializeAsString());
  feed.Lost();
  // It had arrived after all: the coordinator has a gap and says so.
  model.Apply(*lost);
  Deliver(feed, model, At(0));
  EXPECT_EQ(model.gaps, 1);
  EXPECT_EQ(model.snapshots, 2);
  EXPECT_EQ(model.content, InventoryModel::Of(*store, Keys(4), At(0)));
}

TEST(InventoryFeed, ALostChunkBeginsTheSnapshotAnew) {
  auto store = MakeStore(Options(64, 4 << 20));
  for (uint64_t key = 0; key < 25; ++key) {
    ASSERT_TRUE(PutBlock(*store, {.key = key}, At(0)).ok());
  }
  InventoryFeed feed(*store, "node-a", {}, {.keys = 10});
  ASSERT_EQ(feed.Next(kLife, At(0))->chunk(), 0u);
  feed.Lost();
  const auto again = feed.Next(kLife, At(0));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->snapshot(), 2u);
  EXPECT_EQ(again->chunk(), 0u);
}

TEST(InventoryFeed, ARestartDuringABatchWaitsForItsEnd) {
  auto store = MakeStore(Options(16));
  InventoryFeed feed(*store, "node-a", {}, {});
  ASSERT_TRUE(feed.Next(kLife, At(0)).has_value());
  feed.Restart();
  EXPECT_FALSE(feed.Next(kLife, At(0)).has_value()) << "one batch outstanding";
  feed.Delivered();
  const auto batch = feed.Next(kLife, At(0));
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->snapshot(), 2u);
  EXPECT_EQ(batch->chunk(), 0u);
}

TEST(InventoryFeed, ThePlantedBugLeavesAChangeOut) {
  PlantedBugs bugs;
  bugs.skip_delta = true;
  auto store = MakeStore(Options(64));
  InventoryFeed feed(*store, "node-a", bugs, {});
  InventoryModel model;
  Deliver(feed, model, At(0));
  for (uint64_t key = 0; key < 20; ++key) {
    ASSERT_TRUE(PutBlock(*store, {.key = key}, At(0)).ok());
  }
  Deliver(feed, model, At(0));
  EXPECT_EQ(model.gaps, 0);
  EXPECT_EQ(model.content.size(), 18u);
}

// One store, one feed and one coordinator, where anything happens between any two steps.
class Interleaving {
 public:
  explicit Interleaving(uint64_t seed) : random_(seed) {
    StoreOptions options = Options(random_() % 3 == 0 ? 4 : 48, 110'000);
    store_ = MakeStore(options);
    feed_ = std::make_unique<InventoryFeed>(*store_, "node-a", PlantedBugs{},
                                            InventoryFeed::Limits{.keys = 1 + random_() % 6});
  }
  void Step() {
    now_ += 0.01;
    const uint64_t what = random_() % 100;
    if (what < 40) {
      Put();
    } else if (what < 50) {
      store_->Remove(Space(), Key(random_() % kKeys), At(now_));
    } else if (what < 55) {
      store_->Maintain(At(now_));
    } else if (what < 75) {
      Send();
    } else if (what < 92) {
      Arrive();
    } else if (what < 97) {
      Break();
    } else if (what < 98) {
      model_ = InventoryModel();  // The coordinator starts again.
    } else {
      feed_->Restart();
    }
  }
  // The last word: what the coordinator believes is what the store holds.
  void Settle() {
    Break();
    now_ += 1;
    store_->Maintain(At(now_));
    for (int batches = 0; batches < 10'000; ++batches) {
      Send();
      if (!sent_.has_value()) {
        break;
      }
      Arrive();
    }
    // One that knew nothing of the node and heard of no change would ask by the next report.
    if (!model_.complete) {
      feed_->Restart();
      Send();
      while (sent_.has_value()) {
        Arrive();
        Send();
      }
    }
    ASSERT_TRUE(model_.complete);
    ASSERT_EQ(model_.content, InventoryModel::Of(*store_, Keys(kKeys), At(now_)));
    ASSERT_EQ(feed_->lag(), 0u);
  }
  uint64_t snapshots() const { return feed_->snapshots_started(); }
  const BlockStore& store() const { return *store_; }

 private:
  static constexpr uint64_t kKeys = 24;

  void Put() {
    BlockPut put;
    put.key = random_() % kKeys;
    put.parent = put.key == 0 ? -1 : static_cast<int64_t>(put.key / 2);
    for (uint64_t k = put.key; k != 0; k /= 2) {
      ++put.position;
    }
    put.codec = random_() % 2 == 0 ? "kivi4" : "raw";
    put.bytes = 5'000 + random_() % 9'000;
    put.space = random_() % 12 == 0 ? 1 : 0;  // Two namespaces with a block of one key.
    ReserveRequest request = RequestFor(put, {0, 0});
    request.ttl = random_() % 4 == 0 ? std::chrono::milliseconds(100) : Duration{};
    auto room = store_->Reserve(request, At(now_));
    if (room.ok()) {
      ASSERT_TRUE(store_->Commit(std::move(*room), InfoFor(put, {0, 0}), At(now_)).ok());
    }
  }
  void Send() {
    if (!sent_.has_value()) {
      sent_ = feed_->Next(kLife, At(now_));
    }
  }
  void Arrive() {
    if (sent_.has_value()) {
      const bool again = model_.Apply(*sent_).send_snapshot();
      sent_.reset();
      feed_->Delivered();
      if (again) {
        feed_->Restart();
      }
    }
  }
  // The connection ends; what was under way may have arrived.
  void Break() {
    if (sent_.has_value() && random_() % 2 == 0) {
      model_.Apply(*sent_);
    }
    sent_.reset();
    feed_->Lost();
  }

  std::mt19937_64 random_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<InventoryFeed> feed_;
  InventoryModel model_;
  std::optional<proto::InventoryBatch> sent_;
  double now_ = 1;
};

TEST(InventoryFeedProperty, WhatWasToldIsWhatIsHeld) {
  uint64_t snapshots = 0, evicted = 0, expired = 0, removed = 0;
  for (uint64_t seed = 1; seed <= 3'000; ++seed) {
    Interleaving run(seed);
    for (int step = 0; step < 120; ++step) {
      run.Step();
    }
    run.Settle();
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed;
    }
    snapshots += run.snapshots();
    const StoreCounters counters = run.store().counters();
    evicted += counters.evicted_forms[3] + counters.evicted_forms[2];
    removed += counters.evicted_forms[5];
    expired += counters.evicted_forms[6];
  }
  // The runs reached what they are about.
  EXPECT_GT(snapshots, 10'000u);
  EXPECT_GT(evicted, 1'000u);
  EXPECT_GT(removed, 1'000u);
  EXPECT_GT(expired, 1'000u);
}

}  // namespace
}  // namespace tokura::node
