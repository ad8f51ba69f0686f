#include "kernels/float_convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include "kernels/fp_environment.h"

namespace tokura::kernels {
namespace {

// What IEEE 754 says a float16 is, by exact arithmetic in double.
double HalfValue(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const double mantissa = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

bool IsNan(uint16_t half) {
  return (half & 0x7fff) > 0x7c00;
}

// Flush-to-zero and denormals-are-zero, as engines set them, for its lifetime.
class FlushToZero {
 public:
  FlushToZero() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushToZero() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};

TEST(FloatConvert, EveryHalfIsExactAndComesBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const float value = HalfToFloat(half);
    if ((half & 0x7c00) != 0x7c00) {
      ASSERT_EQ(static_cast<double>(value), HalfValue(half)) << i;
      ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << i;
    } else {
      ASSERT_EQ(std::isnan(value), IsNan(half)) << i;
      ASSERT_EQ(std::isinf(value), !IsNan(half)) << i;
    }
    if (!IsNan(half)) {
      ASSERT_EQ(FloatToHalf(value), half) << i;
    } else {
      ASSERT_TRUE(IsNan(FloatToHalf(value))) << i;
    }
  }
}

TEST(FloatConvert, RoundsHalvesToNearestEvenAtEveryBoundary) {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const double low = HalfValue(half);
    const double high = HalfValue(static_cast<uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more bit than a half
    const auto even = static_cast<uint16_t>((half & 1) == 0 ? half : half + 1);
    ASSERT_EQ(FloatToHalf(middle), even) << half;
    ASSERT_EQ(FloatToHalf(-middle), even | 0x8000) << half;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e6f)), half + 1);
  }
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(3e38f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(FloatConvert, RoundsBFloat16ToNearestEven) {
  for (uint32_t i = 0; i < 0x7f7f; ++i) {
    const uint32_t middle = i << 16 | 0x8000u;
    const uint32_t even = (i & 1) == 0 ? i : i + 1;
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle)), even);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle - 1)), i);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(middle + 1)), i + 1);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(i << 16)), i);
  }
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload lies below the kept bits must not become infinity.
  const uint16_t nan = FloatToBFloat16(std::bit_cast<float>(0x7f800001u));
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(nan)));
}

TEST(FloatConvert, ArraysAgreeWithElementsAndIgnoreFlushToZero) {
  const FlushToZero flush;
  std::vector<std::byte> halves(2 * 0x10000 + 1);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto half = static_cast<uint16_t>(i);
    std::memcpy(halves.data() + 1 + 2 * i, &half, 2);
  }
  std::vector<float> floats(0x10000);
  ToFloat(DType::kFloat16, halves.data() + 1, floats.size(), floats.data());
  std::vector<std::byte> back(halves.size());
  FromFloat(DType::kFloat16, floats.data(), floats.size(), back.data() + 1);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    uint16_t half;
    std::memcpy(&half, back.data() + 1 + 2 * i, 2);
    if (!IsNan(static_cast<uint16_t>(i))) {
      ASSERT_EQ(half, i);
    }
  }
}

TEST(FloatConvert, EnvironmentIsSetAndRestored) {
  const FlushToZero flush;
  volatile float tiny = std::bit_cast<float>(0x00400000u);
  volatile float two = 2.0f;
  const unsigned before = _mm_getcsr();
  {
    const ScopedFloatEnvironment environment;
    const float product = tiny * two;
    EXPECT_EQ(std::bit_cast<uint32_t>(product), 0x00800000u);
  }
  EXPECT_EQ(_mm_getcsr() & 0xffc0u, before & 0xffc0u);
  EXPECT_NE(before & 0x8040u, 0u);
}

}  // namespace
}  // namespace tokura::kernels
