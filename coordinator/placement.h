#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// Where the segments of chains go: weighted rendezvous hashing. Each member that is UP and has a
// share draws a number from (segment's first key, its name), exponentially distributed with its
// weight, capacity × share, as the rate; the smallest is the first choice, the next one the first
// replica. So a member gets segments in proportion to its weight, and when a weight changes only
// segments from or to that member move.
//
// Integer arithmetic only: every coordinator on every machine gives the same answer for the same
// members, whatever their order. Immutable; thread-safe.
class Placement {
 public:
  static constexpr size_t kChoicesMax = 16;  // that one call can return

  // Nothing to choose from.
  Placement() = default;
  // Takes what it needs from `state`, for whose epoch it answers.
  explicit Placement(const proto::ClusterState& state);

  uint64_t epoch() const { return epoch_; }
  // Members to choose from.
  size_t choices() const { return candidates_.size(); }

  // Fill `out` with the best members for the segment whose first block is `root`, best first, as
  // indices into state.members(). Returns how many there are: less than out.size() when there are
  // not so many choices. Requires out.size() ≤ kChoicesMax. O(choices × out.size()).
  size_t Choose(const BlockKey& root, std::span<uint32_t> out) const;

 private:
  struct Candidate {
    uint64_t hash[2];  // of its name
    uint64_t weight;
    uint32_t member;
  };
  uint64_t epoch_ = 0;
  std::vector<Candidate> candidates_;  // by the hash of the name
};

}  // namespace tokura::coordinator
