#include "coordinator/prefix_index.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "coordinator/prefix_index_locate.h"
#include "coordinator/prefix_index_records.h"

namespace tokura::coordinator {
namespace {

constexpr uint64_t kBlocksMaxMax = uint64_t{1} << 30;
// How many updates ahead their lines are asked for.
constexpr size_t kAhead = 16;

uint32_t KeptBytes(uint64_t bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(bytes, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefixIndex>> PrefixIndex::Create(PrefixIndexOptions options,
                                                                 PrefixIndexSink& sink) {
  if (options.blocks_max == 0 || options.blocks_max > kBlocksMaxMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks_max is ", options.blocks_max, "; must be 1 to ", kBlocksMaxMax));
  }
  TOKURA_ASSIGN_OR_RETURN(std::unique_ptr<RecordStore> records,
                          RecordStore::Create(options.blocks_max, options.hash_seed));
  return std::unique_ptr<PrefixIndex>(new PrefixIndex(std::move(records), sink));
}

PrefixIndex::PrefixIndex(std::unique_ptr<RecordStore> records, PrefixIndexSink& sink)
    : records_(std::move(records)), sink_(sink), scratch_(std::make_unique<Scratch>()) {}

PrefixIndex::~PrefixIndex() = default;

std::optional<ClassId> PrefixIndex::Intern(const FormClass& form_class) {
  const auto known = class_ids_.find(form_class);
  if (known != class_ids_.end()) {
    return known->second;
  }
  if (classes_.size() == kClassesMax) {
    return std::nullopt;
  }
  const auto id = static_cast<ClassId>(classes_.size());
  classes_.push_back(form_class);
  class_ids_.emplace(form_class, id);
  return id;
}

const FormClass& PrefixIndex::Class(ClassId id) const {
  return classes_[id];
}

std::optional<SourceId> PrefixIndex::AddSource(NodeSlot node, Visibility visibility) {
  SourceId id;
  if (!free_sources_.empty()) {
    id = free_sources_.back();
    free_sources_.pop_back();
  } else if (sources_.size() <= kSourcesMax) {
    id = static_cast<SourceId>(sources_.size());
    sources_.emplace_back();
  } else {
    return std::nullopt;
  }
  const bool visible = visibility == Visibility::kVisible;
  sources_[id] = Source{node, visible ? SourceState::kVisible : SourceState::kHidden, 0, 0};
  return id;
}

void PrefixIndex::Show(SourceId source) {
  TOKURA_CHECK(sources_[source].state == SourceState::kHidden);
  sources_[source].state = SourceState::kVisible;
}

void PrefixIndex::Drop(SourceId id) {
  Source& source = sources_[id];
  TOKURA_CHECK(source.state == SourceState::kHidden || source.state == SourceState::kVisible);
  if (source.forms == 0) {
    source = Source{};
    free_sources_.push_back(id);
    return;
  }
  source.state = SourceState::kDropped;
  dropped_.push_back(id);
}

uint64_t PrefixIndex::SourceBlocks(SourceId source) const {
  return sources_[source].blocks;
}

bool PrefixIndex::Sweeping(NodeSlot node) const {
  return std::any_of(dropped_.begin(), dropped_.end(),
                     [&](SourceId id) { return sources_[id].node == node; });
}

void PrefixIndex::Apply(SourceId source, std::span<const IndexUpdate> updates) {
  TOKURA_CHECK(sources_[source].state == SourceState::kHidden ||
               sources_[source].state == SourceState::kVisible);
  // A ring of what is ahead: first the buckets are loaded, then the records.
  constexpr size_t kRing = 4 * kAhead;
  std::array<uint32_t, kRing> hashes;
  std::array<uint32_t, kRing> parent_hashes;
  for (size_t step = 0; step < updates.size() + 2 * kAhead; ++step) {
    if (step < updates.size()) {
      hashes[step % kRing] = records_->Hash(updates[step].key);
      parent_hashes[step % kRing] = records_->Hash(updates[step].parent);
      records_->PrefetchBucket(hashes[step % kRing]);
      records_->PrefetchBucket(parent_hashes[step % kRing]);
    }
    if (step >= kAhead && step - kAhead < updates.size()) {
      records_->PrefetchRecord(hashes[(step - kAhead) % kRing]);
      records_->PrefetchRecord(parent_hashes[(step - kAhead) % kRing]);
    }
    if (step >= 2 * kAhead) {
      const size_t i = step - 2 * kAhead;
      ApplyOne(source, updates[i], hashes[i % kRing], parent_hashes[i % kRing]);
    }
  }
}

void PrefixIndex::ApplyOne(SourceId source, const IndexUpdate& update, uint32_t hash,
                           uint32_t parent_hash) {
  uint32_t handle = records_->Find(update.key, hash);
  if (update.forms.empty()) {
    if (handle != 0 && RemoveFormsOf((*records_)[handle], source) > 0) {
      --sources_[source].blocks;
      if ((*records_)[handle].forms == 0) {
        Vanished(handle);
      }
    }
    return;
  }
  if (handle == 0) {
    handle = records_->Add(update.key, hash);
    if (handle == 0) {
      ++refused_blocks_;
      return;
    }
  }
  if (SetForms(handle, source, update.forms)) {
    LinkToParent(handle, update.parent, parent_hash);
  }
}

bool PrefixIndex::SetForms(uint32_t handle, SourceId id, std::span<const IndexedForm> forms) {
  Record& record = (*records_)[handle];
  Source& source = sources_[id];
  const bool was_held = record.forms > 0;
  const bool had = RemoveFormsOf(record, id) > 0;
  size_t added = 0;
  for (const IndexedForm& form : forms) {
    const FormEntry entry{id, form.form_class, KeptBytes(form.stored_bytes), form.error_mean,
                          form.error_max};
    // Of an inventory that is being replaced again and again much may wait to be swept.
    const bool fits = records_->AddForm(record, entry) ||
                      (RemoveDroppedForms(record) > 0 && records_->AddForm(record, entry));
    added += fits ? 1 : 0;
  }
  refused_forms_ += forms.size() - added;
  forms_ += added;
  source.forms += added;
  source.blocks += (added > 0 ? 1 : 0) - (had ? 1 : 0);
  if (!was_held) {
    ++blocks_;
  }
  if (record.forms == 0) {
    Vanished(handle);
    return false;
  }
  return true;
}

size_t PrefixIndex::RemoveFormsOf(Record& record, SourceId source) {
  const size_t removed =
      records_->RemoveForms(record, [&](const FormEntry& form) { return form.source == source; });
  forms_ -= removed;
  sources_[source].forms -= removed;
  return removed;
}

void PrefixIndex::LinkToParent(uint32_t handle, const BlockKey& parent, uint32_t parent_hash) {
  Record& record = (*records_)[handle];
  if (record.parent != 0 || parent.empty() || parent == record.key) {
    return;
  }
  uint32_t above = records_->Find(parent, parent_hash);
  if (above == 0) {
    // It may be announced later, and must find its children then.
    above = records_->Add(parent, parent_hash);
  }
  if (above == 0) {
    return;
  }
  records_->Link(handle, above);
  if (record.child != 0) {
    record.ring_due = true;
    ring_suspects_.push_back(handle);
  }
}

void PrefixIndex::Vanished(uint32_t handle) {
  Record& record = (*records_)[handle];
  --blocks_;
  if (record.child == 0) {
    FreeIfUnneeded(handle);
  } else if (!record.orphans_due) {
    record.orphans_due = true;
    orphans_.push_back(handle);
  }
}

void PrefixIndex::FreeIfUnneeded(uint32_t handle) {
  const Record& record = (*records_)[handle];
  if (record.forms > 0 || record.child != 0 || record.orphans_due || record.reap_due ||
      record.ring_due) {
    return;
  }
  if (walk_.root != 0 && walk_.at == handle) {
    LeaveWalked(record);
  }
  const uint32_t parent = record.parent;
  records_->Free(handle);
  if (parent != 0) {
    // Its turn comes later: a chain of vanished records may be as long as a context.
    ReapLater(parent);
  }
}

void PrefixIndex::ReapLater(uint32_t handle) {
  Record& record = (*records_)[handle];
  if (record.forms == 0 && record.child == 0 && !record.orphans_due && !record.reap_due) {
    record.reap_due = true;
    reap_.push_back(handle);
  }
}

PrefixIndexStats PrefixIndex::stats() const {
  PrefixIndexStats stats;
  stats.blocks = blocks_;
  stats.vanished = records_->size() - blocks_;
  stats.forms = forms_;
  stats.sources = sources_.size() - 1 - free_sources_.size() - dropped_.size();
  stats.sources_swept = dropped_.size();
  stats.classes = classes_.size();
  stats.orphans_waiting = orphans_.size() + (walk_.root != 0 ? 1 : 0);
  stats.refused_blocks = refused_blocks_;
  stats.refused_forms = refused_forms_;
  stats.table_moves = records_->table_moves();
  return stats;
}

uint64_t PrefixIndex::memory_bytes() const {
  uint64_t bytes = sizeof(*this) + records_->memory_bytes() + scratch_->memory_bytes();
  bytes += sources_.capacity() * sizeof(Source);
  bytes += (free_sources_.capacity() + dropped_.capacity()) * sizeof(SourceId);
  bytes += (orphans_.size() + reap_.capacity() + ring_suspects_.size()) * sizeof(uint32_t);
  // A class is held twice, once in a tree node.
  bytes += classes_.size() * 2 * (sizeof(FormClass) + 64);
  return bytes;
}

absl::Status PrefixIndex::CheckInvariants() const {
  std::vector<Source> counted(sources_.size());
  uint64_t records = 0;
  uint64_t blocks = 0;
  uint64_t forms = 0;
  for (uint32_t handle = 1; handle <= records_->handles(); ++handle) {
    const Record& record = (*records_)[handle];
    if (!record.in_use) {
      continue;
    }
    ++records;
    blocks += record.forms > 0 ? 1 : 0;
    forms += record.forms;
    TOKURA_RETURN_IF_ERROR(CheckRecord(handle, counted));
  }
  if (records != records_->size() || blocks != blocks_ || forms != forms_) {
    return absl::InternalError(absl::StrCat("counted ", records, " records, ", blocks, " blocks, ",
                                            forms, " forms; kept ", records_->size(), ", ", blocks_,
                                            ", ", forms_));
  }
  for (size_t id = 1; id < sources_.size(); ++id) {
    const Source& source = sources_[id];
    const bool live = source.state == SourceState::kHidden || source.state == SourceState::kVisible;
    if (counted[id].forms != source.forms || (live && counted[id].blocks != source.blocks)) {
      return absl::InternalError(absl::StrCat("source ", id, ": counted ", counted[id].blocks,
                                              " blocks, ", counted[id].forms, " forms; kept ",
                                              source.blocks, ", ", source.forms));
    }
  }
  return absl::OkStatus();
}

absl::Status PrefixIndex::CheckRecord(uint32_t handle, std::vector<Source>& counted) const {
  const Record& record = (*records_)[handle];
  const auto broken = [&](const char* what) {
    return absl::InternalError(absl::StrCat("record ", handle, ": ", what));
  };
  if (records_->Find(record.key, records_->Hash(record.key)) != handle) {
    return broken("is not found by its key");
  }
  std::vector<SourceId> sources;
  records_->VisitForms(record, [&](const FormEntry& form) {
    ++counted[form.source].forms;
    sources.push_back(form.source);
  });
  if (sources.size() != record.forms) {
    return broken("has another number of forms than it says");
  }
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  for (const SourceId source : sources) {
    ++counted[source].blocks;
  }
  uint32_t before = 0;
  for (uint32_t child = record.child; child != 0; child = (*records_)[child].next) {
    const Record& below = (*records_)[child];
    if (!below.in_use || below.parent != handle || below.previous != before) {
      return broken("has a child that is linked otherwise");
    }
    before = child;
  }
  if (record.forms == 0 && record.child == 0 && !record.orphans_due && !record.reap_due &&
      !record.ring_due) {
    return broken("is not needed");
  }
  return absl::OkStatus();
}

}  // namespace tokura::coordinator
