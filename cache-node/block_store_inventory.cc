// What coordinators are told of the store, and what they tell it.

#include <algorithm>
#include <set>

#include "cache-node/block_store_core.h"

namespace tokura::node {
namespace {

// Handles or keys per hold of the store's lock, so that puts wait some ten microseconds at most.
constexpr size_t kLockedSlice = 256;

}  // namespace

Inventory StoreCore::Describe(std::span<const BlockKey> keys, TimePoint now) const {
  AcceptRule any;
  any.allow_summary = true;
  const AcceptMatcher matcher(any, codecs_);
  Inventory inventory;
  inventory.records.resize(keys.size());
  inventory.forms.reserve(keys.size());
  for (size_t done = 0; done < keys.size();) {
    const size_t window = std::min(BlockIndex::kVisitMax, keys.size() - done);
    tree_.index().VisitKeys(
        keys.subspan(done, window), [&](size_t i, const StoredBlock* first_block) {
          Inventory::Record& record = inventory.records[done + i];
          record.key = keys[done + i];
          record.first_form = static_cast<uint32_t>(inventory.forms.size());
          for (const StoredBlock* block = first_block; block != nullptr; block = block->namesake) {
            for (const StoredForm* form = block->complete; form != nullptr; form = form->next) {
              if (form->expires <= now) {
                continue;
              }
              if (inventory.forms.size() == record.first_form) {
                // Fixed while a form is linked (see StoredBlock), which this shard's lock ensures.
                record.parent = block->parent_key;
              }
              inventory.forms.push_back(form->info);
            }
          }
          const auto begin = inventory.forms.begin() + record.first_form;
          if (inventory.forms.end() - begin > kInventoryFormsMax) {
            std::partial_sort(
                begin, begin + kInventoryFormsMax, inventory.forms.end(),
                [&](const FormInfo& a, const FormInfo& b) { return matcher.Better(a, b); });
            inventory.forms.resize(record.first_form + kInventoryFormsMax);
          }
          record.forms = static_cast<uint32_t>(inventory.forms.size()) - record.first_form;
        });
    done += window;
  }
  return inventory;
}

HeldKeys StoreCore::ListHeld(uint64_t cursor, size_t max) const {
  HeldKeys held;
  held.cursor = cursor;
  std::set<BlockKey> shared;  // keys of several namespaces that this piece has named
  for (size_t left = max; left > 0 && !held.end;) {
    const size_t slice = std::min(left, kLockedSlice);
    left -= slice;
    MutexLock lock(mutex_);
    const uint64_t end = std::min<uint64_t>(held.cursor + slice, tree_.blocks().handles());
    while (held.cursor < end) {
      // A block never moves to another handle, so one that stays is met.
      const StoredBlock* block = tree_.blocks().Find(static_cast<uint32_t>(++held.cursor));
      if (block != nullptr && block->complete != nullptr &&
          (!block->shares_key || shared.insert(block->key).second)) {
        held.keys.push_back(block->key);
      }
    }
    held.end = held.cursor >= tree_.blocks().handles();
  }
  return held;
}

void StoreCore::TouchKeys(std::span<const BlockKey> keys, TimePoint now) {
  std::vector<StoredBlock*> marked;
  for (size_t done = 0; done < keys.size();) {
    const size_t window = std::min(kLockedSlice, keys.size() - done);
    MutexLock lock(mutex_);
    marked.clear();
    tree_.index().VisitKeys(keys.subspan(done, window), [&](size_t, StoredBlock* block) {
      for (; block != nullptr; block = block->namesake) {
        queue_.Touch(*block, now);
        if (block->marked) {
          marked.push_back(block);
        }
      }
    });
    for (StoredBlock* block : marked) {
      tree_.SetMarked(*block, OrphanMark::kNo);
    }
    done += window;
  }
}

size_t StoreCore::MarkOrphans(std::span<const BlockKey> keys) {
  std::vector<StoredBlock*> held;
  size_t marked = 0;
  for (size_t done = 0; done < keys.size();) {
    const size_t window = std::min(kLockedSlice, keys.size() - done);
    MutexLock lock(mutex_);
    held.clear();
    tree_.index().VisitKeys(keys.subspan(done, window), [&](size_t, StoredBlock* block) {
      for (; block != nullptr; block = block->namesake) {
        if (block->complete != nullptr && !block->marked) {
          held.push_back(block);
        }
      }
    });
    for (StoredBlock* block : held) {
      // A key may be named twice.
      marked += block->marked ? 0 : 1;
      tree_.SetMarked(*block, OrphanMark::kYes);
    }
    done += window;
  }
  return marked;
}

}  // namespace tokura::node
