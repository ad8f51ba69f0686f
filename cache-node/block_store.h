#pragma once

// The host tier: blocks and their forms in one arena, found by key, pinned by readers, evicted
// under pressure. Real time, randomness and threads stay outside: the same calls in the same order
// give the same state.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/arena.h"
#include "cache-node/node.h"
#include "cache-node/pin.h"
#include "common/ids.h"
#include "common/time.h"
#include "kernels/part.h"
#include "proto/accept.h"

namespace tokura::node {

class StoreCore;
struct StoredForm;

struct StoreOptions {
  uint64_t host_bytes = uint64_t{1} << 30;  // the arena; a hard limit
  Prefault prefault = Prefault::kNo;        // of the arena
  double high_watermark = 0.95;             // of host_bytes: Maintain evicts above it, down to
  double low_watermark = 0.90;
  Duration lease_age = std::chrono::seconds(10);       // of a reservation, without progress
  Duration incomplete_age = std::chrono::seconds(60);  // of a block that waits for parts, and of a
                                                       // reservation in all
  uint64_t part_bytes_max = uint64_t{64} << 20;
  uint32_t blocks_max = 0;      // descriptors; 0: one per 4 KiB of host_bytes, at least 1024
  uint64_t change_log_max = 0;  // changes that the log keeps; 0: none
};

enum class Touch { kNo, kYes };
// What a missing key does to those behind it: end the answer (a chain), or leave an invalid entry.
enum class Gaps { kCut, kKeep };

struct PinQuery {
  Fingerprint fingerprint;
  std::span<const BlockKey> keys;
  AcceptRule accept;
  // Empty, or one per key: pin exactly that content; an empty id is any.
  std::span<const ContentId> content_ids;
  // Empty, or one per key: a pin to clone where it pins what is wanted, whether or not the block
  // can still be found; null where there is none. One that was found damaged is none.
  std::span<const FormPin* const> held;
  Gaps gaps = Gaps::kCut;
};

// Parts of one writer's put of a block: group_mask × first_shard… of content_id in codec.
struct HeldQuery {
  Fingerprint fingerprint;
  BlockKey key;
  ContentId content_id;
  std::string_view codec;
  uint32_t group_mask = 0;
  uint32_t first_shard = 0;
  uint32_t shard_count = 0;
};
enum class Held {
  kNo,       // some part is not stored (any more)
  kWaiting,  // all are, in a set that waits for other parts
  kVisible,  // the block is complete in that codec with those groups
};

// One part that wants to be stored.
struct ReserveRequest {
  Fingerprint fingerprint;
  BlockKey key;
  // Empty at the root. Parent and position order eviction, nothing else; the first put of a block
  // settles them.
  BlockKey parent;
  uint32_t position = 0;  // index in the chain
  ContentId content_id;
  std::string_view codec;
  uint32_t group_mask = 0;  // of the whole block, all writers together; 1…8 bits
  uint32_t shards = 0;      // 1…256
  PartId part;
  uint64_t bytes = 0;
  uint64_t owner = 0;  // connection; what Maintain reports when the reservation is overdue
  // How long the block may be found once it is complete; 0: as long as there is room. Of several
  // writers of one content the shortest holds. Putting what is held already extends nothing.
  Duration ttl{};
};

// Room for one part. Owns its extent: destroying it without Commit gives the extent back, so it
// must live until the transport has called Done for the Receive into bytes(). Move-only, any thread
// (see FormPin about locks); the store outlives it.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Abort(); }

  bool valid() const { return core_ != nullptr; }
  // Where to receive: exactly the bytes asked for, 64-byte aligned, in the arena.
  std::span<std::byte> bytes() const { return bytes_; }
  // Whether Commit would refuse it already: it is overdue, or its block was removed or gave up
  // waiting. Never goes back to false.
  bool expired() const;
  // Give the extent back now.
  void Abort();

 private:
  friend class BlockStore;
  friend class StoreCore;
  StoreCore* core_ = nullptr;
  uint64_t id_ = 0;
  std::span<std::byte> bytes_;
};

enum class CommitResult {
  kWaiting,    // stored; the block waits for other parts
  kVisible,    // stored; the block is complete and can be found
  kDuplicate,  // already there in that codec (from this or another writer): success, bytes dropped
};

enum class EvictReason : uint8_t {
  kIncomplete =
      0,        // waited longer than incomplete_age; under pressure, idle for lease_age; abandoned
  kOrphan = 1,  // its parent was here and is gone, or its prefix is held nowhere
  kWatermark = 2,   // least valuable, above the high watermark
  kAllocation = 3,  // made room for a reservation
  kFragmented = 4,  // lay beside free space that a large part needed
  kRemoved = 5,     // Remove
  kExpired = 6,     // past its time to live
  kDamaged = 7,     // its bytes do not match their checksums any more
};
inline constexpr size_t kEvictReasons = 8;
const char* EvictReasonName(EvictReason reason);

