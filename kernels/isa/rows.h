#pragma once

// Consecutive tokens of one side of a view as rows of contiguous channels: pointers into the
// engine's memory where it lies so, else a dense copy. Nothing but the elements named is read or
// written. Internal to kernels/isa.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/isa/elements.h"
#include "kernels/kv_access.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

inline constexpr uint32_t kRowsMax = 64;

struct Rows {
  std::byte* row[kRowsMax];
};

// A range of channels of a row.
struct Channels {
  uint32_t first = 0;
  uint32_t count = 0;
};

inline uint32_t Lesser(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

inline uint32_t ElementBytes(DType type) {
  return type == DType::kFloat32 ? 4 : type == DType::kFloat8E4M3 ? 1 : 2;
}

// Calls visit(address of the run's first token, tokens, tokens before them) for each run of tokens
// inside one page.
template <typename Visit>
inline void ForRuns(const SideAccess& access, TokenRange range, const Visit& visit) {
  uint32_t done = 0;
  while (done < range.count) {
    const uint32_t token = range.first + done;
    const uint32_t slot = token % access.page_tokens;
    const uint32_t run = Lesser(range.count - done, access.page_tokens - slot);
    std::byte* at =
        access.base +
        static_cast<int64_t>(access.page_table[token / access.page_tokens]) * access.page_stride +
        static_cast<int64_t>(slot) * access.token_stride;
    visit(at, run, done);
    done += run;
  }
}

inline bool HasContiguousRows(const SideAccess& access) {
  return access.channel_stride == static_cast<int64_t>(ElementBytes(access.dtype));
}

// Of at most kRowsMax tokens, where HasContiguousRows.
inline void PointToRows(const SideAccess& access, TokenRange range, Channels channels, Rows* rows) {
  const size_t skip = size_t{channels.first} * ElementBytes(access.dtype);
  ForRuns(access, range, [&](std::byte* at, uint32_t run, uint32_t done) {
    for (uint32_t t = 0; t < run; ++t) {
      rows->row[done + t] = at + static_cast<int64_t>(t) * access.token_stride + skip;
    }
  });
}

// Rows of `bytes` bytes, one behind the other.
inline void PointToDense(std::byte* dense, size_t bytes, uint32_t count, Rows* rows) {
  for (uint32_t i = 0; i < count; ++i) {
    rows->row[i] = dense + i * bytes;
  }
}

enum class Direction : uint8_t { kGather, kScatter };

template <Direction kDirection, uint32_t kBytes>
inline void MoveElements(const SideAccess& access, std::byte* at, uint32_t tokens,
                         uint32_t channels, std::byte* dense) {
  for (uint32_t c = 0; c < channels; ++c) {
    std::byte* column = at + static_cast<int64_t>(c) * access.channel_stride;
    for (uint32_t t = 0; t < tokens; ++t) {
      std::byte* strided = column + static_cast<int64_t>(t) * access.token_stride;
      std::byte* element = dense + (size_t{t} * channels + c) * kBytes;
      if constexpr (kDirection == Direction::kGather) {
        std::memcpy(element, strided, kBytes);
      } else {
        std::memcpy(strided, element, kBytes);
      }
    }
  }
}

// The same where the tokens of a channel are contiguous: squares are turned in registers.
template <Direction kDirection>
inline void MoveSquares(const SideAccess& access, std::byte* at, uint32_t tokens, uint32_t channels,
                        std::byte* dense) {
  constexpr uint32_t kSide = kSquareSide;
  const auto row = static_cast<int64_t>(channels) * 2;
  const uint32_t whole_tokens = tokens / kSide * kSide;
  const uint32_t whole_channels = channels / kSide * kSide;
  for (uint32_t t = 0; t < whole_tokens; t += kSide) {
    for (uint32_t c = 0; c < whole_channels; c += kSide) {
      std::byte* strided = at + static_cast<int64_t>(c) * access.channel_stride + int64_t{2} * t;
      std::byte* tile = dense + t * row + int64_t{2} * c;
      if constexpr (kDirection == Direction::kGather) {
        TransposeWords(strided, access.channel_stride, tile, row);
      } else {
        TransposeWords(tile, row, strided, access.channel_stride);
      }
    }
  }
  const auto rest = [&](uint32_t t0, uint32_t t1, uint32_t c0, uint32_t c1) {
    for (uint32_t c = c0; c < c1; ++c) {
      std::byte* column = at + static_cast<int64_t>(c) * access.channel_stride;
      for (uint32_t t = t0; t < t1; ++t) {
        std::byte* element = dense + t * row + int64_t{2} * c;
        std::byte* strided = column + int64_t{2} * t;
        std::memcpy(kDirection == Direction::kGather ? element : strided,
                    kDirection == Direction::kGather ? strided : element, 2);
      }
    }
  };
  rest(whole_tokens, tokens, 0, channels);
  rest(0, whole_tokens, whole_channels, channels);
}

// Copy [range.count, channels.count] elements to or from `dense`, whatever the strides.
template <Direction kDirection>
inline void MoveTile(const SideAccess& access, TokenRange range, Channels channels,
                     std::byte* dense) {
  const uint32_t bytes = ElementBytes(access.dtype);
  const size_t row = size_t{channels.count} * bytes;
  ForRuns(access, range, [&](std::byte* first, uint32_t run, uint32_t done) {
    std::byte* at = first + static_cast<int64_t>(channels.first) * access.channel_stride;
    std::byte* to = dense + done * row;
    if (bytes == 2 && access.token_stride == 2) {
      MoveSquares<kDirection>(access, at, run, channels.count, to);
    } else if (bytes == 2) {
      MoveElements<kDirection, 2>(access, at, run, channels.count, to);
    } else if (bytes == 4) {
      MoveElements<kDirection, 4>(access, at, run, channels.count, to);
    } else {
      MoveElements<kDirection, 1>(access, at, run, channels.count, to);
    }
  });
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
