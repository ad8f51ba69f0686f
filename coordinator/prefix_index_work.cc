// The part of the prefix index that is done in slices: sweeping, freeing, telling of orphans.

#include <algorithm>

#include "common/check.h"
#include "coordinator/prefix_index.h"
#include "coordinator/prefix_index_records.h"
#include "coordinator/prefix_index_visit.h"

namespace tokura::coordinator {
namespace {
// Records swept between two looks at which inventories are done.
constexpr size_t kSweepBatch = 64;
// What removing forms from a record costs, in records looked at.
constexpr size_t kRemovalSteps = 4;

void Spend(size_t& steps, size_t spent) {
  steps -= std::min(steps, spent);
}
}  // namespace

bool PrefixIndex::Work(size_t steps, Orphans orphans) {
  Reap(steps);
  if (orphans == Orphans::kTell) {
    TellOrphans(steps);
  }
  // Half, so that whoever makes rings of any length does not keep the rest from being done.
  const size_t rings = ring_suspects_.empty() ? 0 : (steps + 1) / 2;
  OpenRings(rings);
  Spend(steps, rings);
  Sweep(steps);
  const bool orphans_left = walk_.root != 0 || !orphans_.empty();
  return !reap_.empty() || !dropped_.empty() || !ring_suspects_.empty() ||
         (orphans == Orphans::kTell && orphans_left);
}

void PrefixIndex::Reap(size_t& steps) {
  while (steps > 0 && !reap_.empty()) {
    const uint32_t handle = reap_.back();
    reap_.pop_back();
    (*records_)[handle].reap_due = false;
    FreeIfUnneeded(handle);
    Spend(steps, kRemovalSteps);
  }
}

void PrefixIndex::TellOrphans(size_t& steps) {
  while (steps > 0 && (walk_.root != 0 || !orphans_.empty())) {
    if (walk_.root == 0) {
      StartWalk();
    } else {
      StepWalk();
    }
    Spend(steps, 1);
  }
}

void PrefixIndex::StartWalk() {
  walk_.root = orphans_.front();
  orphans_.pop_front();
  walk_.at = (*records_)[walk_.root].child;
  walk_.leaving = false;
  if (walk_.at == 0) {
    EndWalk();
  }
}

void PrefixIndex::StepWalk() {
  if ((*records_)[walk_.root].forms > 0) {
    EndWalk();  // the block is back, and with it the prefix of those that are not told yet
    return;
  }
  if (walk_.leaving && (walk_.at == walk_.root || walk_.at == 0)) {
    EndWalk();  // 0: the ring that the root is in has been opened
    return;
  }
  const uint32_t at = walk_.at;
  const Record& record = (*records_)[at];
  // What vanished too has its own turn. Parents that form a ring lead back to the root.
  if (!walk_.leaving && at != walk_.root && HasSource(record)) {
    TellOrphan(record);
    if (record.child != 0) {
      walk_.at = record.child;
      return;
    }
  }
  LeaveWalked(record);
}

// Go on from a record, or from below it, without going down.
void PrefixIndex::LeaveWalked(const Record& record) {
  walk_.leaving = record.next == 0;
  walk_.at = walk_.leaving ? record.parent : record.next;
}

void PrefixIndex::EndWalk() {
  const uint32_t root = walk_.root;
  walk_ = OrphanWalk{};
  (*records_)[root].orphans_due = false;
  FreeIfUnneeded(root);
}

// The way up from a suspect ends at a root, at itself, or at another suspect. In a ring with
// several of them the one that is looked at last finds that out, for all others have been looked at
// then; so no way up goes round for ever. Parents never change, and nobody with children is freed.
void PrefixIndex::OpenRings(size_t steps) {
  for (; steps > 0 && !ring_suspects_.empty(); --steps) {
    const uint32_t suspect = ring_suspects_.front();
    const uint32_t above = (*records_)[climb_at_ == 0 ? suspect : climb_at_].parent;
    if (above != 0 && !(*records_)[above].ring_due) {
      climb_at_ = above;
      continue;
    }
    if (above == suspect) {
      const uint32_t parent = (*records_)[suspect].parent;
      records_->Unlink(suspect);
      ReapLater(parent);
    }
    climb_at_ = 0;
    ring_suspects_.pop_front();
    (*records_)[suspect].ring_due = false;
    FreeIfUnneeded(suspect);
  }
}

bool PrefixIndex::HasSource(const Record& record) const {
  bool has = false;
  records_->VisitForms(record, [&](const FormEntry& form) {
    has = has || sources_[form.source].state != SourceState::kDropped;
  });
  return has;
}

void PrefixIndex::TellOrphan(const Record& record) const {
  VisitNodes(record, [&](NodeSlot node) { sink_.Orphaned(node, record.key); });
}

void PrefixIndex::Sweep(size_t& steps) {
  while (steps > 0 && !dropped_.empty()) {
    for (size_t i = 0; i < kSweepBatch; ++i) {
      sweep_at_ = sweep_at_ >= records_->handles() ? 1 : sweep_at_ + 1;
      SweepRecord(sweep_at_, steps);
    }
    Spend(steps, kSweepBatch);
    const auto swept = std::remove_if(dropped_.begin(), dropped_.end(), [&](SourceId id) {
      const bool done = sources_[id].forms == 0;
      if (done) {
        sources_[id] = Source{};
        free_sources_.push_back(id);
      }
      return done;
    });
    dropped_.erase(swept, dropped_.end());
  }
}

void PrefixIndex::SweepRecord(uint32_t handle, size_t& steps) {
  Record& record = (*records_)[handle];
  if (record.forms == 0) {
    return;
  }
  if (RemoveDroppedForms(record) == 0) {
    return;
  }
  Spend(steps, kRemovalSteps);
  if (record.forms == 0) {
    Vanished(handle);
  }
}

size_t PrefixIndex::RemoveDroppedForms(Record& record) {
  const size_t removed = records_->RemoveForms(record, [&](const FormEntry& form) {
    Source& source = sources_[form.source];
    const bool goes = source.state == SourceState::kDropped;
    source.forms -= goes ? 1 : 0;
    return goes;
  });
  forms_ -= removed;
  return removed;
}

}  // namespace tokura::coordinator
