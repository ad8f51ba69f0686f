// Eviction against fragmentation: clear one range of the arena for one extent.

#include <algorithm>

#include "cache-node/block_store_core.h"

namespace tokura::node {
namespace {

constexpr size_t kWindowsPerSearch = 48;
constexpr size_t kDescendantsMax = 64;  // of one block that go with it

// The next block of the subtree of `root` in pre-order; null at its end.
const StoredBlock* NextInSubtree(const StoredBlock& root, const StoredBlock* block) {
  if (block->first_child != nullptr) {
    return block->first_child;
  }
  while (block != &root && block->next_sibling == nullptr) {
    block = block->parent;
  }
  return block == &root ? nullptr : block->next_sibling;
}

// One step of a search; false when none is left.
bool Spend(size_t& steps) {
  steps -= steps > 0 ? 1 : 0;
  return steps > 0;
}

}  // namespace

// What evicting `form` alone would cost: its share of the recompute cost, by how recently the block
// was used. Nothing when it may not go.
std::optional<double> StoreCore::FormCost(const StoredForm& form, TimePoint now) const {
  const bool pinned = (form.word.load(std::memory_order_relaxed) & PinWord::kCount) > 0;
  if (form.state != StoredForm::State::kComplete || form.writers > 0 || pinned) {
    return std::nullopt;
  }
  const StoredBlock& block = *form.block;
  const int64_t idle_ns =
      now.time_since_epoch().count() - block.touched_ns.load(std::memory_order_relaxed);
  const double idle_us = static_cast<double>(std::max<int64_t>(idle_ns, 0)) / 1000 + 1;
  const double cost = static_cast<double>(VictimQueue::Density(block)) *
                      static_cast<double>(form.info.stored_bytes);
  return block.orphan ? 0 : cost / idle_us;
}

// What evicting all forms of `block` would cost, with everything that builds on it. Nothing when
// some of that may not go, or is too much. What was found so far when the budget ends.
std::optional<double> StoreCore::BlockCost(const StoredBlock& root, EvictBudget& budget,
                                           TimePoint now) const {
  double total = 0;
  size_t left = kDescendantsMax;
  for (const StoredBlock* block = &root; block != nullptr; block = NextInSubtree(root, block)) {
    if (left-- == 0) {
      return std::nullopt;
    }
    if (!Spend(budget.search)) {
      return total;
    }
    uint32_t forms = 0;
    for (const StoredForm* form = block->complete; form != nullptr; form = form->next) {
      Spend(budget.search);
      const std::optional<double> cost = FormCost(*form, now);
      if (!cost.has_value()) {
        return std::nullopt;
      }
      total += *cost;
      ++forms;
    }
    // Others: being put, or removed and still pinned.
    if (forms != block->forms) {
      return std::nullopt;
    }
  }
  return total;
}

std::optional<double> StoreCore::WindowCost(const ExtentAllocator::Range& window,
                                            EvictBudget& budget, TimePoint now) const {
  double total = 0;
  const uint64_t end = window.offset + window.bytes;
  for (uint64_t offset = window.offset; offset < end && Spend(budget.search);) {
    const ExtentAllocator::Piece piece = allocator_.PieceAt(offset);
    offset = piece.range.offset + piece.range.bytes;
    if (piece.owner == 0) {
      continue;
    }
    const StoredForm& form = *forms_.Get(piece.owner);
    // A block with another form can lose this one without leaving a hole.
    const bool only_form = form.block->complete == &form && form.next == nullptr;
    const std::optional<double> cost =
        only_form ? BlockCost(*form.block, budget, now) : FormCost(form, now);
    if (!cost.has_value()) {
      return std::nullopt;
    }
    total += *cost;
  }
  return total;
}

// Of a bounded number of windows, from where the last search ended, the cheapest. The window in
// which the budget ended counts when there is no other: its search would end no sooner next time.
std::optional<ExtentAllocator::Range> StoreCore::CheapestWindow(uint64_t extent_bytes,
                                                                EvictBudget& budget,
                                                                TimePoint now) {
  std::optional<ExtentAllocator::Range> best;
  double best_cost = 0;
  bool wrapped = false;
  for (size_t i = 0; i < kWindowsPerSearch && budget.search > 0; ++i) {
    const auto window = allocator_.Candidate(extent_bytes, window_cursor_);
    if (!window.has_value()) {
      window_cursor_ = 0;
      if (wrapped) {
        break;
      }
      wrapped = true;
      continue;
    }
    window_cursor_ = window->offset + kExtentGranule;
    const std::optional<double> cost = WindowCost(*window, budget, now);
    const bool whole = budget.search > 0;
    if (cost.has_value() && (!best.has_value() || (whole && *cost < best_cost))) {
      best = window;
      best_cost = *cost;
    }
  }
  return best;
}

// Evict what lies in the cheapest window, and what builds on it, as far as the budget goes: the
// next search begins with the rest. False: nothing was evicted.
bool StoreCore::ClearWindow(uint64_t extent_bytes, EvictBudget& budget, TimePoint now) {
  if (budget.forms == 0) {
    return false;
  }
  const size_t search_before = budget.search;
  const std::optional<ExtentAllocator::Range> window = CheapestWindow(extent_bytes, budget, now);
  counters_.window_steps += search_before - budget.search;
  if (!window.has_value()) {
    return false;
  }
  const size_t forms_before = budget.forms;
  const uint64_t end = window->offset + window->bytes;
  uint64_t offset = window->offset;
  while (offset < end && budget.forms > 0) {
    const ExtentAllocator::Piece piece = allocator_.PieceAt(offset);
    offset = piece.range.offset + piece.range.bytes;
    if (piece.owner == 0) {
      continue;
    }
    StoredForm& form = *forms_.Get(piece.owner);
    const bool only_form = form.block->complete == &form && form.next == nullptr;
    bool gone = false;
    if (only_form) {
      gone = EvictWithDescendants(*form.block, budget, now);
    } else if (TakeFromReaders(form)) {
      Drop(form, EvictReason::kFragmented, now);
      --budget.forms;
      gone = true;
    }
    if (!gone) {
      break;  // A reader was faster, or the budget has ended.
    }
  }
  if (budget.forms == 0) {
    window_cursor_ = window->offset;
  }
  return budget.forms < forms_before;
}

// Deepest first, so that a reader that is faster, or the budget's end, leaves no hole. Every form
// costs the way down to it, so longer chains than a search would have accepted (it may have ended
// before it saw how long this one is) are left to the order of eviction. Returns whether all went.
bool StoreCore::EvictWithDescendants(StoredBlock& root, EvictBudget& budget, TimePoint now) {
  for (bool root_gone = false; !root_gone;) {
    StoredBlock* leaf = &root;
    for (size_t depth = 0; leaf->first_child != nullptr; ++depth) {
      if (depth == kDescendantsMax) {
        return false;
      }
      leaf = leaf->first_child;
      ++counters_.window_steps;
    }
    for (bool leaf_gone = false; !leaf_gone;) {
      StoredForm* form = leaf->complete;
      if (budget.forms == 0 || form == nullptr || !TakeFromReaders(*form)) {
        return false;
      }
      leaf_gone = form->next == nullptr;
      root_gone = leaf_gone && leaf == &root;
      Drop(*form, EvictReason::kFragmented, now);
      --budget.forms;
    }
  }
  return true;
}

}  // namespace tokura::node
