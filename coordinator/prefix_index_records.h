#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "coordinator/prefix_index.h"
#include "coordinator/prefix_index_memory.h"
#include "coordinator/prefix_index_table.h"

namespace tokura::coordinator {

// One form of a block in one inventory, as records keep it.
struct FormEntry {
  SourceId source = 0;  // 0: none
  ClassId form_class = 0;
  uint32_t stored_bytes = 0;
  float error_mean = 0;
  float error_max = 0;
};

// What is known of one block: one cache line, so that a lookup waits for memory once. A record
// without forms stays while held blocks name it as their parent.
struct alignas(64) Record {
  BlockKey key;
  uint32_t parent = 0;  // record handles; 0: none
  uint32_t child = 0;   // the first one; children are linked by next and previous
  uint32_t next = 0;    // of a free record: the next free one
  uint32_t previous = 0;
  FormEntry form;        // the first one
  uint32_t more = 0;     // node of further forms
  uint32_t touched = 0;  // ticks of the last time that its heat was brought up to date
  float heat = 0;        // lookups, decaying
  uint8_t forms = 0;
  bool in_use : 1 = false;
  bool orphans_due : 1 = false;  // waits for its descendants to be told, or they are being told
  bool reap_due : 1 = false;     // waits to be looked at by Work
  bool ring_due : 1 = false;     // likewise: its parent may be one of its descendants
};
static_assert(sizeof(Record) == 64);

// Records, found by key, their forms, and the links between them. Thread-compatible.
class RecordStore {
 public:
  static absl::StatusOr<std::unique_ptr<RecordStore>> Create(uint64_t records_max,
                                                             uint64_t hash_seed);

  Record& operator[](uint32_t handle) { return records_[handle]; }
  const Record& operator[](uint32_t handle) const { return records_[handle]; }
  uint32_t handles() const { return used_; }  // handles are 1…handles()
  uint64_t size() const { return table_.size(); }

  uint32_t Hash(const BlockKey& key) const;
  uint32_t Find(const BlockKey& key, uint32_t hash) const;
  void PrefetchBucket(uint32_t hash) const { table_.Prefetch(hash); }
  // Begin to load the record that probably has this hash; its handle, or 0. Its bucket should be
  // there already.
  uint32_t PrefetchRecord(uint32_t hash) const;
  // Call visit(i, handle or 0) for each key in order, until it returns false. Loads what the next
  // keys need meanwhile.
  template <typename Visit>
  void FindAll(std::span<const BlockKey> keys, const Visit& visit) const;

  // A record for a key that has none. 0: there are records_max, or no memory.
  uint32_t Add(const BlockKey& key, uint32_t hash);
  // A record without forms and children; its links to others are undone.
  void Free(uint32_t handle);
  // `child` has no parent yet and is another record.
  void Link(uint32_t child, uint32_t parent);
  // `child` has no parent from now on, if it had one.
  void Unlink(uint32_t child);

  // False: the record has kFormsMax, or no memory.
  bool AddForm(Record& record, const FormEntry& form);
  // Remove the forms for which goes(form) holds; how many.
  template <typename Goes>
  size_t RemoveForms(Record& record, const Goes& goes);
  // Call visit(form) for each form.
  template <typename Visit>
  void VisitForms(const Record& record, const Visit& visit) const;

  uint64_t table_moves() const { return table_.moves(); }
  uint64_t memory_bytes() const {
    return table_.memory_bytes() + records_.memory_bytes() + nodes_.memory_bytes();
  }

 private:
  struct FormNode {
    FormEntry form;
    uint32_t next = 0;
  };
  // Keys whose lines are loaded at a time, about as many as a core has misses under way.
  static constexpr size_t kGroup = 16;
  static constexpr size_t kWindowMax = 1024;

  explicit RecordStore(uint64_t hash_seed) : hash_seed_(hash_seed) {}
  // FindAll by way of the table; false when a visit ended it.
  template <typename Visit>
  bool FindInTable(std::span<const BlockKey> keys, const Visit& visit) const;
  bool Is(uint32_t handle, const BlockKey& key) const {
    return handle <= used_ && Same(records_[handle].key, key) && records_[handle].in_use;
  }
  // a == b without a call of memcmp, which is what a lookup would spend most of its time on.
  static bool Same(const BlockKey& a, const BlockKey& b) {
    const auto words_a = std::bit_cast<std::array<uint64_t, 2>>(a);
    const auto words_b = std::bit_cast<std::array<uint64_t, 2>>(b);
    return ((words_a[0] ^ words_b[0]) | (words_a[1] ^ words_b[1])) == 0;
  }
  // Free the node that `link` names; it names the one after that then.
  void FreeNode(uint32_t& link);

