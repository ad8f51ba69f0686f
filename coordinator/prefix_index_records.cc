#include "coordinator/prefix_index_records.h"

#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::coordinator {

absl::StatusOr<std::unique_ptr<RecordStore>> RecordStore::Create(uint64_t records_max,
                                                                 uint64_t hash_seed) {
  std::unique_ptr<RecordStore> store(new RecordStore(hash_seed));
  store->records_max_ = records_max;
  TOKURA_ASSIGN_OR_RETURN(store->table_, HandleTable::Create(records_max));
  TOKURA_ASSIGN_OR_RETURN(store->records_, GrowingArray<Record>::Create(records_max + 1));
  TOKURA_ASSIGN_OR_RETURN(store->nodes_, GrowingArray<FormNode>::Create(2 * records_max + 1));
  return store;
}

uint32_t RecordStore::Hash(const BlockKey& key) const {
  // Keys are chosen by clients: without the seed nobody can aim many of them at one bucket.
  uint64_t low;
  uint64_t high;
  std::memcpy(&low, key.bytes.data(), sizeof(low));
  std::memcpy(&high, key.bytes.data() + sizeof(low), sizeof(high));
  const unsigned __int128 product =
      static_cast<unsigned __int128>(low ^ hash_seed_ ^ 0x9e3779b97f4a7c15u) *
      (high ^ (hash_seed_ << 32 | hash_seed_ >> 32) ^ 0xd1b54a32d192ed03u);
  const uint64_t folded = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  const uint64_t mixed = (folded ^ folded >> 32) * 0xd6e8feb86659fd93u;
  return static_cast<uint32_t>(mixed >> 32);
}

uint32_t RecordStore::Find(const BlockKey& key, uint32_t hash) const {
  return table_.Find(hash, [&](uint32_t handle) { return Same(records_[handle].key, key); });
}

uint32_t RecordStore::PrefetchRecord(uint32_t hash) const {
  const uint32_t handle = table_.Guess(hash);
  __builtin_prefetch(&records_[handle]);
  return handle;
}

uint32_t RecordStore::Add(const BlockKey& key, uint32_t hash) {
  const bool fresh = free_ == 0;
  if (fresh && (used_ == records_max_ || !records_.Reach(uint64_t{used_} + 2))) {
    return 0;
  }
  const uint32_t handle = fresh ? used_ + 1 : free_;
  if (!table_.Insert(hash, handle)) {
    return 0;
  }
  Record& record = records_[handle];
  if (fresh) {
    ++used_;
  } else {
    free_ = record.next;
  }
  record = Record{};
  record.key = key;
  record.in_use = true;
  return handle;
}

void RecordStore::Free(uint32_t handle) {
  Record& record = records_[handle];
  TOKURA_CHECK(record.in_use && record.forms == 0 && record.child == 0);
  table_.Erase(Hash(record.key), handle);
  Unlink(handle);
  record = Record{};
  record.next = std::exchange(free_, handle);
}

void RecordStore::Link(uint32_t child, uint32_t parent) {
  Record& record = records_[child];
  Record& above = records_[parent];
  record.parent = parent;
  record.next = above.child;
  if (above.child != 0) {
    records_[above.child].previous = child;
  }
  above.child = child;
}

void RecordStore::Unlink(uint32_t child) {
  Record& record = records_[child];
  if (record.next != 0) {
    records_[record.next].previous = record.previous;
  }
  if (record.previous != 0) {
    records_[record.previous].next = record.next;
  } else if (record.parent != 0) {
    records_[record.parent].child = record.next;
  }
  record.parent = record.next = record.previous = 0;
}

bool RecordStore::AddForm(Record& record, const FormEntry& form) {
  if (record.forms == PrefixIndex::kFormsMax) {
    return false;
  }
  if (record.form.source == 0) {
    record.form = form;
    ++record.forms;
    return true;
  }
  uint32_t node = nodes_free_;
  if (node != 0) {
    nodes_free_ = nodes_[node].next;
  } else if (nodes_.Reach(uint64_t{nodes_used_} + 2)) {
    node = ++nodes_used_;
  } else {
    return false;
  }
  nodes_[node] = FormNode{form, record.more};
  record.more = node;
  ++record.forms;
  return true;
}

void RecordStore::FreeNode(uint32_t& link) {
  const uint32_t node = link;
  link = nodes_[node].next;
  nodes_[node].next = std::exchange(nodes_free_, node);
}

}  // namespace tokura::coordinator
