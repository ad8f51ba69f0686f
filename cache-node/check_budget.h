#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "common/ids.h"
#include "common/mutex.h"
#include "common/time.h"

namespace tokura::node {

// What clients may have a node check of what it stores: a request of some bytes costs the client
// nothing, and the node a pass over a whole block. A few blocks are checked at the same time, each
// once; and bytes that turn out to be sound are paid for from an allowance that grows with time.
// Damage that is found costs nothing, since it was worth the check. Thread-safe.
class CheckBudget {
 public:
  struct Limits {
    size_t at_once = 2;                                    // blocks, whole node
    uint64_t burst_bytes = uint64_t{256} << 20;            // sound bytes, at once
    uint64_t sound_bytes_per_second = uint64_t{64} << 20;  // in the long run
  };
  using Block = std::pair<Fingerprint, BlockKey>;

  // Leave to check one block. Its place is given back when it is destroyed. Move-only; the budget
  // outlives it.
  class Leave {
   public:
    Leave() = default;
    Leave(Leave&& other) noexcept { *this = std::move(other); }
    Leave& operator=(Leave&& other) noexcept;
    ~Leave() { End(); }

    bool valid() const { return budget_ != nullptr; }
    // So many of the bytes were found damaged.
    void Refund(uint64_t bytes);
    // Give the place back now.
    void End();

   private:
    friend class CheckBudget;
    CheckBudget* budget_ = nullptr;
    Block block_;
  };

  CheckBudget() : CheckBudget(Limits()) {}
  explicit CheckBudget(Limits limits);

  // Leave to check `bytes` of `block` now; invalid when it is being checked already, or when there
  // is no place or allowance. A block of any size may be checked while some allowance is left.
  Leave Take(const Block& block, uint64_t bytes, TimePoint now);
  // Blocks being checked.
  size_t under_way() const;

 private:
  const Limits limits_;
  mutable Mutex mutex_;  // a leaf
  std::set<Block> under_way_ TOKURA_GUARDED_BY(mutex_);
  double allowance_ TOKURA_GUARDED_BY(mutex_);                    // bytes; negative: owed
  TimePoint grown_ TOKURA_GUARDED_BY(mutex_) = TimePoint::min();  // when allowance_ grew last
};

}  // namespace tokura::node
