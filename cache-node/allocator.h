#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tokura::node {

// Divides [0, capacity) into extents. Best fit with immediate coalescing; of equally good places
// the lowest. Extents of nearly the largest size seen stand on a grid of that pitch: placed
// anywhere they would leave gaps between them that are each too small for another (a quarter of the
// space, when they come and go at random). All others are cut from the end of a free range, so that
// the two kinds gather at opposite sides. All bookkeeping is outside the memory it divides, so that
// damaged memory cannot mislead it. Thread-compatible; deterministic. Every operation is O(log
// extents).
class ExtentAllocator {
 public:
  struct Range {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  // An extent in address order. `owner` is what Allocate was given, 0 for free ranges.
  struct Piece {
    Range range;
    uint32_t owner = 0;
  };

  // `capacity` is a multiple of `granule`.
  ExtentAllocator(uint64_t capacity, uint64_t granule);

  struct Allocation {
    Range used;
    Range before;  // free ranges left beside it; empty (0 bytes) where the fit was exact
    Range after;
  };
  enum class Place { kBest, kAnywhere };  // kAnywhere: off the grid, if need be
  // An extent of `bytes` rounded up to the granule; `owner` is not 0. Nothing when no free range
  // serves.
  std::optional<Allocation> Allocate(uint64_t bytes, uint32_t owner, Place place);
  // Whether Allocate would succeed.
  bool Fits(uint64_t bytes, Place place) const { return Pick(RoundUp(bytes), place).has_value(); }
  // Give back the extent at `offset`; returns the free range it is part of now.
  Range Free(uint64_t offset);

  uint64_t RoundUp(uint64_t bytes) const { return (bytes + granule_ - 1) / granule_ * granule_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }
  uint64_t largest_free() const { return free_.empty() ? 0 : free_.rbegin()->first; }
  size_t pieces() const { return pieces_.size(); }
  uint64_t free_bytes() const { return capacity_ - used_; }
  // The piece that holds `offset`, which is below the capacity.
  Piece PieceAt(uint64_t offset) const;

  // Candidates for clearing: the ranges that an extent of `bytes` could take if everything in them
  // were free. The first one at or after `offset`; nothing when there is none up to the capacity.
  std::optional<Range> Candidate(uint64_t bytes, uint64_t offset) const;

 private:
  struct Node {
    uint64_t bytes = 0;
    uint32_t owner = 0;
  };

  bool OnGrid(uint64_t bytes) const { return bytes > pitch_ - pitch_ / 8; }
  // The range that Allocate would cut off, and what it is cut from.
  struct Cut {
    Range used;
    Range whole;
  };
  std::optional<Cut> Pick(uint64_t bytes, Place place) const;

  const uint64_t capacity_;
  const uint64_t granule_;
  uint64_t used_ = 0;
  uint64_t pitch_ = 0;                            // of the grid: the largest extent ever allocated
  std::map<uint64_t, Node> pieces_;               // by offset; covers the capacity without gaps
  std::set<std::pair<uint64_t, uint64_t>> free_;  // (bytes, offset)
};

}  // namespace tokura::node
