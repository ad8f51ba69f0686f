#pragma once

// Lloyd–Max codebooks of the normal distribution with variance 1; FORMAT.md, "Lloyd–Max coding".
// For host and device code.

#include <cstdint>

#include "kernels/host_device.h"

namespace tokura::kernels {

// The upper halves: entry i is the value of code 2^(bits-1) + i; code 2^(bits-1) - 1 - i has its
// negative.
inline constexpr float kCodebook2[2] = {0.45278004f, 1.5104176f};
inline constexpr float kCodebook3[4] = {0.24509418f, 0.75600528f, 1.3439093f, 2.1519457f};
inline constexpr float kCodebook4[8] = {0.12839503f, 0.38804830f, 0.65675912f, 0.94234046f,
                                        1.2562312f,  1.6180464f,  2.0690170f,  2.7325896f};

// Whether there is a codebook of 2^bits values.
TOKURA_HOST_DEVICE constexpr bool HasCodebook(uint32_t bits) {
  return bits >= 2 && bits <= 4;
}

TOKURA_HOST_DEVICE constexpr float CodebookUpper(uint32_t bits, uint32_t i) {
  return bits == 2 ? kCodebook2[i] : bits == 3 ? kCodebook3[i] : kCodebook4[i];
}

TOKURA_HOST_DEVICE constexpr float CodebookValue(uint32_t bits, uint32_t code) {
  const uint32_t half = 1u << (bits - 1);
  return code >= half ? CodebookUpper(bits, code - half) : -CodebookUpper(bits, half - 1 - code);
}

// Numbers from here on have `code` or a greater one; code 1 … 2^bits − 1. The middle of two
// neighbours, rounded to fp32.
TOKURA_HOST_DEVICE constexpr float CodebookThreshold(uint32_t bits, uint32_t code) {
  return (CodebookValue(bits, code - 1) + CodebookValue(bits, code)) * 0.5f;
}

}  // namespace tokura::kernels
