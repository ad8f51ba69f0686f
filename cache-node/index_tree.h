#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "cache-node/evict.h"
#include "cache-node/index.h"
#include "common/ids.h"

namespace tokura::node {

enum class OrphanMark { kNo, kYes };

// The blocks and who builds on whom. A block names its parent when it is put; a parent that is not
// here (yet) gets a descriptor without forms, so that the two find each other in either order.
// Keeps the victim queue to the blocks that may go: complete, not parked, nobody's parent.
//
// Writers only claim parents and positions; a link is made only where the positions are
// consecutive, so links never form a cycle, and a false claim costs the claimant's blocks their
// place in the order of eviction, nothing else.
//
// Owned by the store and used under its lock, except index(), which locks for itself.
class ChainTree {
 public:
  ChainTree(uint32_t blocks_max, VictimQueue& queue);

  const BlockIndex& index() const { return index_; }
  StoredBlock* Find(const Fingerprint& fingerprint, const BlockKey& key) const {
    return index_.Find(fingerprint, key);
  }
  // The block, made if need be; null when all descriptors are taken, or too many namespaces have a
  // block of this key. A block that has no forms
  // learns its place in its chain from `parent_key` and `position`; for others they are ignored.
  struct Place {
    BlockKey parent_key;
    uint32_t position = 0;
  };
  StoredBlock* GetOrCreate(const Fingerprint& fingerprint, const BlockKey& key, const Place& place);
  // The forms of `block`, or its parked flag, have changed.
  void Changed(StoredBlock& block);
  // Whether coordinators say that the prefix of `block` is held nowhere. What builds on it follows
  // with PropagateOrphans.
  void SetMarked(StoredBlock& block, OrphanMark mark);
  // Forget `block`, and parents kept for it only, when nothing needs its descriptor.
  void ReleaseIfUnused(StoredBlock& block);
  // Pass orphan flags on to children, at most `steps` children. Returns whether any are left.
  bool PropagateOrphans(size_t steps);

  bool HasRoom(uint32_t more) const { return blocks_.size() + more <= blocks_.slots_max(); }
  const SlotPool<StoredBlock>& blocks() const { return blocks_; }

 private:
  StoredBlock* Create(const Fingerprint& fingerprint, const BlockKey& key, uint32_t position);
  void LinkToParent(StoredBlock& block);
  // Takes `block` from its parent's children; returns the parent, which may be unused now.
  StoredBlock* Unlink(StoredBlock& block);
  void Refile(StoredBlock& block);
  static bool IsOrphan(const StoredBlock& block);
  // The flags of `block` have changed: its children follow, from the first.
  void QueueOrphans(StoredBlock& block);

  SlotPool<StoredBlock> blocks_;
  BlockIndex index_;
  VictimQueue& queue_;
  // Handle of a block whose children's flags may be wrong, and the first such child; null: none is
  // left. Children linked meanwhile come before it and have the right flag from the start.
  std::map<uint32_t, StoredBlock*> orphan_work_;
};

}  // namespace tokura::node
