#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>

#include "cache-node/index.h"
#include "common/time.h"

namespace tokura::node {

// Orders the blocks that may be evicted without leaving a hole: those that no stored child builds
// on. Orphans first, then by GreedyDual-Size: a block's value is the queue's clock at its last
// touch plus its density (recompute cost ÷ stored bytes), and the clock jumps to the value of each
// victim. So a block that was not touched survives in proportion to its density, whatever the pace
// of eviction; blocks of equal value go by last touch, oldest first. Touching is two relaxed stores
// and moves nothing: a block touched since it was queued is put where it belongs when it comes to
// the front.
//
// Touch: any thread. Everything else: under the store's lock.
class VictimQueue {
 public:
  // Note that `block` is in use.
  void Touch(StoredBlock& block, TimePoint now) const;

  // Queue `block` where its last touch, its forms and its orphan flag put it; again when one of
  // these changes. It has a complete form.
  void File(StoredBlock& block);
  void Withdraw(StoredBlock& block);

  // The block to evict first; null when none is queued. At most `steps` touched blocks are put
  // where they belong (each is subtracted); when they are used up, the front is taken as it stands.
  StoredBlock* Front(size_t& steps);
  // `victim`, as ranked now, is being evicted for want of space: the clock follows.
  void Advance(const StoredBlock& victim);

  size_t size() const { return queue_.size(); }

  // Recompute cost of the block per stored byte, in 1/1024: bytes of KV that its best form stands
  // for, weighted with the prefix that has to be attended to (twice at block 512), over what all
  // its forms occupy. Rounded to half octaves, so that among nearly equal blocks recency decides;
  // between 1/1024 and 256, so that no claim of a writer makes a block immortal.
  static uint64_t Density(const StoredBlock& block);

 private:
  EvictRank RankOf(const StoredBlock& block) const;
  struct Entry {
    EvictRank rank;
    StoredBlock* block;
    friend bool operator<(const Entry& a, const Entry& b) { return a.rank < b.rank; }
  };

  std::set<Entry> queue_;
  std::atomic<uint64_t> clock_{0};
};

}  // namespace tokura::node
