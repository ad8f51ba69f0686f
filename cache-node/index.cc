#include "cache-node/index.h"

#include "absl/hash/hash.h"

namespace tokura::node {

BlockIndex::BlockIndex(const SlotPool<StoredBlock>& blocks) : blocks_(blocks) {
  for (size_t i = 0; i < kShards; ++i) {
    shards_.push_back(std::make_unique<Shard>(&blocks));
  }
}

size_t BlockIndex::Hash::operator()(uint32_t handle) const {
  const StoredBlock& block = *blocks->Get(handle);
  return (*this)(Name{block.fingerprint, block.key});
}

size_t BlockIndex::Hash::operator()(const Name& name) const {
  return absl::HashOf(name.fingerprint, name.key);
}

bool BlockIndex::Equal::operator()(uint32_t handle, const Name& name) const {
  const StoredBlock& block = *blocks->Get(handle);
  return block.key == name.key && block.fingerprint == name.fingerprint;
}

StoredBlock* BlockIndex::FindLocked(const Shard& shard, const Name& name) const {
  const auto found = shard.handles.find(name);
  return found == shard.handles.end() ? nullptr : blocks_.Get(*found);
}

StoredBlock* BlockIndex::Find(const Fingerprint& fingerprint, const BlockKey& key) const {
  const Shard& shard = ShardOf(key);
  MutexLock lock(shard.mutex);
  return FindLocked(shard, Name{fingerprint, key});
}

void BlockIndex::Insert(const StoredBlock& block) {
  Shard& shard = ShardOf(block.key);
  MutexLock lock(shard.mutex);
  TOKURA_CHECK(shard.handles.insert(block.handle).second);
}

void BlockIndex::Erase(const StoredBlock& block) {
  Shard& shard = ShardOf(block.key);
  MutexLock lock(shard.mutex);
  TOKURA_CHECK(shard.handles.erase(block.handle) == 1);
}

}  // namespace tokura::node