  const uint64_t hash_seed_;
  uint64_t records_max_ = 0;
  HandleTable table_;
  GrowingArray<Record> records_;
  GrowingArray<FormNode> nodes_;
  uint32_t used_ = 0;
  uint32_t free_ = 0;
  uint32_t nodes_used_ = 0;
  uint32_t nodes_free_ = 0;
};

template <typename Visit>
void RecordStore::FindAll(std::span<const BlockKey> keys, const Visit& visit) const {
  size_t done = 0;
  size_t window = kGroup / 4;
  uint32_t last = 0;  // handle of the key before
  const auto visit_at = [&](size_t i, uint32_t handle) {
    last = handle;
    return visit(done + i, handle);
  };
  while (done < keys.size()) {
    // Blocks of a chain are mostly announced together, and then their records follow each other: no
    // hash and no table needed, and memory is read in order.
    size_t followed = 0;
    while (last != 0 && done < keys.size() && Is(last + 1, keys[done])) {
      for (size_t ahead = followed == 0 ? 1 : kGroup; ahead <= kGroup; ++ahead) {
        __builtin_prefetch(&records_[last + 1 + ahead]);
      }
      if (!visit_at(0, last + 1)) {
        return;
      }
      ++done;
      ++followed;
    }
    // The less that comes of it, the less often it is tried.
    window = followed >= kGroup / 2 ? kGroup / 2 : std::min(2 * window, kWindowMax);
    const size_t count = std::min(window, keys.size() - done);
    if (!FindInTable(keys.subspan(done, count), visit_at)) {
      return;
    }
    done += count;
  }
}

template <typename Visit>
bool RecordStore::FindInTable(std::span<const BlockKey> keys, const Visit& visit) const {
  // Two groups ahead the buckets are loaded, one group ahead the records.
  uint32_t hashes[3][kGroup];
  uint32_t guesses[2][kGroup];
  const size_t groups = (keys.size() + kGroup - 1) / kGroup;
  const auto size_of = [&](size_t group) { return std::min(kGroup, keys.size() - group * kGroup); };
  for (size_t step = 0; step < groups + 2; ++step) {
    if (step < groups) {
      for (size_t i = 0; i < size_of(step); ++i) {
        const uint32_t hash = Hash(keys[step * kGroup + i]);
        hashes[step % 3][i] = hash;
        PrefetchBucket(hash);
      }
    }
    if (step >= 1 && step - 1 < groups) {
      for (size_t i = 0; i < size_of(step - 1); ++i) {
        guesses[(step - 1) % 2][i] = PrefetchRecord(hashes[(step - 1) % 3][i]);
      }
    }
    if (step < 2) {
      continue;
    }
    const size_t group = step - 2;
    for (size_t i = 0; i < size_of(group); ++i) {
      const BlockKey& key = keys[group * kGroup + i];
      uint32_t handle = guesses[group % 2][i];
      if (handle == 0 || !Same(records_[handle].key, key)) {
        handle = Find(key, hashes[group % 3][i]);
      }
      if (!visit(group * kGroup + i, handle)) {
        return false;
      }
    }
  }
  return true;
}

template <typename Visit>
void RecordStore::VisitForms(const Record& record, const Visit& visit) const {
  if (record.form.source != 0) {
    visit(record.form);
  }
  for (uint32_t node = record.more; node != 0; node = nodes_[node].next) {
    visit(nodes_[node].form);
  }
}

template <typename Goes>
size_t RecordStore::RemoveForms(Record& record, const Goes& goes) {
  size_t removed = 0;
  for (uint32_t* link = &record.more; *link != 0;) {
    if (goes(nodes_[*link].form)) {
      FreeNode(*link);
      ++removed;
    } else {
      link = &nodes_[*link].next;
    }
  }
  if (record.form.source != 0 && goes(record.form)) {
    record.form = FormEntry{};
    ++removed;
    if (record.more != 0) {
      record.form = nodes_[record.more].form;
      FreeNode(record.more);
    }
  }
  record.forms = static_cast<uint8_t>(record.forms - removed);
  return removed;
}

}  // namespace tokura::coordinator
