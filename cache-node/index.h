#pragma once

// Descriptors of blocks and forms, which never move, and the sharded hash from a key to a block.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "cache-node/pin.h"
#include "common/check.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/time.h"
#include "kernels/part.h"

namespace tokura::node {

struct StoredBlock;

// Refcount and flags of a form in one atomic word, so that an evictor cannot pass a reader: it
// takes the form only by turning the whole word from 0 to kExclusive.
struct PinWord {
  static constexpr uint32_t kExclusive = 1u << 31;  // being freed; cannot be pinned
  static constexpr uint32_t kDoomed = 1u << 30;     // removed: the last unpin frees it
  static constexpr uint32_t kParked = 1u << 29;     // the last unpin makes it evictable again
  static constexpr uint32_t kCount = kParked - 1;
};

struct PartSlot {
  PartId part;
  uint64_t offset = 0;  // of the extent
  uint64_t bytes = 0;   // of the payload
};

// What the parts of an incomplete form say, kept until they are summed up.
struct PartRecord {
  PartId part;
  kernels::Fidelity fidelity = kernels::Fidelity::kExact;
  kernels::ErrorRecord error;
};

struct StoredForm {
  enum class State : uint8_t { kIncomplete, kComplete, kDoomed };

  // Any thread.
  std::atomic<uint32_t> word{0};
  std::atomic<bool> damaged{false};  // its bytes are known to be wrong; never goes back
  // Fixed for the form's life, or from completion on (info, parts).
  uint32_t handle = 0;
  StoredBlock* block = nullptr;
  FormInfo info;
  std::vector<PartSlot> parts;  // ascending by part
  TimePoint expires = TimePoint::max();
  // In the block's list of complete forms (see StoredBlock) or of incomplete ones.
  StoredForm* next = nullptr;
  // The store's lock.
  State state = State::kIncomplete;
  uint32_t writers = 0;             // reservations
  std::vector<PartRecord> records;  // ascending by part
  TimePoint started{};
  TimePoint progressed{};
  TimePoint completed{};
  Duration ttl{};  // 0: none
};

// How soon a block is evicted: the smallest goes first.
struct EvictRank {
  uint8_t kind = 1;  // 0: orphan
  uint64_t value = 0;
  int64_t touched_ns = 0;
  uint32_t handle = 0;
  friend auto operator<=>(const EvictRank&, const EvictRank&) = default;
};

// A block that is here in some form, or that others name as their parent.
struct StoredBlock {
  uint32_t handle = 0;
  Fingerprint fingerprint;
  BlockKey key;
  // Any thread, relaxed: hints for the evictor.
  std::atomic<uint64_t> touched_value{0};
  std::atomic<int64_t> touched_ns{0};
  // Changed under the store's lock *and* the shard's; read under either.
  StoredForm* complete = nullptr;
  StoredBlock* namesake = nullptr;  // the next block of the same key, in another namespace
  // The store's lock.
  StoredForm* incomplete = nullptr;
  uint32_t forms = 0;   // descriptors that point here, doomed ones included
  BlockKey parent_key;  // fixed while there is a form, so that `complete` guards it as well
  uint32_t position = 0;
  StoredBlock* parent = nullptr;  // linked: parent->position + 1 == position
  StoredBlock* first_child = nullptr;
  StoredBlock* previous_sibling = nullptr;
  StoredBlock* next_sibling = nullptr;
  bool was_complete = false;
  bool gone = false;        // was complete and is not any more: its children are orphans
  bool marked = false;      // coordinators say that its prefix is held nowhere
  bool orphan = false;      // that, or the same of its parent, or its parent is gone
  bool in_queue = false;    // of the evictor, at `rank`
  bool waiting = false;     // has incomplete forms only
  bool parked = false;      // not queued because all its forms are pinned
  bool shares_key = false;  // has, or had, a namesake
  EvictRank rank;

  bool present() const { return complete != nullptr || incomplete != nullptr; }
};

// Slots of T that never move, named by 32-bit handles from 1. Thread-compatible, but Get may run
// beside Allocate for handles that reached the caller through a lock.
template <typename T>
class SlotPool {
 public:
  explicit SlotPool(uint32_t slots_max)
      : slots_max_(slots_max), pages_((slots_max + kPageSlots - 1) / kPageSlots) {}

  // A fresh T with its handle set; null when all slots are taken.
  T* Allocate() {
    uint32_t handle;
    if (!free_.empty()) {
      handle = free_.back();
      free_.pop_back();
    } else if (used_ < slots_max_) {
      handle = ++used_;
      std::unique_ptr<Page>& page = pages_[(handle - 1) / kPageSlots];
      if (page == nullptr) {
        page = std::make_unique<Page>();
      }
    } else {
      return nullptr;
    }
    std::optional<T>& slot = Slot(handle);
    slot.emplace();
    slot->handle = handle;
    return &*slot;
  }
  void Release(T* item) {
    const uint32_t handle = item->handle;
    Slot(handle).reset();
    free_.push_back(handle);
  }
  T* Get(uint32_t handle) const {
    std::optional<T>& slot = Slot(handle);
    TOKURA_DCHECK(slot.has_value());
    return &*slot;
  }
  // The item named `handle`, null when that slot is free.
  const T* Find(uint32_t handle) const {
    const std::optional<T>& slot = Slot(handle);
    return slot.has_value() ? &*slot : nullptr;
  }
  bool full() const { return size() == slots_max_; }
  uint32_t handles() const { return used_; }  // all handles ever given out are 1…handles()
  uint32_t slots_max() const { return slots_max_; }
  uint32_t size() const { return used_ - static_cast<uint32_t>(free_.size()); }

