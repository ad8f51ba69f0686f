#pragma once

// What an error record is measured of. Internal to kernels/.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/kv_access.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {

// The coded tokens of one side of a slab, as they are in the view and as they were coded. Borrows.
struct RecordSide {
  SideAccess access;
  uint32_t first_token = 0;  // in the view
  SideTask task;
  const std::byte* coded = nullptr;  // unless task.side is raw
};

struct RecordInput {
  RecordSide k;
  RecordSide v;         // that of K again for a head without V
  uint32_t v_dim = 0;   // channels of v that are values
  bool v_is_k = false;  // a head without V
};

// Calls visit(rows) for pieces of the coded tokens of a side: what is converted or decoded before
// it is used stays in the first cache. All but the last have a multiple of sixteen tokens, because
// coders by token work on so many at a time.
template <typename Visit>
void ForEachRecordPiece(const SideShape& shape, const Visit& visit) {
  constexpr uint32_t kPieceFloats = 4096;
  constexpr uint32_t kPieceTokens = 16;
  const uint32_t fitting = kPieceFloats / std::max(shape.dim, 1u) / kPieceTokens * kPieceTokens;
  const uint32_t step = std::max(fitting, kPieceTokens);
  for (uint32_t first = 0; first < shape.tokens; first += step) {
    visit(TokenRange{first, std::min(step, shape.tokens - first)});
  }
}

}  // namespace tokura::kernels
