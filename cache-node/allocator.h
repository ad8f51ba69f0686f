#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tokura::node {

// Divides [0, capacity) into extents. Best fit with immediate coalescing; of equally good places
// the lowest. Small extents are cut from the end of a free range and large ones from its beginning,
// so that the two kinds gather at opposite sides and a large hole, once there, is not crumbled. All
// bookkeeping is outside the memory it divides, so that damaged memory cannot mislead it.
// Thread-compatible; deterministic. Every operation is O(log extents).
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
    Range remainder;  // free range left beside it; empty when the fit was exact
  };
  // An extent of `bytes` rounded up to the granule; `owner` is not 0. Nothing when no free range is
  // large enough.
  std::optional<Allocation> Allocate(uint64_t bytes, uint32_t owner);
  // Give back the extent at `offset`; returns the free range it is part of now.
  Range Free(uint64_t offset);

  bool Fits(uint64_t bytes) const { return largest_free() >= RoundUp(bytes); }
  uint64_t RoundUp(uint64_t bytes) const { return (bytes + granule_ - 1) / granule_ * granule_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }
  uint64_t largest_free() const { return free_.empty() ? 0 : free_.rbegin()->first; }
  size_t pieces() const { return pieces_.size(); }
  // The piece that begins at `offset` or, when none does, the next one; nothing at the end.
  std::optional<Piece> PieceAt(uint64_t offset) const;

 private:
  struct Node {
    uint64_t bytes = 0;
    uint32_t owner = 0;
  };

  const uint64_t capacity_;
  const uint64_t granule_;
  uint64_t used_ = 0;
  uint64_t largest_seen_ = 0;                     // of all requests: what counts as large
  std::map<uint64_t, Node> pieces_;               // by offset; covers the capacity without gaps
  std::set<std::pair<uint64_t, uint64_t>> free_;  // (bytes, offset)
};

}  // namespace tokura::node
