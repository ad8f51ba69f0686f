#include "coordinator/server_notes.h"

#include <algorithm>

namespace tokura::coordinator {

size_t NoteQueue::StartLife(uint64_t incarnation) {
  if (incarnation == incarnation_) {
    return 0;
  }
  incarnation_ = incarnation;
  const size_t forgotten = keys_.size();
  keys_.clear();
  return forgotten;
}

bool NoteQueue::Add(const BlockKey& key) {
  if (keys_.size() >= keys_max_) {
    return false;
  }
  keys_.push_back(key);
  return true;
}

std::string NoteQueue::Take(size_t max) {
  const size_t count = std::min(max, keys_.size());
  std::string keys;
  keys.reserve(count * BlockKey::kBytes);
  for (size_t i = 0; i < count; ++i) {
    keys.append(reinterpret_cast<const char*>(keys_.front().bytes.data()), BlockKey::kBytes);
    keys_.pop_front();
  }
  return keys;
}

}  // namespace tokura::coordinator
