#include "cache-node/allocator.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace tokura::node {

ExtentAllocator::ExtentAllocator(uint64_t capacity, uint64_t granule)
    : capacity_(capacity), granule_(granule) {
  TOKURA_CHECK(granule > 0 && capacity > 0 && capacity % granule == 0);
  pieces_.emplace(0, Node{capacity, 0});
  free_.emplace(capacity, 0);
}

std::optional<ExtentAllocator::Allocation> ExtentAllocator::Allocate(uint64_t bytes,
                                                                     uint32_t owner) {
  TOKURA_CHECK(owner != 0 && bytes > 0);
  const uint64_t need = RoundUp(bytes);
  const auto place = free_.lower_bound({need, 0});
  if (place == free_.end()) {
    return std::nullopt;
  }
  const auto [whole, offset] = *place;
  free_.erase(place);
  largest_seen_ = std::max(largest_seen_, need);
  Allocation result{{offset, need}, {}};
  if (whole > need) {
    const bool large = need * 2 > largest_seen_;
    result.used.offset = large ? offset : offset + whole - need;
    result.remainder = {large ? offset + need : offset, whole - need};
    pieces_[result.remainder.offset] = Node{result.remainder.bytes, 0};
    free_.emplace(result.remainder.bytes, result.remainder.offset);
  }
  pieces_[result.used.offset] = Node{need, owner};
  used_ += need;
  return result;
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

std::optional<ExtentAllocator::Piece> ExtentAllocator::PieceAt(uint64_t offset) const {
  const auto piece = pieces_.lower_bound(offset);
  if (piece == pieces_.end()) {
    return std::nullopt;
  }
  return Piece{{piece->first, piece->second.bytes}, piece->second.owner};
}

}  // namespace tokura::node
