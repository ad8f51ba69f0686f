// The way in: reserve, commit, abort.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cache-node/block_store_core.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::node {
namespace {

constexpr uint32_t kGroupsMax = 8;
constexpr uint32_t kShardsMax = 256;

size_t PartsOf(const FormInfo& info) {
  return static_cast<size_t>(std::popcount(info.group_mask)) * info.shards;
}

// Longer is as good as for ever, and would come near to what sums of time points hold.
constexpr Duration kTtlMax = std::chrono::hours(24 * 3650);

// Of two times to live, of which 0 is none.
Duration ShorterTtl(Duration a, Duration b) {
  const Duration shorter = a == Duration{} || b == Duration{} ? std::max(a, b) : std::min(a, b);
  return std::min(shorter, kTtlMax);
}

// The place of `part` in a vector kept ascending by part.
template <typename T>
auto PlaceOf(std::vector<T>& items, PartId part) {
  return std::lower_bound(items.begin(), items.end(), part,
                          [](const T& item, PartId wanted) { return item.part < wanted; });
}

bool HasPart(StoredForm& form, PartId part) {
  const auto place = PlaceOf(form.parts, part);
  return place != form.parts.end() && place->part == part;
}

uint64_t LogicalBytes(const kernels::PartShape& shape) {
  return uint64_t{shape.layers} * shape.heads * (uint64_t{shape.k_head_dim} + shape.v_head_dim) *
         shape.tokens * DTypeBytes(shape.dtype);
}

// sqrt(error / size), infinite for what cannot be (the record comes from outside).
double LayerEpsilon(const kernels::ErrorRecord::Layer& layer) {
  const double epsilon = layer.error == 0 ? 0 : std::sqrt(layer.error / layer.size);
  return std::isfinite(epsilon) ? epsilon : std::numeric_limits<double>::infinity();
}

// The one number and the maximum over all layers of the block: shards of a group are added layer by
// layer, groups stand side by side. In order of parts, so that the order of arrival does not show.
void SumErrors(const std::vector<PartRecord>& records, FormInfo& info) {
  std::vector<kernels::ErrorRecord::Layer> sums;  // of the group at hand
  bool measured = true;
  double total = 0;
  size_t layers = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const PartRecord& record = records[i];
    info.fidelity = std::max(info.fidelity, record.fidelity);
    if (record.fidelity != kernels::Fidelity::kExact) {
      info.proxy_error = info.proxy_error || record.error.proxy();
      measured = measured && record.error.queries > 0;
    }
    sums.resize(std::max(sums.size(), record.error.layers.size()));
    for (size_t layer = 0; layer < record.error.layers.size(); ++layer) {
      sums[layer].error += record.error.layers[layer].error;
      sums[layer].size += record.error.layers[layer].size;
    }
    if (i + 1 == records.size() || records[i + 1].part.group != record.part.group) {
      for (const kernels::ErrorRecord::Layer& sum : sums) {
        total += LayerEpsilon(sum);
        info.error_max = std::max(info.error_max, LayerEpsilon(sum));
      }
      layers += sums.size();
      sums.clear();
    }
  }
  info.error_mean = layers == 0 ? 0 : total / static_cast<double>(layers);
  if (info.fidelity == kernels::Fidelity::kExact) {
    info.error_mean = info.error_max = 0;
  } else if (!measured || layers == 0) {
    info.error_mean = info.error_max = std::numeric_limits<double>::infinity();
  }
}

}  // namespace

