#include "cache-node/block_store_core.h"

#include <algorithm>

#include "common/check.h"

namespace tokura::node {
namespace {

constexpr uint64_t kBytesPerDescriptor = 4096;
constexpr uint64_t kDescriptorsMin = 1024;
constexpr uint64_t kDescriptorsMax = uint64_t{1} << 31;

uint32_t DescriptorsMax(const StoreOptions& options) {
  if (options.blocks_max != 0) {
    return options.blocks_max;
  }
  return static_cast<uint32_t>(
      std::clamp(options.host_bytes / kBytesPerDescriptor, kDescriptorsMin, kDescriptorsMax));
}

// Keys per visit of the index: small at first, because most lookups that miss miss early.
size_t NextWindow(size_t done, size_t total) {
  const size_t window = done < 32 ? 32 : BlockIndex::kVisitMax;
  return std::min(window, total - done);
}

}  // namespace

StoreCore::StoreCore(StoreOptions options, PlantedBugs bugs, std::unique_ptr<Arena> arena)
    : options_(options),
      bugs_(bugs),
      arena_(std::move(arena)),
      tree_(DescriptorsMax(options), queue_),
      allocator_(arena_->bytes().size(), kExtentGranule),
      forms_(DescriptorsMax(options)),
      log_(options.change_log_max) {
  ExtentHeader header;
  header.extent_bytes = arena_->bytes().size();
  arena_->WriteHeader(0, header);
}

StoreCore::~StoreCore() {
  MutexLock lock(mutex_);
  TOKURA_CHECK(pending_.empty());
  TOKURA_CHECK(pinned_forms_.load() == 0);
}

std::span<std::byte> StoreCore::Payload(const PartSlot& slot) const {
  return arena_->Payload(slot.offset, slot.bytes);
}

std::vector<FormInfo> StoreCore::Find(const Fingerprint& fingerprint,
                                      std::span<const BlockKey> keys, const AcceptRule& accept,
                                      Touch touch, TimePoint now) {
  const AcceptMatcher matcher(accept, codecs_);
  std::vector<FormInfo> found;
  while (found.size() < keys.size()) {
    const size_t base = found.size();
    const size_t window = NextWindow(base, keys.size());
    size_t present = window;  // leading keys of the window that have an acceptable form
    found.resize(base + window);
    tree_.index().VisitAll(
        fingerprint, keys.subspan(base, window), [&](size_t i, StoredBlock* block) {
          const StoredForm* form =
              block == nullptr ? nullptr : matcher.Best(block->complete, ContentId{}, now);
          if (form == nullptr) {
            present = std::min(present, i);
            return;
          }
          found[base + i] = form->info;
          if (touch == Touch::kYes) {
            queue_.Touch(*block, now);
          }
        });
    if (present < window) {
      found.resize(base + present);
      break;
    }
  }
  return found;
}

bool StoreCore::TryPin(StoredForm& form) {
  uint32_t word = form.word.load(std::memory_order_relaxed);
  do {
    if ((word & (PinWord::kExclusive | PinWord::kDoomed)) != 0) {
      return false;
    }
  } while (!form.word.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                            std::memory_order_relaxed));
  if ((word & PinWord::kCount) == 0) {
    pinned_forms_.fetch_add(1, std::memory_order_relaxed);
    pinned_bytes_.fetch_add(form.info.stored_bytes, std::memory_order_relaxed);
  }
  return true;
}

std::vector<FormPin> StoreCore::Pin(const PinQuery& query, TimePoint now) {
  const AcceptMatcher matcher(query.accept, codecs_);
  TOKURA_CHECK(query.content_ids.empty() || query.content_ids.size() == query.keys.size());
  TOKURA_CHECK(query.held.empty() || query.held.size() == query.keys.size());
  std::vector<FormPin> pins;
  pins.reserve(query.keys.size());
  while (pins.size() < query.keys.size()) {
    const size_t base = pins.size();
    const size_t window = NextWindow(base, query.keys.size());
    size_t present = window;
    pins.resize(base + window);
    tree_.index().VisitAll(
        query.fingerprint, query.keys.subspan(base, window), [&](size_t i, StoredBlock* block) {
          const ContentId content =
              query.content_ids.empty() ? ContentId{} : query.content_ids[base + i];
          const FormPin* held = query.held.empty() ? nullptr : query.held[base + i];
          if (held != nullptr && !held->damaged() && matcher.Wants(held->info(), content)) {
            pins[base + i] = held->Clone();
          } else {
            StoredForm* form =
                block == nullptr ? nullptr : matcher.Best(block->complete, content, now);
            if (form == nullptr || !TryPin(*form)) {
              present = std::min(present, i);
              return;
            }
            pins[base + i] = FormPin(this, form);
          }
          if (block != nullptr) {
            queue_.Touch(*block, now);
          }
        });
    if (present < window && query.gaps == Gaps::kCut) {
      pins.resize(base + present);
      break;
    }
  }
  return pins;
}