// Upper bounds in seconds of StoreCounters::residence; the last bucket is everything above.
inline constexpr std::array<double, 7> kResidenceSeconds = {1, 10, 60, 300, 1800, 7200, 43200};

// Monotonic counters since creation.
struct StoreCounters {
  std::array<uint64_t, kEvictReasons> evicted_forms{};
  std::array<uint64_t, kEvictReasons> evicted_bytes{};             // stored bytes
  std::array<uint64_t, kResidenceSeconds.size() + 1> residence{};  // complete forms that left
  double residence_seconds_sum = 0;
  uint64_t commits_visible = 0;
  uint64_t commits_waiting = 0;
  uint64_t commits_duplicate = 0;
  uint64_t commits_refused = 0;  // late or not what was announced
  uint64_t reservations_overdue = 0;
  uint64_t reservations_refused = 0;  // RESOURCE_EXHAUSTED
  uint64_t window_steps = 0;  // pieces, blocks and forms looked at to clear room for large parts
};

// Sets of one block, of different contents or codecs, that may wait for parts at the same time.
inline constexpr size_t kIncompleteSetsMax = 16;

struct CodecUsage {
  std::string codec;
  uint64_t forms = 0;
  uint64_t stored_bytes = 0;
  uint64_t logical_bytes = 0;
};

struct StoreStats {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;          // extents in use, headers and rounding included
  uint64_t largest_free_bytes = 0;  // the largest part that fits without evicting
  uint64_t pinned_bytes = 0;        // stored bytes of forms that readers pin
  uint64_t pinned_forms = 0;
  uint64_t blocks = 0;         // with a complete form
  uint64_t forms = 0;          // complete
  uint64_t stored_bytes = 0;   // of complete forms
  uint64_t logical_bytes = 0;  // of complete forms
  uint64_t incomplete_forms = 0;
  uint64_t incomplete_blocks = 0;  // with incomplete forms only
  uint64_t reservations = 0;
  uint64_t reserved_bytes = 0;
  uint64_t doomed_forms = 0;         // removed, still pinned or being written
  std::vector<CodecUsage> by_codec;  // complete forms, in order of first use of the codec
};

// What the store holds of some keys. A key names its block in every namespace: should several hold
// it, their forms are listed together.
struct Inventory {
  struct Record {
    BlockKey key;
    BlockKey parent;          // empty at the root, and for a key that is not held
    uint32_t first_form = 0;  // index into forms
    uint32_t forms = 0;       // 0: not held
  };
  std::vector<Record> records;
  std::vector<FormInfo> forms;  // complete ones; of each key the kInventoryFormsMax best
};
inline constexpr uint32_t kInventoryFormsMax = 32;

// A piece of the change log: the keys of the changes (from, last], in order; a key may come twice.
struct Changes {
  std::vector<BlockKey> keys;
  uint64_t last = 0;
};

// A piece of a walk over all keys that are held.
struct HeldKeys {
  std::vector<BlockKey> keys;  // each once
  uint64_t cursor = 0;         // where the walk goes on
  bool end = false;
};

struct Maintenance {
  // Connections (ascending) with reservations that are overdue: close them (kAbort); their Done
  // calls then end the reservations. Reported by every Maintain until the reservations are gone.
  std::vector<uint64_t> overdue_owners;
  // There was more to do than one call may: call again soon.
  bool more = false;
};

