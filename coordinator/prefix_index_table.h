#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/prefix_index_memory.h"

namespace tokura::coordinator {

// A hash table from 32-bit hashes to 32-bit handles that grows by linear hashing: whenever it has
// become too full, the entries of one bucket are spread over two, so that it is equally full at
// every size and no insertion pays for the growth of the whole. Buckets are cache lines; hashes are
// kept in full, so that growing looks at nothing else. Thread-compatible.
class HandleTable {
 public:
  static absl::StatusOr<HandleTable> Create(uint64_t entries_max);
  HandleTable() = default;

  void Prefetch(uint32_t hash) const { __builtin_prefetch(&buckets_[BucketOf(hash)]); }
  // A handle of that hash, if the first line of its bucket has one; else 0. Cheap: to prefetch what
  // it names.
  uint32_t Guess(uint32_t hash) const;
  // The handle of that hash for which `is_wanted(handle)` holds, 0 when there is none.
  template <typename IsWanted>
  uint32_t Find(uint32_t hash, const IsWanted& is_wanted) const;

  // `handle` is not 0 and not in the table. False: no memory; nothing changed.
  bool Insert(uint32_t hash, uint32_t handle);
  // The entry exists.
  void Erase(uint32_t hash, uint32_t handle);

  uint64_t size() const { return size_; }
  uint64_t moves() const { return moves_; }  // entries that growth has placed anew
  uint64_t memory_bytes() const {
    return buckets_.memory_bytes() + overflow_.memory_bytes() + scratch_.capacity() * sizeof(Entry);
  }

 private:
  static constexpr size_t kEntries = 7;
  struct alignas(64) Bucket {
    uint32_t hashes[kEntries];
    uint32_t handles[kEntries];
    uint32_t count;
    uint32_t next;  // of overflow_; 0: none. A free one names the next free one
  };
  static_assert(sizeof(Bucket) == 64);
  struct Entry {
    uint32_t hash;
    uint32_t handle;
  };

  size_t BucketOf(uint32_t hash) const {
    const size_t bucket = hash & ((size_t{2} << level_) - 1);
    return bucket < bucket_count_ ? bucket : hash & ((size_t{1} << level_) - 1);
  }
  // Bit i: entry i of `bucket` has that hash.
  static uint32_t Matches(const Bucket& bucket, uint32_t hash);
  bool Add(Bucket& bucket, Entry entry);
  uint32_t NewOverflow();
  void FreeOverflow(uint32_t index);
  void SplitOne();

  GrowingArray<Bucket> buckets_;
  GrowingArray<Bucket> overflow_;
  uint64_t buckets_max_ = 0;
  // 2^level_ ≤ bucket_count_ < 2^(level_ + 1): buckets below bucket_count_ - 2^level_ were split.
  uint32_t level_ = 0;
  uint64_t bucket_count_ = 0;
  uint32_t overflow_used_ = 0;
  uint32_t overflow_free_ = 0;
  uint64_t size_ = 0;
  uint64_t moves_ = 0;
  std::vector<Entry> scratch_;
};

inline uint32_t HandleTable::Matches(const Bucket& bucket, uint32_t hash) {
  uint32_t matches = 0;
  for (size_t i = 0; i < kEntries; ++i) {
    matches |= static_cast<uint32_t>(bucket.hashes[i] == hash) << i;
  }
  return matches & ((1u << bucket.count) - 1);
}

inline uint32_t HandleTable::Guess(uint32_t hash) const {
  const Bucket& bucket = buckets_[BucketOf(hash)];
  const uint32_t matches = Matches(bucket, hash);
  return matches == 0 ? 0 : bucket.handles[__builtin_ctz(matches)];
}

template <typename IsWanted>
uint32_t HandleTable::Find(uint32_t hash, const IsWanted& is_wanted) const {
  const Bucket* bucket = &buckets_[BucketOf(hash)];
  for (;;) {
    for (uint32_t matches = Matches(*bucket, hash); matches != 0; matches &= matches - 1) {
      const uint32_t handle = bucket->handles[__builtin_ctz(matches)];
      if (is_wanted(handle)) {
        return handle;
      }
    }
    if (bucket->next == 0) {
      return 0;
    }
    bucket = &overflow_[bucket->next];
  }
}

}  // namespace tokura::coordinator