std::vector<FormPin> StoreCore::PinForms(const Fingerprint& fingerprint, const BlockKey& key,
                                         TimePoint now) {
  std::vector<FormPin> pins;
  tree_.index().VisitAll(fingerprint, {&key, 1}, [&](size_t, StoredBlock* block) {
    for (StoredForm* form = block == nullptr ? nullptr : block->complete; form != nullptr;
         form = form->next) {
      if (form->expires > now && TryPin(*form)) {
        pins.push_back(FormPin(this, form));
      }
    }
  });
  return pins;
}

void StoreCore::Unpin(StoredForm& form) {
  constexpr uint32_t kNeedsLock = PinWord::kDoomed | PinWord::kParked;
  const uint64_t bytes = form.info.stored_bytes;
  uint32_t word = form.word.load(std::memory_order_relaxed);
  while ((word & PinWord::kCount) != 1 || (word & kNeedsLock) == 0) {
    TOKURA_CHECK((word & PinWord::kCount) > 0);
    if (form.word.compare_exchange_weak(word, word - 1, std::memory_order_release,
                                        std::memory_order_relaxed)) {
      // The form may be gone from here on.
      if ((word & PinWord::kCount) == 1) {
        pinned_forms_.fetch_sub(1, std::memory_order_relaxed);
        pinned_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
      }
      return;
    }
  }
  // Perhaps the last pin of a doomed or parked form. It is given up under the lock only, so that of
  // several that believe to be the last one really is, while the form still exists.
  MutexLock lock(mutex_);
  word = form.word.fetch_sub(1, std::memory_order_acq_rel);
  if ((word & PinWord::kCount) != 1) {
    return;
  }
  pinned_forms_.fetch_sub(1, std::memory_order_relaxed);
  pinned_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  StoredBlock& block = *form.block;
  if ((word & PinWord::kDoomed) != 0) {
    FreeIfUnused(form);
    return;
  }
  form.word.fetch_and(~PinWord::kParked, std::memory_order_relaxed);
  block.parked = false;
  tree_.Changed(block);
}

std::vector<FormInfo> StoreCore::Forms(const Fingerprint& fingerprint, const BlockKey& key,
                                       TimePoint now) const {
  AcceptRule any;
  any.allow_summary = true;
  const AcceptMatcher matcher(any, codecs_);
  std::vector<FormInfo> forms;
  tree_.index().VisitAll(fingerprint, {&key, 1}, [&](size_t, const StoredBlock* block) {
    for (const StoredForm* form = block == nullptr ? nullptr : block->complete; form != nullptr;
         form = form->next) {
      if (form->expires > now) {
        forms.push_back(form->info);
      }
    }
  });
  std::sort(forms.begin(), forms.end(),
            [&](const FormInfo& a, const FormInfo& b) { return matcher.Better(a, b); });
  return forms;
}

void StoreCore::TouchAll(const Fingerprint& fingerprint, std::span<const BlockKey> keys,
                         TimePoint now) {
  for (size_t done = 0; done < keys.size();) {
    const size_t window = std::min(BlockIndex::kVisitMax, keys.size() - done);
    tree_.index().VisitAll(fingerprint, keys.subspan(done, window),
                           [&](size_t, StoredBlock* block) {
                             if (block != nullptr) {
                               queue_.Touch(*block, now);
                             }
                           });
    done += window;
  }
}

StoreStats StoreCore::stats() const {
  MutexLock lock(mutex_);
  StoreStats stats = stats_;
  stats.capacity_bytes = allocator_.capacity();
  stats.used_bytes = allocator_.used();
  const uint64_t largest = allocator_.largest_free();
  stats.largest_free_bytes = largest > kExtentHeaderBytes ? largest - kExtentHeaderBytes : 0;
  stats.pinned_forms = pinned_forms_.load(std::memory_order_relaxed);
  stats.pinned_bytes = pinned_bytes_.load(std::memory_order_relaxed);
  stats.incomplete_forms = incomplete_.size();
  stats.reservations = pending_.size();
  return stats;
}

StoreCounters StoreCore::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace tokura::node
