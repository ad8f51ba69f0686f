#include "cache-node/allocator.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace tokura::node {
namespace {

// Free ranges shorter than twice the grid's pitch that are tried for a grid point.
constexpr size_t kGridTries = 64;

}  // namespace

ExtentAllocator::ExtentAllocator(uint64_t capacity, uint64_t granule)
    : capacity_(capacity), granule_(granule) {
  TOKURA_CHECK(granule > 0 && capacity > 0 && capacity % granule == 0);
  pieces_.emplace(0, Node{capacity, 0});
  free_.emplace(capacity, 0);
}

std::optional<ExtentAllocator::Cut> ExtentAllocator::Pick(uint64_t bytes, Place place) const {
  auto range = free_.lower_bound({bytes, 0});
  if (range == free_.end()) {
    return std::nullopt;
  }
  const bool on_grid = OnGrid(bytes);
  if (!on_grid || place == Place::kAnywhere) {
    const Range whole{range->second, range->first};
    const uint64_t offset = on_grid ? whole.offset : whole.offset + whole.bytes - bytes;
    return Cut{{offset, bytes}, whole};
  }
  // A range of twice the pitch always holds a grid point with enough room behind it; of the shorter
  // ones only a few are tried.
  const uint64_t pitch = std::max(pitch_, bytes);
  for (size_t tries = kGridTries; range != free_.end(); ++range) {
    const Range whole{range->second, range->first};
    const uint64_t offset = (whole.offset + pitch - 1) / pitch * pitch;
    if (offset + bytes <= whole.offset + whole.bytes) {
      return Cut{{offset, bytes}, whole};
    }
    if (--tries == 0) {
      range = free_.lower_bound({2 * pitch, 0});
      tries = kGridTries;
      if (range == free_.end()) {
        break;
      }
      --range;  // The loop moves on to it.
    }
  }
  return std::nullopt;
}

std::optional<ExtentAllocator::Allocation> ExtentAllocator::Allocate(uint64_t bytes, uint32_t owner,
                                                                     Place place) {
  TOKURA_CHECK(owner != 0 && bytes > 0);
  const std::optional<Cut> cut = Pick(RoundUp(bytes), place);
  if (!cut.has_value()) {
    return std::nullopt;
  }
  const auto [used, whole] = *cut;
  pitch_ = std::max(pitch_, used.bytes);
  free_.erase({whole.bytes, whole.offset});
  pieces_.erase(whole.offset);
  const Range before{whole.offset, used.offset - whole.offset};
  const Range after{used.offset + used.bytes,
                    whole.offset + whole.bytes - used.offset - used.bytes};
  for (const Range& rest : {before, after}) {
    if (rest.bytes > 0) {
      pieces_[rest.offset] = Node{rest.bytes, 0};
      free_.emplace(rest.bytes, rest.offset);
    }
  }
  pieces_[used.offset] = Node{used.bytes, owner};
  used_ += used.bytes;
  return Allocation{used, before, after};
}

ExtentAllocator::Range ExtentAllocator::Free(uint64_t offset) {
  auto piece = pieces_.find(offset);
  TOKURA_CHECK(piece != pieces_.end() && piece->second.owner != 0);
  used_ -= piece->second.bytes;
  piece->second.owner = 0;
  const auto next = std::next(piece);
  if (next != pieces_.end() && next->second.owner == 0) {
    free_.erase({next->second.bytes, next->first});
    piece->second.bytes += next->second.bytes;
    pieces_.erase(next);
  }
  if (piece != pieces_.begin() && std::prev(piece)->second.owner == 0) {
    const auto before = std::prev(piece);
    free_.erase({before->second.bytes, before->first});
    before->second.bytes += piece->second.bytes;
    pieces_.erase(piece);
    piece = before;
  }
  free_.emplace(piece->second.bytes, piece->first);
  return {piece->first, piece->second.bytes};
}

ExtentAllocator::Piece ExtentAllocator::PieceAt(uint64_t offset) const {
  TOKURA_CHECK(offset < capacity_);
  const auto piece = std::prev(pieces_.upper_bound(offset));
  return Piece{{piece->first, piece->second.bytes}, piece->second.owner};
}

std::optional<ExtentAllocator::Range> ExtentAllocator::Candidate(uint64_t bytes,
                                                                 uint64_t offset) const {
  const uint64_t need = RoundUp(bytes);
  if (OnGrid(need)) {
    const uint64_t pitch = std::max(pitch_, need);
    offset = (offset + pitch - 1) / pitch * pitch;
  } else {
    const auto piece = pieces_.lower_bound(offset);
    offset = piece == pieces_.end() ? capacity_ : piece->first;
  }
  if (offset + need > capacity_) {
    return std::nullopt;
  }
  return Range{offset, need};
}

}  // namespace tokura::node
