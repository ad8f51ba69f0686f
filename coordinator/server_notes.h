#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "common/ids.h"

namespace tokura::coordinator {

// Keys that one life of one node is to be told of with its next reports: touches, or orphans. Both
// are hints, so a full queue drops what comes. Thread-compatible.
class NoteQueue {
 public:
  explicit NoteQueue(size_t keys_max) : keys_max_(keys_max) {}

  // From here on the keys are about the node's life `incarnation`. Those about another life are
  // forgotten; returns how many.
  size_t StartLife(uint64_t incarnation);
  // As StartLife, but what waits passes for news of the new life. A planted bug.
  void RenameLife(uint64_t incarnation) { incarnation_ = incarnation; }
  // The life that the keys are about; 0: none yet, and no key.
  uint64_t incarnation() const { return incarnation_; }

  // False: the queue is full, the key is dropped.
  bool Add(const BlockKey& key);
  // Take out the oldest `max` keys, concatenated.
  std::string Take(size_t max);
  size_t size() const { return keys_.size(); }

 private:
  const size_t keys_max_;
  uint64_t incarnation_ = 0;
  std::deque<BlockKey> keys_;
};

}  // namespace tokura::coordinator
