#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/allocator.h"
#include "cache-node/arena.h"
#include "cache-node/block_store.h"
#include "cache-node/block_store_accept.h"
#include "cache-node/change_log.h"
#include "cache-node/evict.h"
#include "cache-node/index.h"
#include "cache-node/index_tree.h"
#include "common/mutex.h"

namespace tokura::node {

// What BlockStore is made of; its declarations say what the public calls promise.
//
// Locks: one for every change (mutex_), then an index shard's for what lookups read. Lookups and
// pins take shard locks only, so they never wait for an eviction. Unpinning takes no lock, unless
// it is the last of a form that was removed or parked meanwhile.
//
// Life of a form:
//   incomplete --last part committed--> complete --Remove, evictor--> doomed --> freed
//   incomplete --Abandon, Remove, too old, same codec complete--> doomed --> freed
// A doomed form is unlinked from its block and freed when its last pin and last reservation go (at
// once when there is none).
class StoreCore final : public PinOwner {
 public:
  StoreCore(StoreOptions options, PlantedBugs bugs, std::unique_ptr<Arena> arena);
  ~StoreCore() override;

  const Arena& arena() const { return *arena_; }
  const CodecNames& codecs() const { return codecs_; }

  absl::StatusOr<Reservation> Reserve(const ReserveRequest& request, TimePoint now)
      TOKURA_EXCLUDES(mutex_);
  absl::StatusOr<CommitResult> Commit(uint64_t id, const kernels::PartInfo& info, TimePoint now)
      TOKURA_EXCLUDES(mutex_);
  void Abort(uint64_t id) TOKURA_EXCLUDES(mutex_);
  void MarkProgress(uint64_t owner, TimePoint now) TOKURA_EXCLUDES(mutex_);
  bool Expired(uint64_t id) const TOKURA_EXCLUDES(mutex_);
  void Abandon(const Fingerprint& fingerprint, const BlockKey& key, const ContentId& content_id,
               TimePoint now) TOKURA_EXCLUDES(mutex_);

  Held Holds(const HeldQuery& query) const TOKURA_EXCLUDES(mutex_);

  std::vector<FormInfo> Find(const Fingerprint& fingerprint, std::span<const BlockKey> keys,
                             const AcceptRule& accept, Touch touch, TimePoint now);
  std::vector<FormPin> Pin(const PinQuery& query, TimePoint now);
  std::vector<FormInfo> Forms(const Fingerprint& fingerprint, const BlockKey& key,
                              TimePoint now) const;
  void TouchAll(const Fingerprint& fingerprint, std::span<const BlockKey> keys, TimePoint now);
  void Unpin(StoredForm& form) override TOKURA_EXCLUDES(mutex_);
  std::span<std::byte> Payload(const PartSlot& slot) const override;

  bool Remove(const Fingerprint& fingerprint, const BlockKey& key, TimePoint now)
      TOKURA_EXCLUDES(mutex_);
  std::vector<FormPin> PinForms(const Fingerprint& fingerprint, const BlockKey& key, TimePoint now);
  bool RemoveDamaged(StoredForm& form, TimePoint now) TOKURA_EXCLUDES(mutex_);
  Maintenance Maintain(TimePoint now) TOKURA_EXCLUDES(mutex_);

  uint64_t change_position() const { return log_.position(); }
  absl::StatusOr<Changes> ChangesAfter(uint64_t position, size_t max) const {
    return log_.After(position, max);
  }
  Inventory Describe(std::span<const BlockKey> keys, TimePoint now) const;
  HeldKeys ListHeld(uint64_t cursor, size_t max) const TOKURA_EXCLUDES(mutex_);
  void TouchKeys(std::span<const BlockKey> keys, TimePoint now) TOKURA_EXCLUDES(mutex_);
  size_t MarkOrphans(std::span<const BlockKey> keys) TOKURA_EXCLUDES(mutex_);

