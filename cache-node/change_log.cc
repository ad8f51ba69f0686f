#include "cache-node/change_log.h"

#include <algorithm>

#include "absl/status/status.h"

namespace tokura::node {

void ChangeLog::Append(const BlockKey& key) {
  if (max_ == 0) {
    return;
  }
  MutexLock lock(mutex_);
  ++position_;
  keys_.push_back(key);
  if (keys_.size() > max_) {
    keys_.pop_front();
  }
}

uint64_t ChangeLog::position() const {
  MutexLock lock(mutex_);
  return position_;
}

absl::StatusOr<Changes> ChangeLog::After(uint64_t position, size_t max) const {
  MutexLock lock(mutex_);
  if (position > position_ || position_ - position > keys_.size()) {
    return absl::OutOfRangeError("the log does not reach there");
  }
  const uint64_t count = std::min<uint64_t>(position_ - position, max);
  const auto begin = keys_.end() - static_cast<ptrdiff_t>(position_ - position);
  Changes changes;
  changes.keys.assign(begin, begin + static_cast<ptrdiff_t>(count));
  changes.last = position + count;
  return changes;
}

}  // namespace tokura::node
