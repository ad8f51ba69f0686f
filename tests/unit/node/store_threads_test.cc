// Many threads on one store: readers verify every byte of what they pinned while others put, remove
// and evict. Meant for ThreadSanitizer, useful without.

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache-node/inventory_feed.h"
#include "cache-node/lease.h"
#include "tests/unit/node/inventory_model.h"
#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

constexpr uint64_t kKeys = 200;
constexpr int kSteps = 4'000;

struct Shared {
  std::unique_ptr<BlockStore> store;
  std::unique_ptr<LeaseTable> leases;
  std::atomic<int64_t> clock_ms{1000};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> read{0};
  std::atomic<uint64_t> put{0};
  std::atomic<int> writers{0};

  TimePoint Now() { return At(static_cast<double>(clock_ms.fetch_add(1)) / 1000); }
};

void Write(Shared& shared, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int step = 0; step < kSteps; ++step) {
    BlockPut put;
    put.key = random() % kKeys;
    put.parent = static_cast<int64_t>(put.key) - 1;
    put.position = static_cast<uint32_t>(put.key);
    put.content = seed;
    put.codec = random() % 3 == 0 ? "raw" : "kivi4";
    put.bytes = put.codec == "raw" ? 9'000 : 2'500;
    put.shards = 2;
    const auto result = PutBlock(*shared.store, put, shared.Now());
    shared.put += result.ok() && *result == CommitResult::kVisible ? 1 : 0;
    if (random() % 20 == 0) {
      shared.store->Remove(Space(), Key(random() % kKeys), shared.Now());
    }
    if (random() % 20 == 0) {
      shared.store->Maintain(shared.Now());
    }
  }
}

void Check(Shared& shared, const FormPin& pin, uint64_t key) {
  uint64_t content = 0;
  while (pin.info().content_id != Content(content)) {
    ++content;
  }
  shared.wrong += BytesAreRight(pin, key, content) ? 0 : 1;
  ++shared.read;
}

void Read(Shared& shared, uint64_t seed) {
  std::mt19937_64 random(seed);
  // Where a reader runs first it would be through before there is anything to read.
  while (shared.put.load() == 0 && shared.writers.load() > 0) {
    std::this_thread::yield();
  }
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t first = random() % kKeys;
    std::vector<BlockKey> keys;
    for (uint64_t i = 0; i < 4; ++i) {
      keys.push_back(Key(first + i));
    }
    shared.store->Find(Space(), keys, {}, Touch::kYes, shared.Now());
    std::vector<FormPin> pins = PinKeys(*shared.store, keys, shared.Now());
    for (size_t i = 0; i < pins.size(); ++i) {
      Check(shared, pins[i], first + i);
    }
    if (pins.empty() || random() % 2 == 0) {
      continue;
    }
    const auto token = shared.leases->Acquire("t", seed, std::move(pins), shared.Now());
    if (!token.ok()) {
      continue;
    }
    auto use = shared.leases->Use(*token, "t", seed, shared.Now());
    if (random() % 2 == 0) {
      shared.leases->Release(*token, "t", shared.Now());
    }
    for (size_t i = 0; use.ok() && i < use->pins().size(); ++i) {
      Check(shared, use->pins()[i], first + i);
    }
    shared.leases->Sweep(shared.Now());
  }
  shared.leases->ReleaseOwner(seed);
}

// One coordinator: told while the store changes, and telling it what is in use and what is not.
void Follow(Shared& shared, InventoryFeed& feed, InventoryModel& model) {
  std::mt19937_64 random(77);
  while (shared.writers.load() > 0) {
    if (const auto batch = feed.Next(1, shared.Now()); batch.has_value()) {
      model.Apply(*batch);
      feed.Delivered();
    }
    const std::vector<BlockKey> keys = {Key(random() % kKeys), Key(random() % kKeys)};
    if (random() % 4 == 0) {
      shared.store->MarkOrphans(keys);
    } else {
      shared.store->TouchKeys(keys, shared.Now());
    }
    if (random() % 500 == 0) {
      feed.Restart();
    }
  }
}

TEST(StoreThreads, ACoordinatorFollowsWhatSeveralWritersDo) {
  Shared shared;
  StoreOptions options;
  options.host_bytes = 1 << 20;
  options.change_log_max = 4096;
  shared.store = MakeStore(options);
  InventoryFeed feed(*shared.store, "node-a", {}, {.keys = 16});
  InventoryModel model;
  shared.writers = 3;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([&shared, i] {
      Write(shared, i);
      --shared.writers;
    });
  }
  threads.emplace_back([&] { Follow(shared, feed, model); });
  for (std::thread& thread : threads) {
    thread.join();
  }
  while (const auto batch = feed.Next(1, shared.Now())) {
    model.Apply(*batch);
    feed.Delivered();
  }
  std::vector<BlockKey> keys;
  for (uint64_t key = 0; key < kKeys; ++key) {
    keys.push_back(Key(key));
  }
  EXPECT_EQ(model.gaps, 0);
  EXPECT_GT(shared.store->change_position(), 500u);
  EXPECT_EQ(model.content, InventoryModel::Of(*shared.store, keys, shared.Now()));
  EXPECT_TRUE(shared.store->CheckInvariants().ok()) << shared.store->CheckInvariants();
}

TEST(StoreThreads, ReadersNeverSeeWrongBytesBesideWritersRemovalAndEviction) {
  Shared shared;
  StoreOptions options;
  options.host_bytes = 1 << 20;
  shared.store = MakeStore(options);
  shared.leases = std::make_unique<LeaseTable>(LeaseTable::Options{}, SystemRandom());
  std::vector<std::thread> threads;
  shared.writers = 3;
  for (uint64_t i = 0; i < 3; ++i) {
    threads.emplace_back([&shared, i] {
      Write(shared, i);
      --shared.writers;
    });
    threads.emplace_back([&shared, i] { Read(shared, 100 + i); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(shared.wrong.load(), 0u);
  EXPECT_GT(shared.read.load(), 500u);
  EXPECT_GT(shared.put.load(), 200u);
  EXPECT_TRUE(shared.store->CheckInvariants().ok()) << shared.store->CheckInvariants();
  const StoreStats stats = shared.store->stats();
  EXPECT_EQ(stats.pinned_forms, 0u);
  EXPECT_EQ(stats.pinned_bytes, 0u);
  EXPECT_EQ(stats.doomed_forms, 0u);
  EXPECT_EQ(stats.reservations, 0u);
  EXPECT_EQ(shared.leases->stats().leases, 0u);
}

}  // namespace
}  // namespace tokura::node
