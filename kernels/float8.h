#pragma once

// The type float8 e4m3 (fn: no infinities, largest 448, NaN is 0x7f), to and from fp32, bit for bit
// the same on every machine. For host and device code.

#include <bit>
#include <cstdint>

#include "kernels/host_device.h"

namespace tokura::kernels {

inline constexpr float kFloat8Largest = 448.0f;
inline constexpr uint8_t kFloat8Nan = 0x7f;

// Exact. NaN becomes a quiet NaN of its sign.
TOKURA_HOST_DEVICE inline float Float8ToFloat(uint8_t value) {
  const uint32_t magnitude = value & 0x7fu;
  const uint32_t sign = static_cast<uint32_t>(value & 0x80u) << 24;
  const uint32_t shifted = magnitude << 20;
  // Subnormal: mantissa on top of 2^-6, minus 2^-6; both are normal floats.
  const float subnormal = std::bit_cast<float>(shifted + (121u << 23)) - 0x1p-6f;
  const uint32_t normal = shifted + (120u << 23);
  uint32_t bits = magnitude < 8u ? std::bit_cast<uint32_t>(subnormal) : normal;
  bits = magnitude == kFloat8Nan ? 0x7fc00000u : bits;
  return std::bit_cast<float>(bits | sign);
}

// Round to nearest even; beyond the largest value, infinities included, the largest value of the
// sign; a NaN is NaN of its sign.
TOKURA_HOST_DEVICE inline uint8_t FloatToFloat8(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t odd = (magnitude >> 20) & 1u;
  const uint32_t normal = (magnitude - (120u << 23) + 0x7ffffu + odd) >> 20;
  // Adding 2^14 aligns the 2^-9 digit with the mantissa's last one and rounds to nearest even.
  const float aligned = std::bit_cast<float>(magnitude < (121u << 23) ? magnitude : 0u) + 0x1p14f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - (141u << 23);
  uint32_t result = magnitude < (121u << 23) ? subnormal : normal;
  result = magnitude >= 0x43e00000u ? 0x7eu : result;
  result = magnitude > 0x7f800000u ? kFloat8Nan : result;
  return static_cast<uint8_t>(result | sign);
}

}  // namespace tokura::kernels
