#pragma once

// Where the codes of a row lie in its bytes; FORMAT.md, "Packing". For host and device code.

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"

namespace tokura::kernels {

// Codes of 4, 2 or 1 bits lie in little-endian words of 32, channel c of a word's 8, 16 or 32 at
// bit (c mod 2) · 16 + ⌊c / 2⌋ · bits: masking with 0x000f000f, 0x00030003 or 0x00010001 after a
// shift gives the channels of a pair, one in each half. Codes of 3 bits are two such arrays, of the
// two low bits and then of the high bit; codes of 8 bits are bytes.
TOKURA_HOST_DEVICE constexpr uint32_t CodeBit(uint32_t bits, uint32_t channel_in_word) {
  return (channel_in_word & 1u) * 16u + (channel_in_word >> 1) * bits;
}

// Bytes of a row's words of codes of `bits` (4, 2 or 1).
TOKURA_HOST_DEVICE constexpr uint32_t PlaneBytes(uint32_t bits, uint32_t dim) {
  return 4u * ((dim * bits + 31u) / 32u);
}

// Bytes of a row of `dim` codes of `bits` (8, 4, 3 or 2).
TOKURA_HOST_DEVICE constexpr uint32_t CodeRowBytes(uint32_t bits, uint32_t dim) {
  return bits == 8   ? dim
         : bits == 3 ? PlaneBytes(2, dim) + PlaneBytes(1, dim)
                     : PlaneBytes(bits, dim);
}

// One code of a row.
TOKURA_HOST_DEVICE inline uint32_t PlaneCode(const uint8_t* plane, uint32_t bits,
                                             uint32_t channel) {
  const uint32_t per_word = 32u / bits;
  const uint8_t* word = plane + 4u * (channel / per_word);
  const uint32_t bit = CodeBit(bits, channel % per_word);
  return (word[bit / 8u] >> (bit % 8u)) & ((1u << bits) - 1u);
}
TOKURA_HOST_DEVICE inline uint32_t RowCode(const uint8_t* row, uint32_t bits, uint32_t dim,
                                           uint32_t channel) {
  return bits == 8 ? row[channel]
         : bits == 3
             ? PlaneCode(row, 2, channel) | PlaneCode(row + PlaneBytes(2, dim), 1, channel) << 2
             : PlaneCode(row, bits, channel);
}

// Rows of codes in memory of their own have room for this many: whole words of every kind.
TOKURA_HOST_DEVICE constexpr uint32_t PaddedCodes(uint32_t dim) {
  return (dim + 31u) / 32u * 32u;
}

// `codes` has PaddedCodes(dim) bytes, zero from `dim` on; CodeRowBytes go to `out`.
void PackCodes(uint32_t bits, uint32_t dim, const uint8_t* codes, std::byte* out);
// Writes at most PaddedCodes(dim) bytes of `codes`.
void UnpackCodes(uint32_t bits, uint32_t dim, const std::byte* in, uint8_t* codes);

}  // namespace tokura::kernels