 private:
  static constexpr uint32_t kPageSlots = 256;
  struct Page {
    std::optional<T> slots[kPageSlots];
  };
  std::optional<T>& Slot(uint32_t handle) const {
    return pages_[(handle - 1) / kPageSlots]->slots[(handle - 1) % kPageSlots];
  }

  const uint32_t slots_max_;
  uint32_t used_ = 0;
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<uint32_t> free_;
};

// (fingerprint, key) → block, and key → the blocks of that key in all namespaces. A key names its
// namespace as well, so more than one block per key takes a writer that made its key up: they form
// a short list. Thread-safe; Insert and Erase additionally need the store's lock, which is taken
// before a shard's. Nothing iterates over it, so hash order shows nowhere.
class BlockIndex {
 public:
  static constexpr size_t kShards = 16;
  static constexpr size_t kVisitMax = 256;
  static constexpr size_t kNamesakesMax = 8;  // blocks of one key

  explicit BlockIndex(const SlotPool<StoredBlock>& blocks);

  // False: kNamesakesMax blocks of this key are here.
  bool Insert(StoredBlock& block);
  void Erase(StoredBlock& block);
  StoredBlock* Find(const Fingerprint& fingerprint, const BlockKey& key) const;
  // What guards `block.complete` beside the store's lock.
  Mutex& MutexOf(const StoredBlock& block) const { return ShardOf(block.key).mutex; }

  // Call visit(i, block or null) for each of `keys` (at most kVisitMax) under the lock of its
  // shard, in any order; each shard is locked once.
  template <typename Visit>
  void VisitAll(const Fingerprint& fingerprint, std::span<const BlockKey> keys,
                const Visit& visit) const;
  // As VisitAll, with the first block of each key in any namespace; StoredBlock::namesake leads to
  // the others.
  template <typename Visit>
  void VisitKeys(std::span<const BlockKey> keys, const Visit& visit) const;

 private:
  struct Hash {
    using is_transparent = void;
    const SlotPool<StoredBlock>* blocks;
    size_t operator()(uint32_t handle) const;
    size_t operator()(const BlockKey& key) const;
  };
  struct Equal {
    using is_transparent = void;
    const SlotPool<StoredBlock>* blocks;
    bool operator()(uint32_t a, uint32_t b) const { return a == b; }
    bool operator()(uint32_t handle, const BlockKey& key) const;
    bool operator()(const BlockKey& key, uint32_t handle) const { return (*this)(handle, key); }
  };
  struct alignas(64) Shard {
    explicit Shard(const SlotPool<StoredBlock>* blocks)
        : handles(16, Hash{blocks}, Equal{blocks}) {}
    mutable Mutex mutex;  // after the store's lock; nothing is locked while it is held
    // The first block of each key.
    absl::flat_hash_set<uint32_t, Hash, Equal> handles TOKURA_GUARDED_BY(mutex);
  };
  static size_t ShardIndex(const BlockKey& key) { return key.bytes[15] % kShards; }
  Shard& ShardOf(const BlockKey& key) const { return *shards_[ShardIndex(key)]; }
  StoredBlock* FirstLocked(const Shard& shard, const BlockKey& key) const
      TOKURA_REQUIRES(shard.mutex);
  static StoredBlock* OfSpace(StoredBlock* first, const Fingerprint& fingerprint);

  const SlotPool<StoredBlock>& blocks_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

template <typename Visit>
void BlockIndex::VisitAll(const Fingerprint& fingerprint, std::span<const BlockKey> keys,
                          const Visit& visit) const {
  VisitKeys(keys, [&](size_t i, StoredBlock* first) { visit(i, OfSpace(first, fingerprint)); });
}

template <typename Visit>
void BlockIndex::VisitKeys(std::span<const BlockKey> keys, const Visit& visit) const {
  TOKURA_CHECK(keys.size() <= kVisitMax);
  // Sort the positions by shard; equal shards keep their order.
  uint16_t begin[kShards + 1] = {};
  for (const BlockKey& key : keys) {
    ++begin[ShardIndex(key) + 1];
  }
  for (size_t shard = 0; shard < kShards; ++shard) {
    begin[shard + 1] = static_cast<uint16_t>(begin[shard + 1] + begin[shard]);
  }
  uint16_t order[kVisitMax];
  uint16_t next[kShards];
  std::copy(begin, begin + kShards, next);
  for (size_t i = 0; i < keys.size(); ++i) {
    order[next[ShardIndex(keys[i])]++] = static_cast<uint16_t>(i);
  }
  for (size_t s = 0; s < kShards; ++s) {
    if (begin[s] == begin[s + 1]) {
      continue;
    }
    const Shard& shard = *shards_[s];
    MutexLock lock(shard.mutex);
    for (uint16_t i = begin[s]; i < begin[s + 1]; ++i) {
      visit(size_t{order[i]}, FirstLocked(shard, keys[order[i]]));
    }
  }
}

}  // namespace tokura::node