  StoreStats stats() const TOKURA_EXCLUDES(mutex_);
  StoreCounters counters() const TOKURA_EXCLUDES(mutex_);
  uint64_t OrphanedBlocks() const TOKURA_EXCLUDES(mutex_);
  absl::Status CheckInvariants() const TOKURA_EXCLUDES(mutex_);

 private:
  // A reservation, by its id; ids grow, so the map is in order of age.
  struct Pending {
    StoredForm* form = nullptr;
    PartId part;
    uint64_t offset = 0;  // of the extent
    uint64_t bytes = 0;   // of the payload
    uint64_t owner = 0;
    TimePoint since{};
    bool overdue = false;
  };
  // Who has reservations.
  struct Owner {
    uint64_t reservations = 0;
    TimePoint progressed{};
  };
  // What one call may still spend on eviction.
  struct EvictBudget {
    size_t forms;
    size_t steps;   // of the victim queue
    size_t search;  // pieces, blocks and forms looked at in search of a window
  };

  // block_store_put.cc
  absl::Status CheckRequest(const ReserveRequest& request) const;
  absl::StatusOr<Reservation> ReservePart(const ReserveRequest& request, CodecId codec,
                                          TimePoint now) TOKURA_REQUIRES(mutex_);
  absl::StatusOr<Reservation> ReserveExtent(const ReserveRequest& request, StoredForm& form,
                                            TimePoint now) TOKURA_REQUIRES(mutex_);
  absl::StatusOr<StoredForm*> IncompleteForm(const ReserveRequest& request, CodecId codec,
                                             StoredBlock& block, TimePoint now)
      TOKURA_REQUIRES(mutex_);
  void CountWaiting(StoredBlock& block) TOKURA_REQUIRES(mutex_);
  bool IsCovered(const StoredForm& wanted, TimePoint now) const TOKURA_REQUIRES(mutex_);
  bool IsCovered(const StoredBlock& block, CodecId codec, uint32_t group_mask, TimePoint now) const
      TOKURA_REQUIRES(mutex_);
  absl::Status CheckCommit(const Pending& pending, const kernels::PartInfo& info) const
      TOKURA_REQUIRES(mutex_);
  void StorePart(StoredForm& form, const Pending& pending, const kernels::PartInfo& info,
                 TimePoint now) TOKURA_REQUIRES(mutex_);
  CommitResult CompleteForm(StoredForm& form, TimePoint now) TOKURA_REQUIRES(mutex_);
  // Take a reservation out of pending_ and the sums; its extent and its form are the caller's.
  Pending TakePending(uint64_t id) TOKURA_REQUIRES(mutex_);
  void Progressed(uint64_t owner, TimePoint now) TOKURA_REQUIRES(mutex_);
  void EndWriter(StoredForm& form) TOKURA_REQUIRES(mutex_);
  void Revive(StoredForm& form) TOKURA_REQUIRES(mutex_);

  // block_store_evict.cc
  void LinkIncomplete(StoredForm& form) TOKURA_REQUIRES(mutex_);
  void Unlink(StoredForm& form) TOKURA_REQUIRES(mutex_);
  void Drop(StoredForm& form, EvictReason reason, TimePoint now) TOKURA_REQUIRES(mutex_);
  void Count(const StoredForm& form, EvictReason reason, TimePoint now) TOKURA_REQUIRES(mutex_);
  void WriteFreeHeader(const ExtentAllocator::Range& range) TOKURA_REQUIRES(mutex_);
  void FreeExtent(uint64_t offset) TOKURA_REQUIRES(mutex_);
  void FreeParts(StoredForm& form) TOKURA_REQUIRES(mutex_);
  void FreeIfUnused(StoredForm& form) TOKURA_REQUIRES(mutex_);
  bool TakeFromReaders(StoredForm& form) TOKURA_REQUIRES(mutex_);
  bool EvictOldIncomplete(Duration stalled, TimePoint now) TOKURA_REQUIRES(mutex_);
  bool EvictExpired(TimePoint now) TOKURA_REQUIRES(mutex_);
  bool EvictBlock(StoredBlock& block, EvictReason reason, TimePoint now) TOKURA_REQUIRES(mutex_);
  bool EvictUseless(EvictBudget& budget, TimePoint now) TOKURA_REQUIRES(mutex_);
  bool EvictNext(EvictReason reason, EvictBudget& budget, TimePoint now) TOKURA_REQUIRES(mutex_);
  bool MakeRoom(uint64_t extent_bytes, TimePoint now) TOKURA_REQUIRES(mutex_);
  bool MakeDescriptors(TimePoint now) TOKURA_REQUIRES(mutex_);
  void FindOverdue(TimePoint now, Maintenance& out) TOKURA_REQUIRES(mutex_);

