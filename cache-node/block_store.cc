#include "cache-node/block_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cache-node/arena.h"
#include "cache-node/block_store_core.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::node {

const char* EvictReasonName(EvictReason reason) {
  switch (reason) {
    case EvictReason::kIncomplete:
      return "incomplete";
    case EvictReason::kOrphan:
      return "orphan";
    case EvictReason::kWatermark:
      return "watermark";
    case EvictReason::kAllocation:
      return "allocation";
    case EvictReason::kFragmented:
      return "fragmented";
    case EvictReason::kRemoved:
      return "removed";
    case EvictReason::kExpired:
      return "expired";
    case EvictReason::kDamaged:
      return "damaged";
  }
  return "unknown";
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Abort();
    core_ = std::exchange(other.core_, nullptr);
    id_ = std::exchange(other.id_, 0);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

bool Reservation::expired() const {
  TOKURA_CHECK(valid());
  return core_->Expired(id_);
}

void Reservation::Abort() {
  bytes_ = {};
  if (core_ != nullptr) {
    std::exchange(core_, nullptr)->Abort(id_);
  }
}

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Create(StoreOptions options,
                                                               PlantedBugs bugs) {
  const bool watermarks_ok = options.low_watermark > 0 &&
                             options.low_watermark <= options.high_watermark &&
                             options.high_watermark <= 1;
  if (!watermarks_ok) {
    return absl::InvalidArgumentError(absl::StrCat("watermarks must be 0 < low <= high <= 1, are ",
                                                   options.low_watermark, " and ",
                                                   options.high_watermark));
  }
  if (options.part_bytes_max == 0 || options.lease_age <= Duration::zero() ||
      options.incomplete_age <= Duration::zero()) {
    return absl::InvalidArgumentError("part_bytes_max and the ages must be above 0");
  }
  TOKURA_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena,
                          Arena::Create(options.host_bytes, options.prefault));
  return std::unique_ptr<BlockStore>(
      new BlockStore(std::make_unique<StoreCore>(options, bugs, std::move(arena))));
}

BlockStore::BlockStore(std::unique_ptr<StoreCore> core) : core_(std::move(core)) {}

BlockStore::~BlockStore() = default;

std::span<std::byte> BlockStore::arena() const {
  return core_->arena().bytes();
}

bool BlockStore::huge_pages() const {
  return core_->arena().huge_pages();
}

absl::StatusOr<Reservation> BlockStore::Reserve(const ReserveRequest& request, TimePoint now) {
  return core_->Reserve(request, now);
}

absl::StatusOr<CommitResult> BlockStore::Commit(Reservation reservation,
                                                const kernels::PartInfo& info, TimePoint now) {
  TOKURA_CHECK(reservation.core_ == core_.get());
  reservation.core_ = nullptr;  // Commit ends the reservation in every case.
  return core_->Commit(reservation.id_, info, now);
}

void BlockStore::MarkProgress(uint64_t owner, TimePoint now) {
  core_->MarkProgress(owner, now);
}

Held BlockStore::Holds(const HeldQuery& query) const {
  return core_->Holds(query);
}

void BlockStore::Abandon(const Fingerprint& fingerprint, const BlockKey& key,
                         const ContentId& content_id, TimePoint now) {
  core_->Abandon(fingerprint, key, content_id, now);
}

std::vector<FormInfo> BlockStore::Find(const Fingerprint& fingerprint,
                                       std::span<const BlockKey> keys, const AcceptRule& accept,
                                       Touch touch, TimePoint now) {
  return core_->Find(fingerprint, keys, accept, touch, now);
}

std::vector<FormPin> BlockStore::Pin(const PinQuery& query, TimePoint now) {
  return core_->Pin(query, now);
}

std::vector<FormInfo> BlockStore::Forms(const Fingerprint& fingerprint, const BlockKey& key,
                                        TimePoint now) const {
  return core_->Forms(fingerprint, key, now);
}

void BlockStore::TouchAll(const Fingerprint& fingerprint, std::span<const BlockKey> keys,
                          TimePoint now) {
  core_->TouchAll(fingerprint, keys, now);
}

bool BlockStore::Remove(const Fingerprint& fingerprint, const BlockKey& key, TimePoint now) {
  return core_->Remove(fingerprint, key, now);
}

std::vector<FormPin> BlockStore::PinForms(const Fingerprint& fingerprint, const BlockKey& key,
                                          TimePoint now) {
  return core_->PinForms(fingerprint, key, now);
}

bool BlockStore::RemoveDamaged(const FormPin& pin, TimePoint now) {
  TOKURA_CHECK(pin.valid());
  return core_->RemoveDamaged(*pin.form_, now);
}

Maintenance BlockStore::Maintain(TimePoint now) {
  return core_->Maintain(now);
}

uint64_t BlockStore::change_position() const {
  return core_->change_position();
}

absl::StatusOr<Changes> BlockStore::ChangesAfter(uint64_t position, size_t max) const {
  return core_->ChangesAfter(position, max);
}

Inventory BlockStore::Describe(std::span<const BlockKey> keys, TimePoint now) const {
  return core_->Describe(keys, now);
}

HeldKeys BlockStore::ListHeld(uint64_t cursor, size_t max) const {
  return core_->ListHeld(cursor, max);
}

void BlockStore::TouchKeys(std::span<const BlockKey> keys, TimePoint now) {
  core_->TouchKeys(keys, now);
}

size_t BlockStore::MarkOrphans(std::span<const BlockKey> keys) {
  return core_->MarkOrphans(keys);
}

std::string_view BlockStore::CodecText(CodecId codec) const {
  return core_->codecs().Text(codec);
}

StoreStats BlockStore::stats() const {
  return core_->stats();
}

StoreCounters BlockStore::counters() const {
  return core_->counters();
}

uint64_t BlockStore::OrphanedBlocks() const {
  return core_->OrphanedBlocks();
}

absl::Status BlockStore::CheckInvariants() const {
  return core_->CheckInvariants();
}

}  // namespace tokura::node
