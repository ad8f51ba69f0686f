#include "coordinator/inventory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "coordinator/inventory_check.h"

namespace tokura::coordinator {
namespace {

BlockKey KeyAt(const std::string& keys, size_t i) {
  BlockKey key;
  std::memcpy(key.bytes.data(), keys.data() + i * BlockKey::kBytes, BlockKey::kBytes);
  return key;
}

}  // namespace

Inventory::Inventory(PrefixIndex& index, PlantedBugs bugs) : index_(index), bugs_(bugs) {}

Inventory::~Inventory() = default;

absl::StatusOr<NodeSlot> Inventory::Admit(std::string_view node, uint64_t incarnation) {
  const auto known = streams_.find(node);
  if (known != streams_.end()) {
    const NodeLife& life = known->second.life;
    if (life.incarnation == incarnation) {
      return life.slot;
    }
    if (life.incarnation > incarnation) {
      return absl::FailedPreconditionError(absl::StrCat("node ", life.node, " has incarnation ",
                                                        life.incarnation, ", above ", incarnation));
    }
  }
  // First the room, so that without it nothing changes.
  TOKURA_ASSIGN_OR_RETURN(const NodeSlot slot, TakeSlot());
  Forget(node);
  Stream& stream = streams_[std::string(node)];
  stream.life.node = std::string(node);
  stream.life.incarnation = incarnation;
  stream.life.slot = slot;
  stream.life.wants_snapshot = true;
  by_slot_[slot] = &stream;
  return slot;
}

absl::StatusOr<NodeSlot> Inventory::TakeSlot() {
  const auto swept = std::find_if(retiring_.begin(), retiring_.end(),
                                  [&](NodeSlot slot) { return !index_.Sweeping(slot); });
  if (swept != retiring_.end()) {
    const NodeSlot slot = *swept;
    retiring_.erase(swept);
    return slot;
  }
  if (by_slot_.size() == kLivesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", kLivesMax, " nodes, those that have just left included"));
  }
  by_slot_.push_back(nullptr);
  return static_cast<NodeSlot>(by_slot_.size() - 1);
}

void Inventory::Forget(std::string_view node) {
  const auto known = streams_.find(node);
  if (known != streams_.end()) {
    End(known->second);
    streams_.erase(known);
  }
}

void Inventory::End(Stream& stream) {
  for (const SourceId source : {stream.live, stream.filling}) {
    if (source != 0) {
      index_.Drop(source);
    }
  }
  by_slot_[stream.life.slot] = nullptr;
  retiring_.push_back(stream.life.slot);
}

const NodeLife* Inventory::Find(std::string_view node) const {
  const auto known = streams_.find(node);
  return known == streams_.end() ? nullptr : &known->second.life;
}

const NodeLife* Inventory::Find(NodeSlot slot) const {
  return slot < by_slot_.size() && by_slot_[slot] != nullptr ? &by_slot_[slot]->life : nullptr;
}

uint64_t Inventory::Blocks(NodeSlot slot) const {
  if (Find(slot) == nullptr) {
    return 0;
  }
  const Stream& stream = *by_slot_[slot];
  const SourceId seen = stream.live != 0 ? stream.live : stream.filling;
  return seen == 0 ? 0 : index_.SourceBlocks(seen);
}

std::vector<const NodeLife*> Inventory::Lives() const {
  std::vector<const NodeLife*> lives;
  for (const auto& [node, stream] : streams_) {
    lives.push_back(&stream.life);
  }
  return lives;
}

size_t Inventory::slots() const {
  return by_slot_.size();
}

absl::StatusOr<proto::InventoryReply> Inventory::Apply(const proto::InventoryBatch& batch) {
  TOKURA_ASSIGN_OR_RETURN(Stream * stream, StreamOf(batch));
  const absl::Status well_formed = CheckInventoryBatch(batch);
  if (!well_formed.ok()) {
    ++stats_.refused_batches;
    return well_formed;
  }
  proto::InventoryReply reply;
  if (batch.snapshot() == 0) {
    ApplyDelta(*stream, batch);
    reply.set_send_snapshot(stream->life.wants_snapshot);
  } else {
    TOKURA_RETURN_IF_ERROR(ApplyChunk(*stream, batch));
    reply.set_send_snapshot(stream->life.wants_snapshot);
  }
  return reply;
}

absl::StatusOr<Inventory::Stream*> Inventory::StreamOf(const proto::InventoryBatch& batch) {
  const auto known = streams_.find(batch.node());
  if (known == streams_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("node ", batch.node(), " is not registered"));
  }
  Stream& stream = known->second;
  if (stream.life.incarnation != batch.incarnation()) {
    return absl::FailedPreconditionError(absl::StrCat("node ", batch.node(), " has incarnation ",
                                                      stream.life.incarnation, ", not ",
                                                      batch.incarnation()));
  }
  return &stream;
}

// A batch holds for every key that changed in (first_seq, last_seq] what was true when it was
// written, which is not before last_seq. So one that begins early does no harm, and of one that
// ends early nothing is needed: what it says may be older than what is known.
Inventory::Place Inventory::PlaceOf(const proto::InventoryBatch& batch, uint64_t seq) const {
  if (batch.first_seq() > seq && !bugs_.ignore_gaps) {
    return Place::kGap;
  }
  return batch.last_seq() < seq ? Place::kKnown : Place::kFollows;
}

