#pragma once

// a·b + c rounded once, on every machine: what the record's sums are made of. Internal to kernels/.

#include <bit>
#include <cmath>
#include <cstdint>

namespace tokura::kernels {

// For machines that have no instruction for it. The product of two floats is exact in double; the
// sum is rounded to odd there, after which the rounding to float is the only one that counts.
inline float MultiplyAddInDouble(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const auto addend = static_cast<double>(c);
  const double sum = product + addend;
  const double back = sum - product;
  const double lost = (product - (sum - back)) + (addend - back);
  auto bits = std::bit_cast<uint64_t>(sum);
  // Nothing is lost of infinities and NaN: `lost` is NaN then.
  if ((lost > 0 || lost < 0) && bits % 2 == 0) {
    bits += std::signbit(lost) == std::signbit(sum) ? 1 : -1;
  }
  return static_cast<float>(std::bit_cast<double>(bits));
}

inline float MultiplyAdd(float a, float b, float c) {
#if defined(FP_FAST_FMAF)
  return std::fma(a, b, c);
#else
  return MultiplyAddInDouble(a, b, c);
#endif
}

}  // namespace tokura::kernels
