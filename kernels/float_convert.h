#pragma once

// Conversions between fp32, fp16, bf16 and fp8, exact or rounded to nearest even, bit for bit the
// same on every machine: integer arithmetic, and float additions only of normal numbers, so that
// flush-to-zero modes do not matter. Branch-free, so that loops over them vectorise.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "kernels/host_device.h"

namespace tokura::kernels {

// Exact. NaNs keep their sign and payload and become quiet.
TOKURA_HOST_DEVICE inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const uint32_t exponent = shifted & 0x0f800000u;
  // Normal: re-bias by 112. Infinity and NaN: the exponent becomes all ones.
  const uint32_t normal = shifted + (112u << 23) + (exponent == 0x0f800000u ? 112u << 23 : 0u);
  // Subnormal: mantissa on top of 2^-14, minus 2^-14; both are normal floats.
  const float subnormal = std::bit_cast<float>(shifted + (113u << 23)) - 0x1p-14f;
  const uint32_t quiet = shifted > 0x0f800000u ? 0x00400000u : 0u;
  const uint32_t bits = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal | quiet;
  return std::bit_cast<float>(bits | sign);
}

// Round to nearest even; beyond 65519.99… infinity; a NaN stays a NaN, quiet.
TOKURA_HOST_DEVICE inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  // Adding 0.5 aligns the 2^-24 digit with the mantissa's last one and rounds to nearest even.
  const float aligned = std::bit_cast<float>(magnitude < (113u << 23) ? magnitude : 0u) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - (126u << 23);
  const uint32_t special =
      magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= (143u << 23) ? special : half;
  return static_cast<uint16_t>(half | sign);
}

// Exact.
TOKURA_HOST_DEVICE inline float BFloat16ToFloat(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Round to nearest even; a NaN stays a NaN, quiet.
TOKURA_HOST_DEVICE inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// True for the types that the array conversions accept: all of them.
bool ConvertsToFloat(DType dtype);

// Convert `count` elements. `in` and `out` need no alignment and do not overlap. To float8 e4m3,
// which has no infinities, values beyond its largest become that.
void ToFloat(DType dtype, const std::byte* in, size_t count, float* out);
void FromFloat(DType dtype, const float* in, size_t count, std::byte* out);

// One element of `dtype` at `p` (no alignment needed).
float LoadElement(DType dtype, const std::byte* p);
void StoreElement(DType dtype, float value, std::byte* p);

}  // namespace tokura::kernels
