#pragma once

// Arithmetic shared by the codecs; FORMAT.md, "Integer coding". For host and device code. Internal
// to kernels/.

#include <bit>
#include <cstdint>

#include "common/dtype.h"
#include "kernels/float8.h"
#include "kernels/float_convert.h"
#include "kernels/host_device.h"

namespace tokura::kernels {

// `bytes` rounded up to a multiple of `alignment`.
TOKURA_HOST_DEVICE constexpr uint64_t AlignUp(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Round to nearest even, |x| ≤ 2^21: adding 1.5·2^23 leaves the integer in the low mantissa bits.
TOKURA_HOST_DEVICE inline int32_t RoundToInt(float x) {
  return std::bit_cast<int32_t>(x + 12582912.0f) - std::bit_cast<int32_t>(12582912.0f);
}

// Largest finite value of a type.
TOKURA_HOST_DEVICE inline float LargestFinite(DType dtype) {
  return dtype == DType::kFloat16      ? 65504.0f
         : dtype == DType::kBFloat16   ? std::bit_cast<float>(0x7f7f0000u)
         : dtype == DType::kFloat8E4M3 ? kFloat8Largest
                                       : std::bit_cast<float>(0x7f7fffffu);
}

// A parameter as stored: `value` rounded to `dtype`, to nearest even.
TOKURA_HOST_DEVICE inline float RoundToType(DType dtype, float value) {
  return dtype == DType::kFloat16      ? HalfToFloat(FloatToHalf(value))
         : dtype == DType::kBFloat16   ? BFloat16ToFloat(FloatToBFloat16(value))
         : dtype == DType::kFloat8E4M3 ? Float8ToFloat(FloatToFloat8(value))
                                       : value;
}

// The scale that is stored for `range` / `steps`: rounded to nearest in `dtype`, but upwards among
// the subnormal numbers, where rounding down would lose the top codes: to a multiple of 2^-24 for
// float16, to 2^-126 for float32 and bfloat16. `range` 0 gives 1. Not finite: no such scale.
TOKURA_HOST_DEVICE inline float StoredScale(DType dtype, float range, float steps) {
  if (range == 0.0f) {
    return 1.0f;
  }
  const float scale = range / steps;
  if (dtype == DType::kFloat16) {
    const float units = scale * 0x1p24f;  // below 1024 among the subnormal numbers
    const float whole = static_cast<float>(static_cast<int32_t>(scale < 0x1p-14f ? units : 0.0f));
    return scale < 0x1p-14f ? (whole < units ? whole + 1.0f : whole) * 0x1p-24f
                            : RoundToType(dtype, scale);
  }
  return scale < 0x1p-126f ? 0x1p-126f : RoundToType(dtype, scale);
}

// Keeps what tells a non-finite value: any bit of |x·0| that is set. Combined with |.
TOKURA_HOST_DEVICE inline uint32_t NonFiniteBits(float x) {
  return std::bit_cast<uint32_t>(x * 0.0f) & 0x7fffffffu;
}

// The least power of two, 2^-126 or above, that brings the magnitude `largest` down to `limit` or
// below. 1 for 0. `largest` is finite, `limit` a normal number above 1.
TOKURA_HOST_DEVICE inline float PowerOfTwoScale(float largest, float limit) {
  if (largest == 0.0f) {
    return 1.0f;
  }
  const float quotient = largest / limit;
  if (!(quotient > 0x1p-126f)) {
    return 0x1p-126f;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(quotient);
  return std::bit_cast<float>((bits + 0x007fffffu) & 0x7f800000u);
}

}  // namespace tokura::kernels
