#pragma once

// Whole sides, from and to an engine's pages, by tiles. Internal to kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/rows.h"
#include "kernels/isa/token_coder.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// Dense copies of elements that do not lie row by row. A row of the largest head fits.
inline constexpr uint32_t kTileBytes = 32768;
// Channels of a copy for sides with groups of tokens: kRowsMax rows of them fit.
inline constexpr uint32_t kPatchChannels = kTileBytes / kRowsMax / sizeof(float);

// Calls visit(rows, tokens, tokens before them) for tiles of at most sixteen of the tokens `range`;
// false as soon as it returns false.
template <typename Visit>
inline bool GatherTokens(const SideAccess& access, TokenRange range, const Visit& visit) {
  alignas(64) std::byte dense[kTileBytes];
  const uint32_t row_bytes = access.dim * ElementBytes(access.dtype);
  const bool contiguous = HasContiguousRows(access);
  const uint32_t step = contiguous ? kLanes : Lesser(kLanes, kTileBytes / row_bytes);
  Rows rows;
  for (uint32_t done = 0; done < range.count; done += step) {
    const TokenRange tile{range.first + done, Lesser(step, range.count - done)};
    if (contiguous) {
      PointToRows(access, tile, {0, access.dim}, &rows);
    } else {
      MoveTile<Direction::kGather>(access, tile, {0, access.dim}, dense);
      PointToDense(dense, row_bytes, tile.count, &rows);
    }
    if (!visit(rows, tile.count, done)) {
      return false;
    }
  }
  return true;
}

// Calls visit(rows, tokens, tokens before them), which writes the rows, for such tiles.
template <typename Visit>
inline void ScatterTokens(const SideAccess& access, TokenRange range, const Visit& visit) {
  alignas(64) std::byte dense[kTileBytes];
  const uint32_t row_bytes = access.dim * ElementBytes(access.dtype);
  const bool contiguous = HasContiguousRows(access);
  const uint32_t step = contiguous ? kLanes : Lesser(kLanes, kTileBytes / row_bytes);
  Rows rows;
  for (uint32_t done = 0; done < range.count; done += step) {
    const TokenRange tile{range.first + done, Lesser(step, range.count - done)};
    if (contiguous) {
      PointToRows(access, tile, {0, access.dim}, &rows);
      visit(rows, tile.count, done);
    } else {
      PointToDense(dense, row_bytes, tile.count, &rows);
      visit(rows, tile.count, done);
      MoveTile<Direction::kScatter>(access, tile, {0, access.dim}, dense);
    }
  }
}

// `y` [tokens, dim] as a view of one page.
inline SideAccess DenseAccess(const float* y, uint32_t tokens, uint32_t dim) {
  static constexpr uint32_t kPage = 0;
  SideAccess access;
  access.base = reinterpret_cast<std::byte*>(const_cast<float*>(y));
  access.page_table = &kPage;
  access.page_tokens = tokens;
  access.token_stride = static_cast<int64_t>(dim) * static_cast<int64_t>(sizeof(float));
  access.channel_stride = sizeof(float);
  access.dim = dim;
  access.dtype = DType::kFloat32;
  return access;
}

// The four functions of a coder from those that work on pages.
template <auto kEncode, auto kDecode>
inline SideCoder CoderOf() {
  SideCoder coder;
  coder.encode_from = kEncode;
  coder.decode_to = kDecode;
  coder.encode = [](const CoderTask& task, const float* y, const CoderArrays& out) {
    return kEncode(task, DenseAccess(y, task.tokens, task.dim), {0, task.tokens}, out);
  };
  coder.decode = [](const CoderTask& task, const ConstCoderArrays& in, TokenRange rows, float* y) {
    kDecode(task, in, rows, DenseAccess(y, rows.count, task.dim), 0);
  };
  return coder;
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
