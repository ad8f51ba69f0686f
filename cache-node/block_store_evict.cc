// The way out: eviction, removal, expiry.

#include <algorithm>

#include "cache-node/block_store_core.h"
#include "common/check.h"

namespace tokura::node {
namespace {

// Bounds of one call. Steps are touched blocks put where they belong, so they are paid for by
// touches.
constexpr size_t kEvictFormsPerCall = 256;
constexpr size_t kStepsPerCall = 4096;
constexpr size_t kSearchPerCall = 32768;
constexpr size_t kOrphanStepsPerCall = 256;
constexpr size_t kIncompleteScan = 16;
constexpr size_t kOverduePerCall = 4096;

}  // namespace

void StoreCore::CountWaiting(StoredBlock& block) {
  const bool waiting = block.complete == nullptr && block.incomplete != nullptr;
  stats_.incomplete_blocks += waiting ? 1 : 0;
  stats_.incomplete_blocks -= block.waiting ? 1 : 0;
  block.waiting = waiting;
}

void StoreCore::LinkIncomplete(StoredForm& form) {
  form.next = form.block->incomplete;
  form.block->incomplete = &form;
  incomplete_.emplace(form.started, form.handle);
  CountWaiting(*form.block);
  tree_.Changed(*form.block);
}

// Take `form` out of its block's list, and out of the sums over complete or incomplete forms.
void StoreCore::Unlink(StoredForm& form) {
  StoredBlock& block = *form.block;
  const bool complete = form.state == StoredForm::State::kComplete;
  {
    MutexLock lock(tree_.index().MutexOf(block));
    StoredForm** link = complete ? &block.complete : &block.incomplete;
    while (*link != &form) {
      TOKURA_CHECK(*link != nullptr);
      link = &(*link)->next;
    }
    *link = form.next;
    form.next = nullptr;
  }
  CountWaiting(block);
  if (!complete) {
    TOKURA_CHECK(incomplete_.erase({form.started, form.handle}) == 1);
    return;
  }
  log_.Append(block.key);
  if (form.expires != TimePoint::max()) {
    TOKURA_CHECK(expiring_.erase({form.expires, form.handle}) == 1);
  }
  stats_.blocks -= block.complete == nullptr ? 1 : 0;
  --stats_.forms;
  stats_.stored_bytes -= form.info.stored_bytes;
  stats_.logical_bytes -= form.info.logical_bytes;
  CodecUsage& usage = stats_.by_codec[form.info.codec];
  --usage.forms;
  usage.stored_bytes -= form.info.stored_bytes;
  usage.logical_bytes -= form.info.logical_bytes;
}

void StoreCore::Count(const StoredForm& form, EvictReason reason, TimePoint now) {
  const size_t index = static_cast<size_t>(reason);
  ++counters_.evicted_forms[index];
  counters_.evicted_bytes[index] += form.info.stored_bytes;
  if (form.state != StoredForm::State::kComplete) {
    return;
  }
  const double seconds = std::chrono::duration<double>(now - form.completed).count();
  const auto bucket = std::lower_bound(kResidenceSeconds.begin(), kResidenceSeconds.end(), seconds);
  ++counters_.residence[static_cast<size_t>(bucket - kResidenceSeconds.begin())];
  counters_.residence_seconds_sum += seconds;
}

// End a complete or incomplete form: nobody finds it any more; it is freed now or by the last that
// holds it. The block's descriptor may be gone afterwards.
void StoreCore::Drop(StoredForm& form, EvictReason reason, TimePoint now) {
  const bool incomplete = form.state == StoredForm::State::kIncomplete;
  Count(form, reason, now);
  Unlink(form);
  form.state = StoredForm::State::kDoomed;
  form.word.fetch_or(PinWord::kDoomed, std::memory_order_acq_rel);
  ++stats_.doomed_forms;
  form.block->parked = false;
  tree_.Changed(*form.block);
  // Nobody reads the parts of an incomplete form.
  const bool by_order = reason == EvictReason::kRemoved || reason == EvictReason::kDamaged;
  if (incomplete || (bugs_.evict_pinned && !by_order)) {
    FreeParts(form);
  }
  FreeIfUnused(form);
}

void StoreCore::WriteFreeHeader(const ExtentAllocator::Range& range) {
  if (range.bytes > 0) {
    ExtentHeader header;
    header.extent_bytes = range.bytes;
    arena_->WriteHeader(range.offset, header);
  }
}

void StoreCore::FreeExtent(uint64_t offset) {
  WriteFreeHeader(allocator_.Free(offset));
}

void StoreCore::FreeParts(StoredForm& form) {
  for (const PartSlot& slot : form.parts) {
    FreeExtent(slot.offset);
  }
  form.parts = {};
  form.records = {};
}

// Free a doomed form that nobody holds, and its block when that was the last reason to keep it.
void StoreCore::FreeIfUnused(StoredForm& form) {
  TOKURA_CHECK(form.state == StoredForm::State::kDoomed);
  if (form.writers > 0 || (form.word.load(std::memory_order_acquire) & PinWord::kCount) > 0) {
    return;
  }
  FreeParts(form);
  --stats_.doomed_forms;
  StoredBlock& block = *form.block;
  TOKURA_CHECK(block.forms > 0);
  --block.forms;
  forms_.Release(&form);
  tree_.Changed(block);
  tree_.ReleaseIfUnused(block);
}

// Win the form against readers: from here on it cannot be pinned.
bool StoreCore::TakeFromReaders(StoredForm& form) {
  uint32_t word = form.word.load(std::memory_order_relaxed);
  while ((word & PinWord::kCount) == 0) {
    if (form.word.compare_exchange_weak(word, PinWord::kExclusive, std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
      return true;
    }
  }
  return bugs_.evict_pinned;
}

// Evict one form of a block that nobody builds on: of those that are not pinned the largest. When
// all are pinned, the block is parked until one is not. Returns whether a form was evicted.
bool StoreCore::EvictBlock(StoredBlock& block, EvictReason reason, TimePoint now) {
  StoredForm* victim = nullptr;
  for (StoredForm* form = block.complete; form != nullptr; form = form->next) {
    const bool free = (form->word.load(std::memory_order_relaxed) & PinWord::kCount) == 0;
    const bool better = victim == nullptr || form->info.stored_bytes > victim->info.stored_bytes;
    if ((free || bugs_.evict_pinned) && better) {
      victim = form;
    }
  }
  if (victim != nullptr && TakeFromReaders(*victim)) {
    queue_.Advance(block);
    Drop(*victim, reason, now);
    return true;
  }
  block.parked = true;
  for (StoredForm* form = block.complete; form != nullptr; form = form->next) {
    const uint32_t word = form->word.fetch_or(PinWord::kParked, std::memory_order_acq_rel);
    if ((word & PinWord::kCount) == 0) {
      // Unpinned meanwhile, without seeing the flag: not parked after all.
      form->word.fetch_and(~PinWord::kParked, std::memory_order_relaxed);
      block.parked = false;
    }
  }
  tree_.Changed(block);
  return false;
}

// Drop the oldest set that has waited too long for its parts, or that nobody is sending to and that
// has not grown for `stalled`.
bool StoreCore::EvictOldIncomplete(Duration stalled, TimePoint now) {
  size_t scan = kIncompleteScan;
  for (auto entry = incomplete_.begin(); entry != incomplete_.end() && scan > 0; ++entry, --scan) {
    StoredForm& form = *forms_.Get(entry->second);
    const bool old = now - form.started >= options_.incomplete_age;
    if (old || (form.writers == 0 && now - form.progressed >= stalled)) {
      Drop(form, EvictReason::kIncomplete, now);
      return true;
    }
  }
  return false;
}

// Drop the form whose time passed first, if any has. Readers keep the bytes that they pin.
bool StoreCore::EvictExpired(TimePoint now) {
  if (expiring_.empty() || expiring_.begin()->first > now) {
    return false;
  }
  Drop(*forms_.Get(expiring_.begin()->second), EvictReason::kExpired, now);
  return true;
}

// Evict one form that nobody can use: of a stalled set, past its time to live, or of an orphan.
// False: there is none that may go, or the budget is spent.
bool StoreCore::EvictUseless(EvictBudget& budget, TimePoint now) {
  if (budget.forms == 0) {
    return false;
  }
  if (EvictOldIncomplete(options_.lease_age, now) || EvictExpired(now)) {
    --budget.forms;
    return true;
  }
  tree_.PropagateOrphans(kOrphanStepsPerCall);
  // A block whose readers came first is parked and leaves the queue, so this ends.
  while (StoredBlock* block = queue_.Front(budget.steps)) {
    if (block->rank.kind != 0) {
      return false;
    }
    if (EvictBlock(*block, EvictReason::kOrphan, now)) {
      --budget.forms;
      return true;
    }
  }
  return false;
}

// Evict one form in the order of eviction. False as above.
bool StoreCore::EvictNext(EvictReason reason, EvictBudget& budget, TimePoint now) {
  if (EvictUseless(budget, now)) {
    return true;
  }
  while (budget.forms > 0) {
    StoredBlock* block = queue_.Front(budget.steps);
    if (block == nullptr) {
      return false;
    }
    if (EvictBlock(*block, reason, now)) {
      --budget.forms;
      return true;
    }
  }
  return false;
}

bool StoreCore::MakeRoom(uint64_t extent_bytes, TimePoint now) {
  using Place = ExtentAllocator::Place;
  EvictBudget budget{kEvictFormsPerCall, kStepsPerCall, kSearchPerCall};
  if (extent_bytes > allocator_.capacity()) {
    return false;
  }
  while (!allocator_.Fits(extent_bytes, Place::kBest)) {
    // Where there is enough free space, but in pieces, evicting what is coldest would free more
    // pieces for a long time; what lies in one place makes room at once. What is of no use goes
    // first all the same.
    const bool fragmented = allocator_.free_bytes() >= extent_bytes;
    const bool evicted = EvictUseless(budget, now) ||
                         (fragmented && ClearWindow(extent_bytes, budget, now)) ||
                         EvictNext(EvictReason::kAllocation, budget, now);
    if (!evicted) {
      return allocator_.Fits(extent_bytes, Place::kAnywhere);
    }
  }
  return true;
}

// Descriptors for one more block, its parent and a form.
bool StoreCore::MakeDescriptors(TimePoint now) {
  EvictBudget budget{kEvictFormsPerCall, kStepsPerCall, kSearchPerCall};
  while (!tree_.HasRoom(2) || forms_.full()) {
    if (!EvictNext(EvictReason::kAllocation, budget, now)) {
      return false;
    }
  }
  return true;
}

bool StoreCore::Remove(const Fingerprint& fingerprint, const BlockKey& key, TimePoint now) {
  MutexLock lock(mutex_);
  StoredBlock* block = tree_.Find(fingerprint, key);
  if (block == nullptr || !block->present()) {
    return false;
  }
  const bool visible = block->complete != nullptr;
  while (block != nullptr && block->present()) {
    Drop(block->complete != nullptr ? *block->complete : *block->incomplete, EvictReason::kRemoved,
         now);
    block = tree_.Find(fingerprint, key);
  }
  return visible;
}

// A form that is pinned is never another one: its descriptor is not used again before the last pin
// has gone.
bool StoreCore::RemoveDamaged(StoredForm& form, TimePoint now) {
  form.damaged.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  if (form.state != StoredForm::State::kComplete) {
    return false;
  }
  Drop(form, EvictReason::kDamaged, now);
  return true;
}

void StoreCore::FindOverdue(TimePoint now, Maintenance& out) {
  size_t scan = kOverduePerCall;
  for (auto& [id, pending] : pending_) {
    if (now - pending.since < options_.lease_age) {
      break;
    }
    if (scan-- == 0) {
      out.more = !out.overdue_owners.empty();
      break;
    }
    const bool stuck = now - owners_[pending.owner].progressed >= options_.lease_age ||
                       now - pending.since >= options_.incomplete_age;
    if (stuck && !pending.overdue) {
      pending.overdue = true;
      ++counters_.reservations_overdue;
    }
    if (pending.overdue) {
      out.overdue_owners.push_back(pending.owner);
    }
  }
  std::sort(out.overdue_owners.begin(), out.overdue_owners.end());
  out.overdue_owners.erase(std::unique(out.overdue_owners.begin(), out.overdue_owners.end()),
                           out.overdue_owners.end());
}

Maintenance StoreCore::Maintain(TimePoint now) {
  MutexLock lock(mutex_);
  Maintenance out;
  FindOverdue(now, out);
  EvictBudget budget{kEvictFormsPerCall, kStepsPerCall, kSearchPerCall};
  while (budget.forms > 0 &&
         (EvictOldIncomplete(options_.incomplete_age, now) || EvictExpired(now))) {
    --budget.forms;
  }
  out.more = tree_.PropagateOrphans(kOrphanStepsPerCall) || out.more;
  const double capacity = static_cast<double>(allocator_.capacity());
  evicting_ =
      evicting_ || static_cast<double>(allocator_.used()) > capacity * options_.high_watermark;
  while (evicting_ && static_cast<double>(allocator_.used()) > capacity * options_.low_watermark) {
    if (!EvictNext(EvictReason::kWatermark, budget, now)) {
      break;
    }
  }
  out.more = out.more || budget.forms == 0;
  evicting_ = evicting_ && budget.forms == 0;
  return out;
}

}  // namespace tokura::node