// Thread-safe. No call blocks but for short locks; nothing calls back. Work per call is bounded: by
// the keys and parts named, and for eviction by a fixed number of forms.
class BlockStore {
 public:
  // RESOURCE_EXHAUSTED: the arena could not be mapped (the message has the size);
  // INVALID_ARGUMENT: options out of range.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Create(StoreOptions options,
                                                            PlantedBugs bugs = {});
  ~BlockStore();  // all pins and reservations are gone

  // The whole arena, for net::Transport::Register. Fixed for the store's life.
  std::span<std::byte> arena() const;
  bool huge_pages() const;  // the arena is on explicit huge pages

  // Room for one part. Evicts when there is none.
  // ALREADY_EXISTS: the block is complete in that codec, or this part of this content is stored:
  // the
  //   put is done, drop the payload, answer OK.
  // RESOURCE_EXHAUSTED: no room, even after evicting what may go; or kIncompleteSetsMax other sets
  // of the block wait for parts.
  // INVALID_ARGUMENT: unusable codec name; bytes 0 or above part_bytes_max, part outside group_mask
  // × shards, empty key
  //   or content id; or the same content announced other groups or shards before.
  absl::StatusOr<Reservation> Reserve(const ReserveRequest& request, TimePoint now);

  // Store the received and verified bytes of `reservation`; `info` is what the verifier read from
  // them. The block becomes visible with its last part. On error the extent is given back.
  // ABORTED: too late, the reservation has expired (see Reservation::expired).
  // INVALID_ARGUMENT: `info` is not what was reserved (identity, codec or size).
  absl::StatusOr<CommitResult> Commit(Reservation reservation, const kernels::PartInfo& info,
                                      TimePoint now);

  // Bytes of `owner` arrived, as they have when it commits: none of its reservations is overdue for
  // want of progress before another lease_age has passed, since a connection fills them one after
  // the other. Unknown owners are ignored.
  void MarkProgress(uint64_t owner, TimePoint now);

  // Whether the parts of a put are stored now: what was, may have been given up by another writer.
  Held Holds(const HeldQuery& query) const;

  // Give up the incomplete sets of one content: what is stored of it goes, its reservations expire.
  // For a cancelled put. Complete forms stay.
  void Abandon(const Fingerprint& fingerprint, const BlockKey& key, const ContentId& content_id,
               TimePoint now);

  // The best acceptable form of each leading key, up to the first key that has none. A hint: takes
  // no pin and, but for `touch`, changes nothing.
  std::vector<FormInfo> Find(const Fingerprint& fingerprint, std::span<const BlockKey> keys,
                             const AcceptRule& accept, Touch touch, TimePoint now);

  // Pin the best acceptable form of each key; touches. At most one entry per key.
  std::vector<FormPin> Pin(const PinQuery& query, TimePoint now);

  // All complete forms of a block, best first as by an empty AcceptRule; empty when there is none.
  // By default also those whose time to live has passed, until Maintain drops them.
  std::vector<FormInfo> Forms(const Fingerprint& fingerprint, const BlockKey& key,
                              TimePoint now = {}) const;

  // Tell the evictor that the chain is in use. Unknown keys are ignored.
  void TouchAll(const Fingerprint& fingerprint, std::span<const BlockKey> keys, TimePoint now);

  // Forget a block in all its forms: it is missing from now on; what is pinned or being received is
  // freed by the last that lets go. Its children become orphans. False: it was not there.
  bool Remove(const Fingerprint& fingerprint, const BlockKey& key, TimePoint now);

  // Pin every complete form of a block that has not expired; no touch.
  std::vector<FormPin> PinForms(const Fingerprint& fingerprint, const BlockKey& key, TimePoint now);
  // Forget exactly the pinned form, whose bytes were found damaged; other forms of its block stay,
  // one that was stored since among them. It is missing from now on, also where a pin of it is held
  // (PinQuery), and freed by the last pin.
  // False: it was gone already.
  bool RemoveDamaged(const FormPin& pin, TimePoint now);

  // The periodic work (every 10…100 ms, one thread at a time): incomplete blocks expire, overdue
  // reservations are found, and above the high watermark forms are evicted down to the low one.
  Maintenance Maintain(TimePoint now);

  // The change log numbers every change of what can be found under a key (a form became complete,
  // or went) from 1; its position is the last number. The state itself is read with Describe,
  // later: what it says of a key is at least as new as every change that ChangesAfter had returned
  // of it.
  uint64_t change_position() const;
  // At most `max` changes after `position`. OUT_OF_RANGE: the log does not reach back that far, or
  // not forward: describe everything again.
  absl::StatusOr<Changes> ChangesAfter(uint64_t position, size_t max) const;
  // What is held of each key, in the order of `keys`.
  Inventory Describe(std::span<const BlockKey> keys, TimePoint now) const;
  // The next at most `max` (≥ 1) keys that are held, beginning with cursor 0. A walk during which
  // the store changes names every key that is held from its beginning to its end; what it misses,
  // or names although it has gone since, is in the log after the position at the beginning.
  HeldKeys ListHeld(uint64_t cursor, size_t max) const;

  // As TouchAll, for keys of any namespace. Takes blocks back that were marked as orphans.
  void TouchKeys(std::span<const BlockKey> keys, TimePoint now);
  // The prefix of these blocks is held nowhere: they and what builds on them are evicted first,
  // until they are touched by TouchKeys or put again. Keys that are not held are ignored. Returns
  // how many were marked.
  size_t MarkOrphans(std::span<const BlockKey> keys);

  // Name of an interned codec. `codec` comes from a FormInfo of this store.
  std::string_view CodecText(CodecId codec) const;

  StoreStats stats() const;
  StoreCounters counters() const;
  // Complete blocks that are orphans now. Walks all blocks: for tests and the simulation.
  uint64_t OrphanedBlocks() const;
  // Walk the arena and every descriptor and compare (slow; for tests and the simulation). INTERNAL
  // names the invariant that is broken; DATA_LOSS: an extent's header is damaged.
  absl::Status CheckInvariants() const;

 private:
  explicit BlockStore(std::unique_ptr<StoreCore> core);
  std::unique_ptr<StoreCore> core_;
};

}  // namespace tokura::node
