#include "cache-node/index_tree.h"

namespace tokura::node {

ChainTree::ChainTree(uint32_t blocks_max, VictimQueue& queue)
    : blocks_(blocks_max), index_(blocks_), queue_(queue) {}

StoredBlock* ChainTree::Create(const Fingerprint& fingerprint, const BlockKey& key,
                               uint32_t position) {
  StoredBlock* block = blocks_.Allocate();
  if (block != nullptr) {
    block->fingerprint = fingerprint;
    block->key = key;
    block->position = position;
    if (!index_.Insert(*block)) {
      blocks_.Release(block);
      return nullptr;
    }
  }
  return block;
}

StoredBlock* ChainTree::GetOrCreate(const Fingerprint& fingerprint, const BlockKey& key,
                                    const Place& place) {
  StoredBlock* block = Find(fingerprint, key);
  if (block != nullptr && block->forms > 0) {
    return block;
  }
  if (block == nullptr) {
    block = Create(fingerprint, key, place.position);
    if (block == nullptr) {
      return nullptr;
    }
  }
  // It may be known under another parent from before it was removed.
  StoredBlock* const parent_before = Unlink(*block);
  // Children that came first have settled the position.
  if (block->first_child == nullptr) {
    block->position = place.position;
  }
  block->parent_key = place.parent_key;
  const bool was_orphan = block->orphan;
  block->orphan = false;
  block->marked = false;
  LinkToParent(*block);
  if (block->orphan != was_orphan) {
    QueueOrphans(*block);
  }
  if (parent_before != nullptr) {
    ReleaseIfUnused(*parent_before);
  }
  return block;
}

void ChainTree::LinkToParent(StoredBlock& block) {
  if (block.parent_key.empty() || block.position == 0) {
    return;
  }
  StoredBlock* parent = Find(block.fingerprint, block.parent_key);
  if (parent == nullptr) {
    parent = Create(block.fingerprint, block.parent_key, block.position - 1);
  }
  if (parent == nullptr || parent->position + 1 != block.position) {
    return;
  }
  block.parent = parent;
  block.next_sibling = parent->first_child;
  if (block.next_sibling != nullptr) {
    block.next_sibling->previous_sibling = &block;
  }
  parent->first_child = &block;
  block.orphan = IsOrphan(block);
  Refile(*parent);
}

bool ChainTree::IsOrphan(const StoredBlock& block) {
  const StoredBlock* parent = block.parent;
  return block.marked || (parent != nullptr && (parent->orphan || parent->gone));
}

void ChainTree::SetMarked(StoredBlock& block, OrphanMark mark) {
  block.marked = mark == OrphanMark::kYes;
  if (const bool orphan = IsOrphan(block); orphan != block.orphan) {
    block.orphan = orphan;
    Refile(block);
    QueueOrphans(block);
  }
}

StoredBlock* ChainTree::Unlink(StoredBlock& block) {
  StoredBlock* parent = block.parent;
  if (parent == nullptr) {
    return nullptr;
  }
  const auto work = orphan_work_.find(parent->handle);
  if (work != orphan_work_.end() && work->second == &block) {
    work->second = block.next_sibling;
  }
  if (block.previous_sibling != nullptr) {
    block.previous_sibling->next_sibling = block.next_sibling;
  } else {
    parent->first_child = block.next_sibling;
  }
  if (block.next_sibling != nullptr) {
    block.next_sibling->previous_sibling = block.previous_sibling;
  }
  block.parent = block.previous_sibling = block.next_sibling = nullptr;
  if (parent->first_child == nullptr) {
    Refile(*parent);
  }
  return parent;
}

void ChainTree::Changed(StoredBlock& block) {
  const bool was_gone = block.gone;
  block.was_complete = block.was_complete || block.complete != nullptr;
  block.gone = block.was_complete && block.complete == nullptr;
  if (block.gone != was_gone) {
    QueueOrphans(block);
  }
  Refile(block);
}

void ChainTree::ReleaseIfUnused(StoredBlock& unused) {
  StoredBlock* block = &unused;
  while (block != nullptr && block->forms == 0 && block->first_child == nullptr) {
    StoredBlock* parent = Unlink(*block);
    queue_.Withdraw(*block);
    orphan_work_.erase(block->handle);
    index_.Erase(*block);
    blocks_.Release(block);
    block = parent;
  }
}

void ChainTree::Refile(StoredBlock& block) {
  if (block.complete != nullptr && block.first_child == nullptr && !block.parked) {
    queue_.File(block);
  } else {
    queue_.Withdraw(block);
  }
}

void ChainTree::QueueOrphans(StoredBlock& block) {
  if (block.first_child != nullptr) {
    orphan_work_[block.handle] = block.first_child;
  }
}

bool ChainTree::PropagateOrphans(size_t steps) {
  for (; steps > 0 && !orphan_work_.empty(); --steps) {
    const auto work = orphan_work_.begin();
    StoredBlock* child = work->second;
    if (child == nullptr) {
      orphan_work_.erase(work);
      continue;
    }
    work->second = child->next_sibling;
    const bool orphan = IsOrphan(*child);
    if (child->orphan != orphan) {
      child->orphan = orphan;
      Refile(*child);
      QueueOrphans(*child);
    }
  }
  return !orphan_work_.empty();
}

}  // namespace tokura::node
