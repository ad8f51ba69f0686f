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
// some of that may not go, or is too much.
std::optional<double> StoreCore::BlockCost(const StoredBlock& root, TimePoint now) const {
  double total = 0;
  size_t left = kDescendantsMax;
  for (const StoredBlock* block = &root; block != nullptr; block = NextInSubtree(root, block)) {
    if (left-- == 0) {
      return std::nullopt;
    }
    uint32_t forms = 0;
    for (const StoredForm* form = block->complete; form != nullptr; form = form->next) {
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
                                            TimePoint now) const {
  double total = 0;
  const uint64_t end = window.offset + window.bytes;
  for (uint64_t offset = window.offset; offset < end;) {
    const ExtentAllocator::Piece piece = allocator_.PieceAt(offset);
    offset = piece.range.offset + piece.range.bytes;
    if (piece.owner == 0) {
      continue;
    }
    const StoredForm& form = *forms_.Get(piece.owner);
    // A block with another form can lose this one without leaving a hole.
    const bool only_form = form.block->complete == &form && form.next == nullptr;
    const std::optional<double> cost =
        only_form ? BlockCost(*form.block, now) : FormCost(form, now);
    if (!cost.has_value()) {
      return std::nullopt;
    }
    total += *cost;
  }
  return total;
}

// Of a bounded number of windows, from where the last search ended, the cheapest.
std::optional<ExtentAllocator::Range> StoreCore::CheapestWindow(uint64_t extent_bytes,
                                                                TimePoint now) {
  std::optional<ExtentAllocator::Range> best;
  double best_cost = 0;
  bool wrapped = false;
  for (size_t i = 0; i < kWindowsPerSearch; ++i) {
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
    const std::optional<double> cost = WindowCost(*window, now);
    if (cost.has_value() && (!best.has_value() || *cost < best_cost)) {
      best = window;
      best_cost = *cost;
    }
  }
  return best;
}

// Evict what lies in the cheapest window, and what builds on it. False: nothing was evicted.
bool StoreCore::ClearWindow(uint64_t extent_bytes, EvictBudget& budget, TimePoint now) {
  const std::optional<ExtentAllocator::Range> window = CheapestWindow(extent_bytes, now);
  if (!window.has_value() || budget.forms == 0) {
    return false;
  }
  const uint64_t end = window->offset + window->bytes;
  bool evicted = false;
  for (uint64_t offset = window->offset; offset < end;) {
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
      gone = true;
    }
    evicted = evicted || gone;
    if (!gone) {
      break;  // A reader was faster.
    }
  }
  --budget.forms;
  return evicted;
}

// Deepest first, so that a reader that is faster leaves no hole. BlockCost has said that all may
// go.
bool StoreCore::EvictWithDescendants(StoredBlock& root, EvictBudget& budget, TimePoint now) {
  for (bool root_gone = false; !root_gone;) {
    StoredBlock* leaf = &root;
    while (leaf->first_child != nullptr) {
      leaf = leaf->first_child;
    }
    for (bool leaf_gone = false; !leaf_gone;) {
      StoredForm* form = leaf->complete;
      if (form == nullptr || !TakeFromReaders(*form)) {
        return false;
      }
      leaf_gone = form->next == nullptr;
      root_gone = leaf_gone && leaf == &root;
      Drop(*form, EvictReason::kFragmented, now);
      budget.forms -= budget.forms > 1 ? 1 : 0;
    }
  }
  return true;
}

}  // namespace tokura::node