  // block_store_window.cc
  std::optional<double> FormCost(const StoredForm& form, TimePoint now) const
      TOKURA_REQUIRES(mutex_);
  std::optional<double> BlockCost(const StoredBlock& block, EvictBudget& budget,
                                  TimePoint now) const TOKURA_REQUIRES(mutex_);
  std::optional<double> WindowCost(const ExtentAllocator::Range& window, EvictBudget& budget,
                                   TimePoint now) const TOKURA_REQUIRES(mutex_);
  std::optional<ExtentAllocator::Range> CheapestWindow(uint64_t extent_bytes, EvictBudget& budget,
                                                       TimePoint now) TOKURA_REQUIRES(mutex_);
  bool ClearWindow(uint64_t extent_bytes, EvictBudget& budget, TimePoint now)
      TOKURA_REQUIRES(mutex_);
  bool EvictWithDescendants(StoredBlock& block, EvictBudget& budget, TimePoint now)
      TOKURA_REQUIRES(mutex_);

  // block_store_check.cc
  absl::Status CheckExtents() const TOKURA_REQUIRES(mutex_);
  absl::Status CheckBlocks() const TOKURA_REQUIRES(mutex_);

  bool TryPin(StoredForm& form);

  const StoreOptions options_;
  const PlantedBugs bugs_;
  const std::unique_ptr<Arena> arena_;
  CodecNames codecs_;
  std::atomic<uint64_t> pinned_forms_{0};
  std::atomic<uint64_t> pinned_bytes_{0};

  mutable Mutex mutex_;  // before the index's shard locks, the codec table's and the log's
  VictimQueue queue_;    // Touch without the lock, everything else with it
  ChainTree tree_;       // index() without the lock, everything else with it
  ExtentAllocator allocator_ TOKURA_GUARDED_BY(mutex_);
  SlotPool<StoredForm> forms_ TOKURA_GUARDED_BY(mutex_);
  std::map<uint64_t, Pending> pending_ TOKURA_GUARDED_BY(mutex_);
  uint64_t next_id_ TOKURA_GUARDED_BY(mutex_) = 1;
  std::set<std::pair<TimePoint, uint32_t>> incomplete_ TOKURA_GUARDED_BY(mutex_);  // (start, form)
  std::set<std::pair<TimePoint, uint32_t>> expiring_
      TOKURA_GUARDED_BY(mutex_);  // (end of life, complete form)
  ChangeLog log_;                 // appended to under the lock, after the change can be seen
  uint64_t window_cursor_ TOKURA_GUARDED_BY(mutex_) = 0;  // where the search for windows goes on
  bool evicting_ TOKURA_GUARDED_BY(mutex_) = false;       // between the watermarks, on the way down
  StoreStats stats_
      TOKURA_GUARDED_BY(mutex_);  // what is kept up to date here; stats() adds the rest
  StoreCounters counters_ TOKURA_GUARDED_BY(mutex_);
  std::map<uint64_t, Owner> owners_ TOKURA_GUARDED_BY(mutex_);  // of pending_
};

}  // namespace tokura::node
