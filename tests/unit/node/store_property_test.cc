// Random operations against a simple model; what must hold is checked after each.

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

constexpr uint64_t kKeys = 40;

// Keys are the nodes of a tree: 0 is a root, the parent of k is k / 2 (two chains fork everywhere).
BlockPut RandomPut(std::mt19937_64& random) {
  BlockPut put;
  put.key = random() % kKeys;
  put.parent = put.key == 0 ? -1 : static_cast<int64_t>(put.key / 2);
  for (uint64_t k = put.key; k != 0; k /= 2) {
    ++put.position;
  }
  put.content = random() % 2;
  put.codec = random() % 2 == 0 ? "kivi4" : "raw";
  put.shards = 2;
  put.bytes = (put.codec == "raw" ? 30'000 : 9'000) + random() % 500;
  put.owner = random() % 4;
  return put;
}

class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed) {
    StoreOptions options;
    options.host_bytes = 1 << 20;
    store_ = MakeStore(options);
  }

  void Step() {
    now_ += 0.05;
    const uint64_t what = random_() % 100;
    if (what < 40) {
      Reserve();
    } else if (what < 65) {
      CommitOne();
    } else if (what < 68) {
      if (!pending_.empty()) {
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(random_() % pending_.size()));
      }
    } else if (what < 78) {
      PinSome();
    } else if (what < 90) {
      if (!pins_.empty()) {
        pins_.erase(pins_.begin() + static_cast<ptrdiff_t>(random_() % pins_.size()));
      }
    } else if (what < 93) {
      Remove();
    } else if (what < 95) {
      Abandon();
    } else {
      now_ += random_() % 20 == 0 ? 61 : 0;
      store_->Maintain(At(now_));
    }
    Check();
  }

  // Everything that can be seen, for the comparison of two runs.
  std::vector<uint64_t> Trace() const {
    const StoreStats s = store_->stats();
    const StoreCounters c = store_->counters();
    return {s.used_bytes,         s.forms,
            s.pinned_bytes,       s.incomplete_forms,
            s.largest_free_bytes, c.evicted_forms[0],
            c.evicted_forms[1],   c.evicted_forms[2],
            c.evicted_forms[3],   c.evicted_forms[4],
            c.commits_visible,    c.commits_duplicate};
  }
  const BlockStore& store() const { return *store_; }

 private:
  struct Writing {
    BlockPut put;
    PartId part;
    Reservation room;
  };
  struct Reading {
    FormPin pin;
    uint64_t key;
    uint64_t content;
  };

  void Reserve() {
    const BlockPut put = RandomPut(random_);
    const PartId part{0, static_cast<uint8_t>(random_() % 2)};
    auto room = store_->Reserve(RequestFor(put, part), At(now_));
    if (!room.ok() || pending_.size() > 12) {
      return;
    }
    ASSERT_EQ(room->bytes().size(), put.bytes);
    pending_.push_back({put, part, std::move(*room)});
  }
  void CommitOne() {
    if (pending_.empty()) {
      return;
    }
    const size_t pick = random_() % pending_.size();
    Writing writing = std::move(pending_[pick]);
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(pick));
    const bool was_expired = writing.room.expired();
    const bool was_there = HasCodec(writing.put);
    std::memset(writing.room.bytes().data(),
                static_cast<int>(FillOf(writing.put.key, writing.put.content, writing.part)),
                writing.room.bytes().size());
    const auto result =
        store_->Commit(std::move(writing.room), InfoFor(writing.put, writing.part), At(now_));
    if (was_there) {
      ASSERT_TRUE(result.ok());
      ASSERT_EQ(*result, CommitResult::kDuplicate);
    } else if (result.ok()) {
      ASSERT_TRUE(!was_expired || *result == CommitResult::kDuplicate);
      ASSERT_EQ(HasCodec(writing.put), *result == CommitResult::kVisible);
    } else {
      ASSERT_TRUE(was_expired) << result.status();
    }
  }
  bool HasCodec(const BlockPut& put) {
    for (const FormInfo& form : store_->Forms(Space(), Key(put.key))) {
      if (store_->CodecText(form.codec) == put.codec) {
        return true;
      }
    }
    return false;
  }
  void PinSome() {
    const uint64_t key = random_() % kKeys;
    std::vector<FormPin> pins = PinKeys(*store_, {Key(key)}, At(now_));
    ASSERT_EQ(pins.empty(), store_->Forms(Space(), Key(key)).empty());
    if (!pins.empty() && pins_.size() < 8) {
      uint64_t content = 0;
      while (pins[0].info().content_id != Content(content)) {
        ++content;
      }
      pins_.push_back({std::move(pins[0]), key, content});
    }
  }
  void Remove() {
    const uint64_t key = random_() % kKeys;
    const bool there = Has(*store_, key);
    ASSERT_EQ(store_->Remove(Space(), Key(key), At(now_)), there);
    ASSERT_FALSE(Has(*store_, key));
  }
  void Abandon() {
    const uint64_t key = random_() % kKeys;
    const uint64_t content = random_() % 2;
    const bool there = Has(*store_, key);
    store_->Abandon(Space(), Key(key), Content(content), At(now_));
    ASSERT_EQ(Has(*store_, key), there);
    for (const Writing& writing : pending_) {
      if (writing.put.key == key && writing.put.content == content) {
        ASSERT_TRUE(writing.room.expired());
      }
    }
  }
  void Check() {
    const absl::Status status = store_->CheckInvariants();
    ASSERT_TRUE(status.ok()) << status;
    const StoreStats stats = store_->stats();
    ASSERT_LE(stats.used_bytes, stats.capacity_bytes);
    ASSERT_EQ(stats.reservations, pending_.size());
    for (const Reading& reading : pins_) {
      ASSERT_TRUE(BytesAreRight(reading.pin, reading.key, reading.content));
      ASSERT_EQ(reading.pin.part({0, 0}).size() + reading.pin.part({0, 1}).size(),
                reading.pin.info().stored_bytes);
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<BlockStore> store_;
  std::vector<Writing> pending_;
  std::vector<Reading> pins_;
  double now_ = 1;
};

TEST(StoreProperty, RandomOperationsKeepEveryPromise) {
  uint64_t evicted = 0, visible = 0, duplicate = 0, incomplete = 0;
  for (uint64_t seed = 1; seed <= 14; ++seed) {
    Model model(seed);
    for (int step = 0; step < 2'500; ++step) {
      model.Step();
      if (::testing::Test::HasFatalFailure()) {
        FAIL() << "seed " << seed << " step " << step;
      }
    }
    const StoreCounters counters = model.store().counters();
    evicted += counters.evicted_forms[3] + counters.evicted_forms[4];
    incomplete += counters.evicted_forms[0];
    visible += counters.commits_visible;
    duplicate += counters.commits_duplicate;
  }
  // The run reached what it is about.
  EXPECT_GT(evicted, 100u);
  EXPECT_GT(incomplete, 50u);
  EXPECT_GT(visible, 500u);
  EXPECT_GT(duplicate, 50u);
}

TEST(StoreProperty, SameSeedSameState) {
  Model a(42), b(42), c(43);
  for (int step = 0; step < 1'500; ++step) {
    a.Step();
    b.Step();
    c.Step();
    ASSERT_EQ(a.Trace(), b.Trace()) << step;
  }
  EXPECT_NE(a.Trace(), c.Trace());
}

}  // namespace
}  // namespace tokura::node
