#include "cache-node/index.h"

#include "absl/hash/hash.h"

namespace tokura::node {

BlockIndex::BlockIndex(const SlotPool<StoredBlock>& blocks) : blocks_(blocks) {
  for (size_t i = 0; i < kShards; ++i) {
    shards_.push_back(std::make_unique<Shard>(&blocks));
  }
}

size_t BlockIndex::Hash::operator()(uint32_t handle) const {
  return (*this)(blocks->Get(handle)->key);
}

size_t BlockIndex::Hash::operator()(const BlockKey& key) const {
  return absl::HashOf(key);
}

bool BlockIndex::Equal::operator()(uint32_t handle, const BlockKey& key) const {
  return blocks->Get(handle)->key == key;
}

StoredBlock* BlockIndex::FirstLocked(const Shard& shard, const BlockKey& key) const {
  const auto found = shard.handles.find(key);
  return found == shard.handles.end() ? nullptr : blocks_.Get(*found);
}

StoredBlock* BlockIndex::OfSpace(StoredBlock* first, const Fingerprint& fingerprint) {
  while (first != nullptr && first->fingerprint != fingerprint) {
    first = first->namesake;
  }
  return first;
}

StoredBlock* BlockIndex::Find(const Fingerprint& fingerprint, const BlockKey& key) const {
  const Shard& shard = ShardOf(key);
  MutexLock lock(shard.mutex);
  return OfSpace(FirstLocked(shard, key), fingerprint);
}

bool BlockIndex::Insert(StoredBlock& block) {
  Shard& shard = ShardOf(block.key);
  MutexLock lock(shard.mutex);
  StoredBlock* last = FirstLocked(shard, block.key);
  if (last == nullptr) {
    TOKURA_CHECK(shard.handles.insert(block.handle).second);
    return true;
  }
  size_t count = 1;
  for (last->shares_key = true; last->namesake != nullptr; last = last->namesake) {
    ++count;
  }
  if (count >= kNamesakesMax) {
    return false;
  }
  last->namesake = &block;
  block.shares_key = true;
  return true;
}

void BlockIndex::Erase(StoredBlock& block) {
  Shard& shard = ShardOf(block.key);
  MutexLock lock(shard.mutex);
  StoredBlock* before = FirstLocked(shard, block.key);
  TOKURA_CHECK(before != nullptr);
  if (before == &block) {
    TOKURA_CHECK(shard.handles.erase(block.handle) == 1);
    if (block.namesake != nullptr) {
      TOKURA_CHECK(shard.handles.insert(block.namesake->handle).second);
    }
    return;
  }
  while (before->namesake != &block) {
    before = before->namesake;
    TOKURA_CHECK(before != nullptr);
  }
  before->namesake = block.namesake;
}

}  // namespace tokura::node