absl::Status StoreCore::CheckRequest(const ReserveRequest& request) const {
  if (request.key.empty() || request.content_id.empty() || request.key == request.parent) {
    return absl::InvalidArgumentError(
        "a part needs a key, a content id and another block as parent");
  }
  if (request.bytes == 0 || request.bytes > options_.part_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a part of ", request.bytes, " bytes; allowed are 1 to ", options_.part_bytes_max));
  }
  const bool shape_ok = request.group_mask != 0 && (request.group_mask >> kGroupsMax) == 0 &&
                        request.shards != 0 && request.shards <= kShardsMax;
  const bool part_ok = shape_ok && request.part.group < kGroupsMax &&
                       (request.group_mask >> request.part.group & 1) != 0 &&
                       request.part.shard < request.shards;
  if (!part_ok) {
    return absl::InvalidArgumentError(absl::StrCat(
        "part (group ", request.part.group, ", shard ", request.part.shard,
        ") is outside of group mask ", request.group_mask, " and ", request.shards, " shards"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Reservation> StoreCore::Reserve(const ReserveRequest& request, TimePoint now) {
  TOKURA_RETURN_IF_ERROR(CheckRequest(request));
  const std::optional<CodecId> codec = codecs_.Intern(request.codec);
  if (!codec.has_value()) {
    return absl::InvalidArgumentError("the codec's name is empty, too long or one too many");
  }
  MutexLock lock(mutex_);
  absl::StatusOr<Reservation> result = ReservePart(request, *codec, now);
  if (absl::IsResourceExhausted(result.status())) {
    ++counters_.reservations_refused;
  }
  return result;
}

absl::StatusOr<Reservation> StoreCore::ReservePart(const ReserveRequest& request, CodecId codec,
                                                   TimePoint now) {
  const StoredBlock* known = tree_.Find(request.fingerprint, request.key);
  if (known != nullptr && IsCovered(*known, codec, request.group_mask, now)) {
    return absl::AlreadyExistsError("the block is complete in this codec");
  }
  if (!MakeDescriptors(now)) {
    return absl::ResourceExhaustedError("all block descriptors are in use");
  }
  StoredBlock* block =
      tree_.GetOrCreate(request.fingerprint, request.key, {request.parent, request.position});
  if (block == nullptr) {
    return absl::ResourceExhaustedError("too many namespaces have a block of this key");
  }
  TOKURA_ASSIGN_OR_RETURN(StoredForm * form, IncompleteForm(request, codec, *block, now));
  if (HasPart(*form, request.part)) {
    return absl::AlreadyExistsError("this part of this content is stored");
  }
  // From here on the form has a writer, so that making room cannot free it.
  ++form->writers;
  absl::StatusOr<Reservation> reservation = ReserveExtent(request, *form, now);
  if (!reservation.ok()) {
    EndWriter(*form);
  }
  return reservation;
}

absl::StatusOr<Reservation> StoreCore::ReserveExtent(const ReserveRequest& request,
                                                     StoredForm& form, TimePoint now) {
  const uint64_t extent_bytes = allocator_.RoundUp(kExtentHeaderBytes + request.bytes);
  if (!MakeRoom(extent_bytes, now) || form.state == StoredForm::State::kDoomed) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for a part of ", request.bytes,
                                                     " bytes; the largest free extent has ",
                                                     allocator_.largest_free()));
  }
  using Place = ExtentAllocator::Place;
  const Place place = allocator_.Fits(extent_bytes, Place::kBest) ? Place::kBest : Place::kAnywhere;
  const auto extent = allocator_.Allocate(extent_bytes, form.handle, place);
  TOKURA_CHECK(extent.has_value());
  WriteFreeHeader(extent->before);
  WriteFreeHeader(extent->after);
  ExtentHeader header;
  header.state = ExtentState::kReserved;
  header.part = request.part;
  header.extent_bytes = extent->used.bytes;
  header.payload_bytes = request.bytes;
  header.group_mask = request.group_mask;
  header.shards = request.shards;
  header.fingerprint = request.fingerprint;
  header.key = request.key;
  header.parent = request.parent;
  header.content_id = request.content_id;
  header.position = request.position;
  arena_->WriteHeader(extent->used.offset, header);

  Reservation reservation;
  reservation.core_ = this;
  reservation.id_ = next_id_++;
  reservation.bytes_ = arena_->Payload(extent->used.offset, request.bytes);
  pending_.emplace(reservation.id_, Pending{&form, request.part, extent->used.offset, request.bytes,
                                            request.owner, now, false});
  Owner& owner = owners_[request.owner];
  owner.progressed = owner.reservations++ == 0 ? now : owner.progressed;
  stats_.reserved_bytes += request.bytes;
  return reservation;
}

// The incomplete set that the request adds to, made if need be.
absl::StatusOr<StoredForm*> StoreCore::IncompleteForm(const ReserveRequest& request, CodecId codec,
                                                      StoredBlock& block, TimePoint now) {
  size_t sets = 0;
  for (StoredForm* form = block.incomplete; form != nullptr; form = form->next, ++sets) {
    if (form->info.content_id != request.content_id || form->info.codec != codec) {
      continue;
    }
    if (form->info.group_mask != request.group_mask || form->info.shards != request.shards) {
      return absl::InvalidArgumentError("this content was announced with other groups or shards");
    }
    form->ttl = ShorterTtl(form->ttl, request.ttl);
    return form;
  }
  if (sets >= kIncompleteSetsMax) {
    return absl::ResourceExhaustedError("too many sets of this block wait for parts");
  }
  StoredForm* form = forms_.Allocate();
  TOKURA_CHECK(form != nullptr);
  form->block = &block;
  form->info.content_id = request.content_id;
  form->info.codec = codec;
  form->info.group_mask = request.group_mask;
  form->info.shards = request.shards;
  form->started = form->progressed = now;
  form->ttl = ShorterTtl(Duration{}, request.ttl);
  ++block.forms;
  LinkIncomplete(*form);
  return form;
}

bool StoreCore::IsCovered(const StoredForm& wanted, TimePoint now) const {
  return IsCovered(*wanted.block, wanted.info.codec, wanted.info.group_mask, now);
}

bool StoreCore::IsCovered(const StoredBlock& block, CodecId codec, uint32_t group_mask,
                          TimePoint now) const {
  for (const StoredForm* form = block.complete; form != nullptr; form = form->next) {
    if (form->info.codec == codec && (group_mask & ~form->info.group_mask) == 0 &&
        form->expires > now) {
      return true;
    }
  }
  return false;
}

Held StoreCore::Holds(const HeldQuery& query) const {
  MutexLock lock(mutex_);
  const std::optional<CodecId> codec = codecs_.Find(query.codec);
  const StoredBlock* block = tree_.Find(query.fingerprint, query.key);
  if (block == nullptr || !codec.has_value()) {
    return Held::kNo;
  }
  // Also when its time has passed since: the put did what it should.
  if (IsCovered(*block, *codec, query.group_mask, TimePoint{})) {
    return Held::kVisible;
  }
  StoredForm* set = block->incomplete;
  while (set != nullptr &&
         (set->info.content_id != query.content_id || set->info.codec != *codec)) {
    set = set->next;
  }
  if (set == nullptr) {
    return Held::kNo;
  }
  for (uint32_t group = 0; group < kGroupsMax; ++group) {
    const uint32_t shards = (query.group_mask >> group & 1) != 0 ? query.shard_count : 0;
    for (uint32_t i = 0; i < shards; ++i) {
      if (!HasPart(*set,
                   {static_cast<uint8_t>(group), static_cast<uint8_t>(query.first_shard + i)})) {
        return Held::kNo;
      }
    }
  }
  return Held::kWaiting;
}

absl::Status StoreCore::CheckCommit(const Pending& pending, const kernels::PartInfo& info) const {
  const StoredForm& form = *pending.form;
  const kernels::PartIdentity expected{form.block->fingerprint, form.block->key,
                                       form.info.content_id, pending.part};
  if (info.identity != expected) {
    return absl::InvalidArgumentError("the part is not the one that was announced");
  }
  const std::string codec(codecs_.Text(form.info.codec));
  if (info.codec != codec) {
    return absl::InvalidArgumentError(
        absl::StrCat("the part's codec is ", info.codec, ", announced was ", codec));
  }
  if (info.part_bytes != pending.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the part has ", info.part_bytes, " bytes, announced were ", pending.bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<CommitResult> StoreCore::Commit(uint64_t id, const kernels::PartInfo& info,
                                               TimePoint now) {
  MutexLock lock(mutex_);
  const Pending pending = TakePending(id);
  Progressed(pending.owner, now);
  StoredForm& form = *pending.form;
  const bool late = pending.overdue || form.state == StoredForm::State::kDoomed;
  // A repeated part, or another writer was first with the whole block.
  const bool stored = HasPart(form, pending.part) || IsCovered(form, now);
  absl::Status status = CheckCommit(pending, info);
  if (late && !stored && !bugs_.accept_late_write) {
    status = absl::AbortedError("too late: the reservation has expired");
  }
  if (!status.ok() || stored) {
    FreeExtent(pending.offset);
    EndWriter(form);
    if (!status.ok()) {
      ++counters_.commits_refused;
      return status;
    }
    ++counters_.commits_duplicate;
    return CommitResult::kDuplicate;
  }
  if (form.state == StoredForm::State::kDoomed) {
    Revive(form);
  }
  StorePart(form, pending, info, now);
  if (form.parts.size() < PartsOf(form.info)) {
    EndWriter(form);
    ++counters_.commits_waiting;
    return CommitResult::kWaiting;
  }
  // Every part is stored, so another writer can only be here to send one of them again.
  const CommitResult result = CompleteForm(form, now);
  EndWriter(form);
  return result;
}

void StoreCore::StorePart(StoredForm& form, const Pending& pending, const kernels::PartInfo& info,
                          TimePoint now) {
  absl::StatusOr<ExtentHeader> header = arena_->ReadHeader(pending.offset);
  if (header.ok()) {
    header->state = ExtentState::kStored;
    arena_->WriteHeader(pending.offset, *header);
  }
  form.parts.insert(PlaceOf(form.parts, pending.part),
                    PartSlot{pending.part, pending.offset, pending.bytes});
  form.records.insert(PlaceOf(form.records, pending.part),
                      PartRecord{pending.part, info.fidelity, info.error});
  form.info.stored_bytes += pending.bytes;
  form.info.logical_bytes += LogicalBytes(info.shape);
  form.progressed = now;
}

CommitResult StoreCore::CompleteForm(StoredForm& form, TimePoint now) {
  StoredBlock& block = *form.block;
  if (IsCovered(form, now)) {
    // Another writer was first. This set never was visible: no eviction, so no reason to count.
    Unlink(form);
    form.state = StoredForm::State::kDoomed;
    form.word.fetch_or(PinWord::kDoomed, std::memory_order_relaxed);
    ++stats_.doomed_forms;
    FreeParts(form);
    ++counters_.commits_duplicate;
    return CommitResult::kDuplicate;
  }
  SumErrors(form.records, form.info);
  form.records = {};
  form.completed = now;
  Unlink(form);
  form.state = StoredForm::State::kComplete;
  if (form.ttl > Duration::zero()) {
    form.expires = now + form.ttl;
    expiring_.emplace(form.expires, form.handle);
  }
  {
    MutexLock lock(tree_.index().MutexOf(block));
    form.next = block.complete;
    block.complete = &form;
  }
  log_.Append(block.key);
  CountWaiting(block);
  stats_.blocks += form.next == nullptr ? 1 : 0;
  ++stats_.forms;
  stats_.stored_bytes += form.info.stored_bytes;
  stats_.logical_bytes += form.info.logical_bytes;
  while (stats_.by_codec.size() <= form.info.codec) {
    const CodecId next = static_cast<CodecId>(stats_.by_codec.size());
    stats_.by_codec.push_back({std::string(codecs_.Text(next))});
  }
  CodecUsage& usage = stats_.by_codec[form.info.codec];
  ++usage.forms;
  usage.stored_bytes += form.info.stored_bytes;
  usage.logical_bytes += form.info.logical_bytes;
  queue_.Touch(block, now);
  block.parked = false;
  tree_.SetMarked(block, OrphanMark::kNo);
  tree_.Changed(block);
  ++counters_.commits_visible;
  return CommitResult::kVisible;
}

void StoreCore::EndWriter(StoredForm& form) {
  TOKURA_CHECK(form.writers > 0);
  --form.writers;
  if (form.state == StoredForm::State::kDoomed) {
    FreeIfUnused(form);
  } else if (form.state == StoredForm::State::kIncomplete && form.writers == 0 &&
             form.parts.empty()) {
    // Nothing of the set is left: as if it had never been announced.
    Unlink(form);
    form.state = StoredForm::State::kDoomed;
    ++stats_.doomed_forms;
    FreeIfUnused(form);
  }
}

// Only for the planted bug accept_late_write: a set that was given up takes part again.
void StoreCore::Revive(StoredForm& form) {
  form.state = StoredForm::State::kIncomplete;
  form.word.fetch_and(~PinWord::kDoomed, std::memory_order_relaxed);
  --stats_.doomed_forms;
  LinkIncomplete(form);
}

StoreCore::Pending StoreCore::TakePending(uint64_t id) {
  const auto entry = pending_.find(id);
  TOKURA_CHECK(entry != pending_.end());
  const Pending pending = entry->second;
  pending_.erase(entry);
  stats_.reserved_bytes -= pending.bytes;
  const auto owner = owners_.find(pending.owner);
  TOKURA_CHECK(owner != owners_.end() && owner->second.reservations > 0);
  if (--owner->second.reservations == 0) {
    owners_.erase(owner);
  }
  return pending;
}

void StoreCore::Abort(uint64_t id) {
  MutexLock lock(mutex_);
  const Pending pending = TakePending(id);
  FreeExtent(pending.offset);
  EndWriter(*pending.form);
}

void StoreCore::MarkProgress(uint64_t owner, TimePoint now) {
  MutexLock lock(mutex_);
  Progressed(owner, now);
}

void StoreCore::Progressed(uint64_t owner, TimePoint now) {
  if (const auto known = owners_.find(owner); known != owners_.end()) {
    known->second.progressed = now;
  }
}

bool StoreCore::Expired(uint64_t id) const {
  MutexLock lock(mutex_);
  const auto entry = pending_.find(id);
  TOKURA_CHECK(entry != pending_.end());
  return entry->second.overdue || entry->second.form->state == StoredForm::State::kDoomed;
}

void StoreCore::Abandon(const Fingerprint& fingerprint, const BlockKey& key,
                        const ContentId& content_id, TimePoint now) {
  MutexLock lock(mutex_);
  StoredBlock* block = tree_.Find(fingerprint, key);
  StoredForm* form = block == nullptr ? nullptr : block->incomplete;
  while (form != nullptr) {
    StoredForm* next = form->next;
    if (form->info.content_id == content_id) {
      Drop(*form, EvictReason::kIncomplete, now);
      // The block's descriptor goes with its last form.
      next = tree_.Find(fingerprint, key) == nullptr ? nullptr : next;
    }
    form = next;
  }
}

}  // namespace tokura::node
