// What must hold between calls, checked from scratch: for tests and the simulation.

#include <map>

#include "absl/strings/str_cat.h"
#include "cache-node/block_store_core.h"
#include "common/status_macros.h"

namespace tokura::node {
namespace {

absl::Status Broken(const char* what, uint64_t where) {
  return absl::InternalError(absl::StrCat("store invariant broken: ", what, " (", where, ")"));
}

}  // namespace

uint64_t StoreCore::OrphanedBlocks() const {
  MutexLock lock(mutex_);
  uint64_t orphans = 0;
  for (uint32_t handle = 1; handle <= tree_.blocks().handles(); ++handle) {
    const StoredBlock* block = tree_.blocks().Find(handle);
    orphans += block != nullptr && block->complete != nullptr && block->orphan ? 1 : 0;
  }
  return orphans;
}

absl::Status StoreCore::CheckInvariants() const {
  MutexLock lock(mutex_);
  TOKURA_RETURN_IF_ERROR(CheckExtents());
  return CheckBlocks();
}

// The arena, walked by its headers alone, agrees with the allocator and with who owns what.
absl::Status StoreCore::CheckExtents() const {
  std::map<uint64_t, ExtentState> owned;
  for (const auto& [id, pending] : pending_) {
    owned[pending.offset] = ExtentState::kReserved;
  }
  for (uint32_t handle = 1; handle <= forms_.handles(); ++handle) {
    const StoredForm* form = forms_.Find(handle);
    for (const PartSlot& slot : form == nullptr ? std::vector<PartSlot>() : form->parts) {
      if (!owned.emplace(slot.offset, ExtentState::kStored).second) {
        return Broken("an extent has two owners", slot.offset);
      }
    }
  }
  absl::StatusOr<std::vector<Extent>> extents = arena_->Walk();
  TOKURA_RETURN_IF_ERROR(extents.status());
  uint64_t used = 0;
  size_t found = 0;
  ExtentState before = ExtentState::kStored;
  for (const Extent& extent : *extents) {
    const ExtentAllocator::Piece piece = allocator_.PieceAt(extent.offset);
    if (piece.range.offset != extent.offset || piece.range.bytes != extent.header.extent_bytes) {
      return Broken("arena and allocator differ", extent.offset);
    }
    const auto owner = owned.find(extent.offset);
    const ExtentState state = owner == owned.end() ? ExtentState::kFree : owner->second;
    if (state != extent.header.state || (state == ExtentState::kFree) != (piece.owner == 0)) {
      return Broken("an extent's state is wrong", extent.offset);
    }
    if (state == ExtentState::kFree && before == ExtentState::kFree) {
      return Broken("free extents lie side by side", extent.offset);
    }
    before = state;
    found += state == ExtentState::kFree ? 0 : 1;
    used += state == ExtentState::kFree ? 0 : extent.header.extent_bytes;
  }
  if (found != owned.size() || used != allocator_.used() || used > allocator_.capacity()) {
    return Broken("used bytes are miscounted", used);
  }
  return absl::OkStatus();
}

// Lists, links, the victim queue and the sums agree with each other.
absl::Status StoreCore::CheckBlocks() const {
  uint64_t complete = 0, incomplete = 0, doomed = 0, blocks = 0, queued = 0, stored_bytes = 0;
  uint64_t waiting = 0;
  for (uint32_t handle = 1; handle <= tree_.blocks().handles(); ++handle) {
    const StoredBlock* block = tree_.blocks().Find(handle);
    if (block == nullptr) {
      continue;
    }
    if (tree_.Find(block->fingerprint, block->key) != block) {
      return Broken("a block is not in the index", handle);
    }
    if (block->forms == 0 && block->first_child == nullptr) {
      return Broken("an unused block was kept", handle);
    }
    if (block->parent != nullptr && (block->parent->key != block->parent_key ||
                                     block->parent->position + 1 != block->position)) {
      return Broken("a block is linked to the wrong parent", handle);
    }
    const bool may_go =
        block->complete != nullptr && block->first_child == nullptr && !block->parked;
    if (block->in_queue != may_go) {
      return Broken("the victim queue has a wrong member or lacks one", handle);
    }
    queued += block->in_queue ? 1 : 0;
    blocks += block->complete != nullptr ? 1 : 0;
    waiting += block->complete == nullptr && block->incomplete != nullptr ? 1 : 0;
  }
  for (uint32_t handle = 1; handle <= forms_.handles(); ++handle) {
    const StoredForm* form = forms_.Find(handle);
    if (form == nullptr) {
      continue;
    }
    complete += form->state == StoredForm::State::kComplete ? 1 : 0;
    incomplete += form->state == StoredForm::State::kIncomplete ? 1 : 0;
    doomed += form->state == StoredForm::State::kDoomed ? 1 : 0;
    stored_bytes += form->state == StoredForm::State::kComplete ? form->info.stored_bytes : 0;
    const uint32_t pins = form->word.load() & PinWord::kCount;
    if (form->state == StoredForm::State::kDoomed && pins == 0 && form->writers == 0) {
      return Broken("a doomed form was kept", handle);
    }
    if (form->state == StoredForm::State::kIncomplete && form->parts.empty() &&
        form->writers == 0) {
      return Broken("an empty set was kept", handle);
    }
  }
  if (waiting != stats_.incomplete_blocks) {
    return Broken("blocks that wait are miscounted", waiting);
  }
  if (complete != stats_.forms || incomplete != incomplete_.size() ||
      doomed != stats_.doomed_forms || blocks != stats_.blocks ||
      stored_bytes != stats_.stored_bytes) {
    return Broken("forms are miscounted", complete);
  }
  return queued == queue_.size() ? absl::OkStatus() : Broken("the victim queue's size", queued);
}

}  // namespace tokura::node
