#include "coordinator/prefix_index_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::coordinator {
namespace {
constexpr uint32_t kFirstLevel = 4;
// Entries per bucket on average: kLoadEntries / kLoadBuckets. Buckets that are not split yet have
// up to twice that many, so half of what fits keeps most of them in one line.
constexpr uint64_t kLoadEntries = 7;
constexpr uint64_t kLoadBuckets = 2;
}  // namespace

absl::StatusOr<HandleTable> HandleTable::Create(uint64_t entries_max) {
  HandleTable table;
  const uint64_t first = uint64_t{1} << kFirstLevel;
  table.buckets_max_ = std::max(first, entries_max * kLoadBuckets / kLoadEntries + 1);
  TOKURA_ASSIGN_OR_RETURN(table.buckets_, GrowingArray<Bucket>::Create(table.buckets_max_));
  // Even if all hashes were the same there would be room.
  TOKURA_ASSIGN_OR_RETURN(table.overflow_,
                          GrowingArray<Bucket>::Create(entries_max / kEntries + 2));
  if (!table.buckets_.Reach(first)) {
    return absl::ResourceExhaustedError("no memory for the prefix index");
  }
  table.level_ = kFirstLevel;
  table.bucket_count_ = first;
  return table;
}

bool HandleTable::Insert(uint32_t hash, uint32_t handle) {
  if (!Add(buckets_[BucketOf(hash)], Entry{hash, handle})) {
    return false;
  }
  ++size_;
  if (size_ * kLoadBuckets > bucket_count_ * kLoadEntries) {
    SplitOne();
  }
  return true;
}

bool HandleTable::Add(Bucket& first, Entry entry) {
  Bucket* bucket = &first;
  while (bucket->count == kEntries) {
    if (bucket->next == 0) {
      const uint32_t added = NewOverflow();
      if (added == 0) {
        return false;
      }
      bucket->next = added;
    }
    bucket = &overflow_[bucket->next];
  }
  bucket->hashes[bucket->count] = entry.hash;
  bucket->handles[bucket->count] = entry.handle;
  ++bucket->count;
  return true;
}

void HandleTable::Erase(uint32_t hash, uint32_t handle) {
  Bucket* before_last = nullptr;
  Bucket* last = &buckets_[BucketOf(hash)];
  uint32_t* found_hash = nullptr;
  uint32_t* found_handle = nullptr;
  for (;;) {
    for (uint32_t i = 0; i < last->count; ++i) {
      if (last->handles[i] == handle) {
        found_hash = &last->hashes[i];
        found_handle = &last->handles[i];
      }
    }
    if (last->next == 0) {
      break;
    }
    before_last = last;
    last = &overflow_[last->next];
  }
  TOKURA_CHECK(found_handle != nullptr);
  // All buckets of a chain but the last are full.
  --last->count;
  *found_hash = last->hashes[last->count];
  *found_handle = last->handles[last->count];
  --size_;
  if (last->count == 0 && before_last != nullptr) {
    FreeOverflow(std::exchange(before_last->next, 0));
  }
}

uint32_t HandleTable::NewOverflow() {
  if (overflow_free_ != 0) {
    const uint32_t index = overflow_free_;
    overflow_free_ = std::exchange(overflow_[index].next, 0);
    return index;
  }
  if (!overflow_.Reach(uint64_t{overflow_used_} + 2)) {
    return 0;
  }
  return ++overflow_used_;
}

void HandleTable::FreeOverflow(uint32_t index) {
  overflow_[index].count = 0;
  overflow_[index].next = overflow_free_;
  overflow_free_ = index;
}

void HandleTable::SplitOne() {
  if (bucket_count_ == buckets_max_ || !buckets_.Reach(bucket_count_ + 1)) {
    return;  // chains grow longer instead
  }
  Bucket& from = buckets_[bucket_count_ - (uint64_t{1} << level_)];
  scratch_.clear();
  for (uint32_t i = 0; i < from.count; ++i) {
    scratch_.push_back(Entry{from.hashes[i], from.handles[i]});
  }
  for (uint32_t index = from.next; index != 0;) {
    const Bucket& bucket = overflow_[index];
    for (uint32_t i = 0; i < bucket.count; ++i) {
      scratch_.push_back(Entry{bucket.hashes[i], bucket.handles[i]});
    }
    FreeOverflow(std::exchange(index, bucket.next));
  }
  from.count = 0;
  from.next = 0;
  if (++bucket_count_ == uint64_t{2} << level_) {
    ++level_;
  }
  for (const Entry& entry : scratch_) {
    // The two chains need no more overflow than the one had.
    TOKURA_CHECK(Add(buckets_[BucketOf(entry.hash)], entry));
  }
  moves_ += scratch_.size();
}

}  // namespace tokura::coordinator