void Inventory::ApplyDelta(Stream& stream, const proto::InventoryBatch& batch) {
  NodeLife& life = stream.life;
  const Place live = life.complete ? PlaceOf(batch, life.last_seq) : Place::kKnown;
  const Place filling = stream.filling != 0 ? PlaceOf(batch, stream.filling_seq) : Place::kKnown;
  if (live == Place::kFollows || filling == Place::kFollows) {
    ReadUpdates(batch);
    ++stats_.batches;
    stats_.records += scratch_.updates.size();
  } else {
    ++(live == Place::kGap || filling == Place::kGap ? stats_.gaps : stats_.stale_batches);
  }
  if (live == Place::kFollows) {
    index_.Apply(stream.live, scratch_.updates);
    life.last_seq = batch.last_seq();
  }
  if (filling == Place::kFollows) {
    index_.Apply(stream.filling, scratch_.updates);
    stream.filling_seq = batch.last_seq();
  }
  if (filling == Place::kGap) {
    DropFilling(stream);
  }
  if (live == Place::kGap) {
    life.complete = false;
  }
  life.wants_snapshot = !life.complete && stream.filling == 0;
}

absl::Status Inventory::ApplyChunk(Stream& stream, const proto::InventoryBatch& batch) {
  if (batch.chunk() == 0) {
    TOKURA_RETURN_IF_ERROR(BeginSnapshot(stream, batch));
  }
  if (stream.filling == 0 || batch.snapshot() != stream.snapshot ||
      batch.chunk() != stream.next_chunk || batch.first_seq() != stream.begun_at) {
    ++stats_.gaps;
    DropFilling(stream);
    stream.life.wants_snapshot = true;
    return absl::OkStatus();
  }
  ReadUpdates(batch);
  ++stats_.batches;
  stats_.records += scratch_.updates.size();
  index_.Apply(stream.filling, scratch_.updates);
  ++stream.next_chunk;
  if (batch.last_chunk()) {
    FinishSnapshot(stream);
  }
  return absl::OkStatus();
}

absl::Status Inventory::BeginSnapshot(Stream& stream, const proto::InventoryBatch& batch) {
  DropFilling(stream);
  // The first one is of use while it comes; a later one must not show a node's blocks twice.
  const auto visibility =
      stream.live == 0 ? PrefixIndex::Visibility::kVisible : PrefixIndex::Visibility::kHidden;
  const std::optional<SourceId> source = index_.AddSource(stream.life.slot, visibility);
  if (!source.has_value()) {
    stream.life.wants_snapshot = !stream.life.complete;
    return absl::ResourceExhaustedError("too many inventories are being swept");
  }
  ++stats_.snapshots_started;
  stream.filling = *source;
  stream.snapshot = batch.snapshot();
  stream.next_chunk = 0;
  stream.begun_at = batch.first_seq();
  stream.filling_seq = batch.first_seq();
  stream.life.wants_snapshot = false;
  return absl::OkStatus();
}

void Inventory::FinishSnapshot(Stream& stream) {
  if (stream.live != 0) {
    index_.Drop(stream.live);
    index_.Show(stream.filling);
  }
  stream.live = std::exchange(stream.filling, 0);
  stream.life.last_seq = stream.filling_seq;
  stream.life.complete = true;
  ++stats_.snapshots_finished;
}

void Inventory::DropFilling(Stream& stream) {
  if (stream.filling != 0) {
    index_.Drop(std::exchange(stream.filling, 0));
    ++stats_.snapshots_restarted;
  }
}

void Inventory::ReadUpdates(const proto::InventoryBatch& batch) {
  scratch_.classes.clear();
  for (const proto::FormClass& form_class : batch.classes()) {
    scratch_.classes.push_back(index_.Intern(
        FormClass{form_class.codec(), form_class.group_mask(), form_class.shards(),
                  form_class.fidelity(), form_class.proxy_error(), form_class.tier()}));
    stats_.refused_classes += scratch_.classes.back().has_value() ? 0 : 1;
  }
  scratch_.updates.clear();
  const size_t removed = batch.removed().size() / BlockKey::kBytes;
  for (size_t i = 0; i < removed; ++i) {
    scratch_.updates.push_back(IndexUpdate{KeyAt(batch.removed(), i), BlockKey{}, {}});
  }
  scratch_.forms.resize(static_cast<size_t>(batch.form_class_size()));
  int form = 0;
  size_t kept = 0;
  for (int i = 0; i < batch.forms_size(); ++i) {
    const size_t first = kept;
    for (uint32_t left = batch.forms(i); left > 0; --left, ++form) {
      const std::optional<ClassId> id = scratch_.classes[batch.form_class(form)];
      if (id.has_value()) {
        scratch_.forms[kept++] = IndexedForm{*id, batch.stored_bytes(form), batch.error_mean(form),
                                             batch.error_max(form)};
      }
    }
    scratch_.updates.push_back(IndexUpdate{
        KeyAt(batch.keys(), static_cast<size_t>(i)), KeyAt(batch.parents(), static_cast<size_t>(i)),
        std::span<const IndexedForm>(scratch_.forms).subspan(first, kept - first)});
  }
}

InventoryStats Inventory::stats() const {
  InventoryStats stats = stats_;
  stats.lives = streams_.size();
  for (const auto& [node, stream] : streams_) {
    stats.incomplete += stream.life.complete ? 0 : 1;
  }
  return stats;
}

}  // namespace tokura::coordinator
