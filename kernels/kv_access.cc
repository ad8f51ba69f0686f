#include "kernels/kv_access.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/float_convert.h"
#include "kernels/kernel_set.h"
#include "kernels/stream_copy.h"

namespace tokura::kernels {
namespace {

// Elements converted at a time: the raw copy between strides and conversion stays in the first
// cache level.
constexpr size_t kTileBytes = 8192;
// Transposed copies go by squares of this many elements, so that both sides stay in whole lines.
constexpr uint32_t kSquare = 32;
// Shorter runs are mostly parts of cache lines.
constexpr size_t kStreamBytesMin = 256;

enum class Direction : uint8_t { kGather, kScatter };

// Move one element between the strided and the dense side.
template <Direction kDirection, size_t kBytes>
inline void MoveElement(std::byte* strided, std::byte* dense) {
  if constexpr (kDirection == Direction::kGather) {
    std::memcpy(dense, strided, kBytes);
  } else {
    std::memcpy(strided, dense, kBytes);
  }
}

template <Direction kDirection>
inline void MoveBytes(PageStores stores, std::byte* strided, std::byte* dense, size_t bytes) {
  if constexpr (kDirection == Direction::kGather) {
    std::memcpy(dense, strided, bytes);
  } else if (stores == PageStores::kStreaming && bytes >= kStreamBytesMin) {
    StreamCopy(strided, dense, bytes);
  } else {
    std::memcpy(strided, dense, bytes);
  }
}

// `tokens` tokens of one page, by squares: the strided side may have either axis innermost.
template <Direction kDirection, size_t kBytes>
void MoveStrided(const SideAccess& access, std::byte* strided, uint32_t tokens, std::byte* dense) {
  const size_t row_bytes = size_t{access.dim} * kBytes;
  for (uint32_t t0 = 0; t0 < tokens; t0 += kSquare) {
    const uint32_t t1 = std::min(t0 + kSquare, tokens);
    for (uint32_t c = 0; c < access.dim; ++c) {
      std::byte* column = strided + static_cast<int64_t>(c) * access.channel_stride;
      for (uint32_t t = t0; t < t1; ++t) {
        MoveElement<kDirection, kBytes>(column + static_cast<int64_t>(t) * access.token_stride,
                                        dense + t * row_bytes + c * kBytes);
      }
    }
  }
}

bool HasContiguousChannels(const SideAccess& access) {
  return access.channel_stride == static_cast<int64_t>(DTypeBytes(access.dtype));
}

template <Direction kDirection>
void MoveRun(const SideAccess& access, std::byte* strided, uint32_t tokens, std::byte* dense) {
  const size_t element_bytes = DTypeBytes(access.dtype);
  const size_t row_bytes = size_t{access.dim} * element_bytes;
  if (HasContiguousChannels(access)) {
    if (access.token_stride == static_cast<int64_t>(row_bytes)) {
      MoveBytes<kDirection>(access.stores, strided, dense, row_bytes * tokens);
      return;
    }
    for (uint32_t t = 0; t < tokens; ++t) {
      MoveBytes<kDirection>(access.stores, strided + static_cast<int64_t>(t) * access.token_stride,
                            dense + t * row_bytes, row_bytes);
    }
    return;
  }
  switch (element_bytes) {
    case 1:
      return MoveStrided<kDirection, 1>(access, strided, tokens, dense);
    case 2:
      return MoveStrided<kDirection, 2>(access, strided, tokens, dense);
    default:
      return MoveStrided<kDirection, 4>(access, strided, tokens, dense);
  }
}

// Calls visit(strided address, tokens, tokens before them) for each run inside a page.
template <typename Visit>
void ForEachRun(const SideAccess& access, TokenRange range, const Visit& visit) {
  uint32_t done = 0;
  while (done < range.count) {
    const uint32_t token = range.first + done;
    const uint32_t slot = token % access.page_tokens;
    const uint32_t run = std::min(range.count - done, access.page_tokens - slot);
    std::byte* strided =
        access.base +
        static_cast<int64_t>(access.page_table[token / access.page_tokens]) * access.page_stride +
        static_cast<int64_t>(slot) * access.token_stride;
    visit(strided, run, done);
    done += run;
  }
}

template <Direction kDirection>
void Move(const SideAccess& access, TokenRange range, std::byte* dense) {
  const size_t row_bytes = size_t{access.dim} * DTypeBytes(access.dtype);
  if (row_bytes == 0) {
    return;
  }
  ForEachRun(access, range, [&](std::byte* strided, uint32_t run, uint32_t done) {
    MoveRun<kDirection>(access, strided, run, dense + done * row_bytes);
  });
}

// Calls visit(sub-range, tokens before it) for pieces of `range` that fit a tile of `tile_bytes`.
template <typename Visit>
void ForEachTile(const SideAccess& access, TokenRange range, size_t tile_bytes,
                 const Visit& visit) {
  const uint32_t row_bytes = access.dim * static_cast<uint32_t>(DTypeBytes(access.dtype));
  const uint32_t step =
      static_cast<uint32_t>(std::max<size_t>(tile_bytes / std::max(row_bytes, 1u), 1));
  for (uint32_t done = 0; done < range.count; done += step) {
    visit(TokenRange{range.first + done, std::min(step, range.count - done)}, done);
  }
}

SideAccess Access(const KvView& view, std::byte* base, const KvStrides& strides, uint32_t head,
                  uint32_t dim) {
  SideAccess access;
  access.base = dim == 0 ? nullptr : base + static_cast<int64_t>(head) * strides.head;
  access.page_table = view.page_table.data();
  access.page_tokens = view.page_tokens;
  access.page_stride = strides.page;
  access.token_stride = strides.token;
  access.channel_stride = strides.channel;
  access.dim = dim;
  access.dtype = view.dtype;
  return access;
}

}  // namespace

SideAccess AccessK(const KvView& view, size_t layer, uint32_t head) {
  return Access(view, view.layers[layer].k, view.k_strides, head, view.k_head_dim);
}

SideAccess AccessV(const KvView& view, size_t layer, uint32_t head) {
  return Access(view, view.layers[layer].v, view.v_strides, head, view.v_head_dim);
}

void GatherRaw(const SideAccess& access, TokenRange range, std::byte* out) {
  if (access.dim != 0 && !HasContiguousChannels(access)) {
    if (const auto gather = ActiveKernels().gather) {
      return gather(access, range, out);
    }
  }
  Move<Direction::kGather>(access, range, out);
}

void ScatterRaw(const SideAccess& access, TokenRange range, const std::byte* in) {
  if (access.dim != 0 && !HasContiguousChannels(access)) {
    if (const auto scatter = ActiveKernels().scatter) {
      return scatter(access, range, in);
    }
  }
  // A scatter only reads its dense side; the template shares one signature for both directions.
  Move<Direction::kScatter>(access, range, const_cast<std::byte*>(in));
}

namespace {

// Calls visit(rows in the engine's memory, elements, elements before them) for runs of contiguous
// elements, where channels are contiguous.
template <typename Visit>
void ForEachContiguous(const SideAccess& access, TokenRange range, const Visit& visit) {
  if (access.dim == 0) {
    return;
  }
  const auto row_bytes = static_cast<int64_t>(access.dim * DTypeBytes(access.dtype));
  ForEachRun(access, range, [&](std::byte* strided, uint32_t run, uint32_t done) {
    const size_t before = size_t{done} * access.dim;
    if (access.token_stride == row_bytes) {
      visit(strided, size_t{run} * access.dim, before);
      return;
    }
    for (uint32_t t = 0; t < run; ++t) {
      visit(strided + static_cast<int64_t>(t) * access.token_stride, size_t{access.dim},
            before + size_t{t} * access.dim);
    }
  });
}

}  // namespace

// A row of the widest head fits the tile: kHeadDimMax fp32 elements are 32 KiB, so the buffer is
// sized for that and the tile is a soft limit.
void GatherFloat(const SideAccess& access, TokenRange range, float* out) {
  if (access.dtype == DType::kFloat32) {
    return GatherRaw(access, range, reinterpret_cast<std::byte*>(out));
  }
  if (HasContiguousChannels(access)) {
    return ForEachContiguous(access, range, [&](const std::byte* in, size_t count, size_t before) {
      ToFloat(access.dtype, in, count, out + before);
    });
  }
  alignas(64) std::array<std::byte, 4 * kTileBytes> tile;
  ForEachTile(access, range, kTileBytes, [&](TokenRange piece, uint32_t done) {
    GatherRaw(access, piece, tile.data());
    ToFloat(access.dtype, tile.data(), size_t{piece.count} * access.dim,
            out + size_t{done} * access.dim);
  });
}

void ScatterFloat(const SideAccess& access, TokenRange range, const float* in) {
  if (access.dtype == DType::kFloat32) {
    return ScatterRaw(access, range, reinterpret_cast<const std::byte*>(in));
  }
  if (HasContiguousChannels(access)) {
    return ForEachContiguous(access, range, [&](std::byte* out, size_t count, size_t before) {
      FromFloat(access.dtype, in + before, count, out);
    });
  }
  alignas(64) std::array<std::byte, 4 * kTileBytes> tile;
  ForEachTile(access, range, kTileBytes, [&](TokenRange piece, uint32_t done) {
    FromFloat(access.dtype, in + size_t{done} * access.dim, size_t{piece.count} * access.dim,
              tile.data());
    ScatterRaw(access, piece, tile.data());
  });
}

}  // namespace tokura::kernels
