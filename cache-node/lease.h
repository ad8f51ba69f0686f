#pragma once

// Leases: pins that a client holds by a token.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/pin.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/time.h"

namespace tokura::node {

class LeaseTable;

// One transfer that reads what a lease pins. While it exists the lease's pins stay, even when the
// lease expires, is released or loses its owner meanwhile: destroy it only when the transport has
// called Done for everything it was used for. Move-only; any thread; the table outlives it.
class LeaseUse {
 public:
  LeaseUse() = default;
  LeaseUse(LeaseUse&& other) noexcept;
  LeaseUse& operator=(LeaseUse&& other) noexcept;
  ~LeaseUse() { Reset(); }

  bool valid() const { return table_ != nullptr; }
  void Reset();
  // The lease's pins, in the order acquired. Valid while this use exists.
  std::span<const FormPin> pins() const;
  // The pin of `key`, or null: the lease does not hold that block.
  const FormPin* Find(const Fingerprint& fingerprint, const BlockKey& key) const;
  // Bytes moved: the lease's age starts again (its maximum age does not).
  void Progress(TimePoint now);

 private:
  friend class LeaseTable;
  struct Shared;
  LeaseUse(LeaseTable* table, std::shared_ptr<Shared> lease, uint64_t connection);

  LeaseTable* table_ = nullptr;
  std::shared_ptr<Shared> lease_;  // owners: the table and the uses
  uint64_t connection_ = 0;
};

// The node's leases. Thread-safe; pins are dropped outside its lock, so it nests inside nothing and
// nothing of the store nests inside it.
//
// Life of a lease:
//   held    --Renew, Use, Progress--> held
//   held    --Release, ReleaseOwner, Sweep past an age--> closing: no Renew, no new Use
//   closing --last LeaseUse gone (at once when there is none)--> gone, unpinned
class LeaseTable {
 public:
  struct Options {
    Duration lease_age = std::chrono::seconds(10);      // without renewal or progress
    Duration lease_age_max = std::chrono::seconds(60);  // in all
    uint32_t leases_max = 65536;
    uint64_t pins_max = uint64_t{4} << 20;  // of all leases together: some 80 MiB
    // Of these, what one owner may hold.
    uint32_t owner_leases_max = 16384;
    uint64_t owner_pins_max = uint64_t{1} << 20;
    bool release_twice = false;  // planted bug (PlantedBugs)
  };
  struct Stats {
    uint64_t leases = 0;   // held and closing
    uint64_t pins = 0;     // of these
    uint64_t closing = 0;  // waiting for transfers
    uint64_t expired_total = 0;
    // Leases that Sweep and ReleaseOwner looked at: their work under the lock.
    uint64_t visited_total = 0;
  };
  struct Expired {
    LeaseToken token;
    uint64_t owner = 0;
    std::vector<uint64_t> connections;  // ascending: transfers under way, to be closed (kAbort)
  };

  // `random` outlives the table; it makes the tokens.
  LeaseTable(Options options, RandomSource& random);
  ~LeaseTable();  // every LeaseUse is gone

  // Hold `pins` (one or more) for `tenant` until the lease ends. `owner` is the connection it goes
  // with. RESOURCE_EXHAUSTED: a limit of the options is reached; INVALID_ARGUMENT: a block is
  // pinned twice. The pins are dropped on error.
  absl::StatusOr<LeaseToken> Acquire(std::string tenant, uint64_t owner, std::vector<FormPin> pins,
                                     TimePoint now);
  // Start again the age of a lease. False: unknown, another tenant's, closing, or past an age.
  bool Renew(const LeaseToken& token, std::string_view tenant, TimePoint now);
  // End a lease. False as for Renew. Its pins go now, or with its last LeaseUse.
  bool Release(const LeaseToken& token, std::string_view tenant, TimePoint now);
  // Start a transfer on `connection` (any connection of the tenant) that reads the lease's forms;
  // counts as progress. NOT_FOUND as for Renew's false.
  absl::StatusOr<LeaseUse> Use(const LeaseToken& token, std::string_view tenant,
                               uint64_t connection, TimePoint now);
  // The connection is gone: its leases end. Others' transfers on them finish first. Visits the
  // owner's leases alone.
  void ReleaseOwner(uint64_t owner);
  // End leases past an age. Returns, in token order, every closing lease that is past an age and
  // still has transfers under way: close those connections; their Done calls then end the uses. A
  // lease is returned by every Sweep until it is gone. Visits what is returned and, of the others,
  // those whose age would have ended by now when it was last looked at.
  std::vector<Expired> Sweep(TimePoint now);

  Stats stats() const;

 private:
  friend class LeaseUse;
  using Shared = LeaseUse::Shared;
  // The lease, when it is held, the tenant's and within its ages; else null.
  Shared* FindLive(const LeaseToken& token, std::string_view tenant, TimePoint now) const
      TOKURA_REQUIRES(mutex_);
  // RESOURCE_EXHAUSTED: one more lease of `pins` pins does not fit.
  absl::Status CheckRoom(uint64_t owner, size_t pins) const TOKURA_REQUIRES(mutex_);
  // When the lease reaches an age, without further progress.
  TimePoint AgeEnd(const Shared& lease) const TOKURA_REQUIRES(mutex_);
  bool PastAge(const Shared& lease, TimePoint now) const TOKURA_REQUIRES(mutex_);
  // The leases past an age, in token order; the others that were due are entered again.
  std::vector<Shared*> TakeStock(TimePoint now) TOKURA_REQUIRES(mutex_);
  // Refuse new uses; when there is none left, take the lease out. The caller drops what is returned
  // after the lock, because that unpins.
  std::shared_ptr<Shared> Close(Shared& lease) TOKURA_REQUIRES(mutex_);
  // Only for the planted bug release_twice: of another lease on the blocks that `token`'s had, let
  // go of the pins. Returns them to be dropped after the lock.
  std::vector<FormPin> TakeOthersPins(const LeaseToken& token) TOKURA_REQUIRES(mutex_);
  void EndUse(Shared& lease, uint64_t connection);
  void MarkProgress(Shared& lease, TimePoint now);

  const Options options_;
  RandomSource& random_;
  mutable Mutex mutex_;  // a leaf: nothing is locked while it is held
  std::map<LeaseToken, std::shared_ptr<Shared>> leases_ TOKURA_GUARDED_BY(mutex_);
  struct Holding {
    std::map<LeaseToken, Shared*> leases;
    uint64_t pins = 0;
  };
  std::map<uint64_t, Holding> owners_
      TOKURA_GUARDED_BY(mutex_);  // of leases_, closing ones included
  // Every lease of leases_ once, by Shared::due. Progress does not move it, so that it costs
  // nothing; the sweep that finds the lease due does.
  std::map<std::pair<TimePoint, LeaseToken>, Shared*> due_ TOKURA_GUARDED_BY(mutex_);
  uint64_t pins_ TOKURA_GUARDED_BY(mutex_) = 0;     // of leases_
  uint64_t closing_ TOKURA_GUARDED_BY(mutex_) = 0;  // of leases_
  uint64_t visited_total_ TOKURA_GUARDED_BY(mutex_) = 0;
  uint64_t expired_total_ TOKURA_GUARDED_BY(mutex_) = 0;
  // Only for the planted bug release_twice: what released leases held.
  std::map<LeaseToken, std::vector<BlockKey>> released_ TOKURA_GUARDED_BY(mutex_);
};

}  // namespace tokura::node
