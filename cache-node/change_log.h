#pragma once

// The order in which keys changed at a node, for coordinators that lag behind.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/status/statusor.h"
#include "cache-node/block_store.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace tokura::node {

// The last `max` changes, numbered from 1 without gaps. Holds keys only: what has become of them is
// read when it is told, so that a key that changed a hundred times is told once. Thread-safe.
class ChangeLog {
 public:
  // With `max` 0 nothing is kept or numbered.
  explicit ChangeLog(uint64_t max) : max_(max) {}

  void Append(const BlockKey& key);
  // The number of the last change; 0 before the first.
  uint64_t position() const;
  // As BlockStore::ChangesAfter.
  absl::StatusOr<Changes> After(uint64_t position, size_t max) const;

 private:
  const uint64_t max_;
  mutable Mutex mutex_;  // a leaf
  uint64_t position_ TOKURA_GUARDED_BY(mutex_) = 0;
  std::deque<BlockKey> keys_ TOKURA_GUARDED_BY(mutex_);  // the last one has number position_
};

}  // namespace tokura::node
