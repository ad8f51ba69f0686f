#pragma once

// Sixteen codes of a row, or fewer at its end, to and from where packing.h puts them. `row` is the
// row's first byte, `channel` a multiple of sixteen, `dim` the channels of the row. Internal to
// kernels/isa.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/isa/simd.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// Bytes of the words of two-bit codes of a row.
inline uint32_t CrumbBytes(uint32_t dim) {
  return (dim + 15) / 16 * 4;
}

// Where the third bits of sixteen channels lie: those of the even ones in one byte, of the odd ones
// two bytes on.
inline uint32_t ThirdBitsAt(uint32_t dim, uint32_t channel) {
  return CrumbBytes(dim) + channel / 32 * 4 + channel % 32 / 16;
}

inline Ints ZeroFrom(uint32_t count, Ints codes) {
  int32_t lanes[kLanes];
  StoreInts(lanes, codes);
  for (uint32_t i = count; i < kLanes; ++i) {
    lanes[i] = 0;
  }
  return LoadInts(lanes);
}

template <uint32_t kBits>
[[gnu::always_inline]] inline void StoreCodes(std::byte* row, uint32_t dim, uint32_t channel,
                                              Ints codes) {
  if constexpr (kBits == 8) {
    StoreBytes(row + channel, LowBytes(codes));
  } else if constexpr (kBits == 4) {
    StoreNibbles(row + channel / 2, codes);
  } else {
    StoreCrumbs(row + channel / 4, codes);
  }
  if constexpr (kBits == 3) {
    const uint32_t bits = ThirdBits(codes);
    std::byte* at = row + ThirdBitsAt(dim, channel);
    at[0] = static_cast<std::byte>(bits);
    at[2] = static_cast<std::byte>(bits >> 8);
    if (channel % 32 == 0 && dim - channel <= kLanes) {  // the second half of the word is absent
      at[1] = std::byte{0};
      at[3] = std::byte{0};
    }
  }
}

// The last `count` < 16 codes of the row: its words are filled up with zeros.
template <uint32_t kBits>
inline void StoreFewCodes(std::byte* row, uint32_t dim, uint32_t channel, uint32_t count,
                          Ints codes) {
  const Ints present = ZeroFrom(count, codes);
  if constexpr (kBits == 8 || kBits == 4) {
    std::byte buffer[2 * kBits];
    StoreCodes<kBits>(buffer, kLanes, 0, present);
    std::memcpy(row + channel * kBits / 8, buffer, kBits == 8 ? count : count > 8 ? 8 : 4);
  } else {
    StoreCodes<kBits>(row, dim, channel, present);
  }
}

template <uint32_t kBits, bool kSigned>
inline Ints LoadCodes(const std::byte* row, uint32_t dim, uint32_t channel) {
  if constexpr (kBits == 8) {
    const Bytes bytes = LoadBytes(row + channel);
    return kSigned ? WidenSigned(bytes) : WidenUnsigned(bytes);
  } else if constexpr (kBits == 4) {
    return LoadNibbles(row + channel / 2);
  } else if constexpr (kBits == 3) {
    const std::byte* at = row + ThirdBitsAt(dim, channel);
    return LoadCrumbs(row + channel / 4) |
           SpreadThirdBits(static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[2]) << 8);
  } else {
    return LoadCrumbs(row + channel / 4);
  }
}

template <uint32_t kBits, bool kSigned>
inline Ints LoadFewCodes(const std::byte* row, uint32_t dim, uint32_t channel, uint32_t count) {
  if constexpr (kBits == 8 || kBits == 4) {
    std::byte buffer[2 * kBits] = {};
    std::memcpy(buffer, row + channel * kBits / 8, kBits == 8 ? count : count > 8 ? 8 : 4);
    return LoadCodes<kBits, kSigned>(buffer, kLanes, 0);
  } else {
    return LoadCodes<kBits, kSigned>(row, dim, channel);
  }
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
