#pragma once

// Arithmetic shared by the integer codecs; FORMAT.md, "Integer coding". Internal to kernels/.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/dtype.h"
#include "kernels/float_convert.h"

namespace tokura::kernels {

// `bytes` rounded up to a multiple of `alignment`.
constexpr uint64_t AlignUp(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Round to nearest even, |x| ≤ 2^21: adding 1.5·2^23 leaves the integer in the low mantissa bits.
inline int32_t RoundToInt(float x) {
  return std::bit_cast<int32_t>(x + 12582912.0f) - std::bit_cast<int32_t>(12582912.0f);
}

// Largest finite value of float32, float16 or bfloat16.
float LargestFinite(DType dtype);

// A parameter as stored: `value` rounded to `dtype`.
float RoundToType(DType dtype, float value);

// The scale that is stored for `range` / `steps`: rounded to nearest in `dtype`, but upwards among
// the subnormal numbers, where rounding down would lose the top codes: to a multiple of 2^-24 for
// float16, to 2^-126 for float32 and bfloat16. `range` 0 gives 1. Not finite: no such scale.
float StoredScale(DType dtype, float range, float steps);

// Keeps what tells a non-finite value: any bit of |x·0| that is set. Combined with |.
inline uint32_t NonFiniteBits(float x) {
  return std::bit_cast<uint32_t>(x * 0.0f) & 0x7fffffffu;
}

}  // namespace tokura::kernels
