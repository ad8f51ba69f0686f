// The pieces that codecs are made of: float8, packing, codebooks, transforms.

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/codebook.h"
#include "kernels/codec.h"
#include "kernels/exponential.h"
#include "kernels/float8.h"
#include "kernels/float_convert.h"
#include "kernels/kernel_set.h"
#include "kernels/lloyd_max_coder.h"
#include "kernels/packing.h"
#include "kernels/quantize.h"
#include "kernels/transform.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

TEST(Float8, RoundsAsTheTypeIsDefined) {
  const struct {
    float value;
    uint8_t code;
  } vectors[] = {{1, 0x38},         {-1, 0xb8},        {448, 0x7e},       {449, 0x7e},
                 {464, 0x7e},       {1e9f, 0x7e},      {17, 0x58},        {19, 0x5a},
                 {18, 0x59},        {100, 0x6c},       {240, 0x77},       {1.0625f, 0x38},
                 {1.1875f, 0x3a},   {-.3f, 0xaa},      {0x1p-9f, 0x01},   {0x1p-10f, 0x00},
                 {0x1.8p-9f, 0x02}, {0x1p-6f, 0x08},   {0.0f, 0x00},      {-0.0f, 0x80},
                 {0x1.fp-7f, 0x08}, {HUGE_VALF, 0x7e}, {-HUGE_VALF, 0xfe}};
  for (const auto& [value, code] : vectors) {
    EXPECT_EQ(FloatToFloat8(value), code) << value;
  }
  EXPECT_EQ(FloatToFloat8(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
  EXPECT_TRUE(std::isnan(Float8ToFloat(0x7f)));
  EXPECT_TRUE(std::isnan(Float8ToFloat(0xff)));
  EXPECT_EQ(Float8ToFloat(FloatToFloat8(17)), 16);
}

TEST(Float8, EveryCodeComesBackAndHasItsValue) {
  for (uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    if ((code & 0x7f) == 0x7f) {
      continue;
    }
    const float value = Float8ToFloat(byte);
    EXPECT_EQ(FloatToFloat8(value), byte);
    // What kernels for devices do: the byte as the upper bits of a half, times 2^8.
    const auto half = static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7);
    EXPECT_EQ(HalfToFloat(half) * 256.0f, value);
    EXPECT_EQ(std::signbit(value), code >= 0x80);
  }
}

TEST(Float8, IsTheNearestOfAllValues) {
  TestRandom random(3);
  for (int i = 0; i < 20000; ++i) {
    const float value =
        std::bit_cast<float>(static_cast<uint32_t>((random() & 0x8fffffffu) + 0x38000000u));
    if (std::abs(value) > 448) {
      continue;
    }
    const double error = std::abs(static_cast<double>(Float8ToFloat(FloatToFloat8(value))) - value);
    double least = HUGE_VAL;
    for (uint32_t code = 0; code < 256; ++code) {
      if ((code & 0x7f) != 0x7f) {
        const auto byte = static_cast<uint8_t>(code);
        least = std::min(least, std::abs(static_cast<double>(Float8ToFloat(byte)) - value));
      }
    }
    ASSERT_EQ(error, least) << value;
  }
}

TEST(Float8, ScalesAreTheLeastSufficientPowersOfTwo) {
  EXPECT_EQ(PowerOfTwoScale(3.0f, 448), 0x1p-7f);
  EXPECT_EQ(PowerOfTwoScale(448, 448), 1);
  EXPECT_EQ(PowerOfTwoScale(std::nextafter(448.0f, 500.0f), 448), 2);
  EXPECT_EQ(PowerOfTwoScale(0, 448), 1);
  EXPECT_EQ(PowerOfTwoScale(0x1p-149f, 448), 0x1p-126f);
  EXPECT_EQ(PowerOfTwoScale(std::numeric_limits<float>::max(), 448), 0x1p120f);
}

// Words pair channels for kernels that unpack to halves; a packing in the order of channels would
// give 0xe4e4e4e4, 0x76543210 and 0xc378e10f.
TEST(Packing, PairsChannels) {
  const auto word = [](uint32_t bits, std::vector<uint8_t> codes) {
    const auto dim = static_cast<uint32_t>(codes.size());
    codes.resize(PaddedCodes(dim));
    uint32_t out = 0;
    PackCodes(bits, dim, codes.data(), reinterpret_cast<std::byte*>(&out));
    return out;
  };
  EXPECT_EQ(word(2, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}), 0xdddd8888u);
  EXPECT_EQ(word(4, {0, 1, 2, 3, 4, 5, 6, 7}), 0x75316420u);
  EXPECT_EQ(word(4, {15, 0, 1, 14, 8, 7, 3, 12}), 0xc7e0381fu);
  // One LOP3 gives the halves 1024 + code of channels 0 and 1, the next ones of 2 and 3, times 16.
  EXPECT_EQ((0x75316420u & 0x000f000fu) | 0x64006400u, 0x64016400u);
  EXPECT_EQ((0x75316420u & 0x00f000f0u) | 0x64006400u, 0x64306420u);
}

TEST(Packing, EveryWidthAndLengthComesBack) {
  TestRandom random(4);
  for (const uint32_t bits : {2u, 3u, 4u, 8u}) {
    for (uint32_t dim = 1; dim <= 260; ++dim) {
      std::vector<uint8_t> codes(PaddedCodes(dim));
      for (uint32_t c = 0; c < dim; ++c) {
        codes[c] = static_cast<uint8_t>(random() % (1u << bits));
      }
      std::vector<std::byte> packed(CodeRowBytes(bits, dim) + 1, std::byte{0xee});
      PackCodes(bits, dim, codes.data(), packed.data());
      EXPECT_EQ(packed.back(), std::byte{0xee});
      std::vector<uint8_t> unpacked(PaddedCodes(dim));
      UnpackCodes(bits, dim, packed.data(), unpacked.data());
      for (uint32_t c = 0; c < dim; ++c) {
        ASSERT_EQ(unpacked[c], codes[c]);
        ASSERT_EQ(RowCode(reinterpret_cast<const uint8_t*>(packed.data()), bits, dim, c), codes[c]);
      }
    }
  }
  EXPECT_EQ(CodeRowBytes(3, 64), 24u);
  EXPECT_EQ(CodeRowBytes(3, 80), 32u);
  EXPECT_EQ(CodeRowBytes(2, 80), 20u);
}

double NormalDensity(double x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
}

TEST(Codebook, IsTheBestForNormalNumbers) {
  const double expected[] = {0.1175, 0.0345, 0.0095};
  for (uint32_t bits = 2; bits <= 4; ++bits) {
    const uint32_t codes = 1u << bits;
    std::vector<double> mass(codes);
    std::vector<double> moment(codes);
    double error = 0;
    constexpr double kStep = 1e-4;
    for (double x = -8; x < 8; x += kStep) {
      uint32_t code = 0;
      while (code + 1 < codes && x >= CodebookThreshold(bits, code + 1)) {
        ++code;
      }
      const double weight = NormalDensity(x) * kStep;
      const double difference = x - CodebookValue(bits, code);
      mass[code] += weight;
      moment[code] += weight * x;
      error += weight * difference * difference;
    }
    EXPECT_NEAR(error, expected[bits - 2], 6e-5);
    for (uint32_t code = 0; code < codes; ++code) {
      EXPECT_NEAR(CodebookValue(bits, code), moment[code] / mass[code], 1e-3);
      EXPECT_EQ(CodebookValue(bits, code), -CodebookValue(bits, codes - 1 - code));
    }
  }
  EXPECT_NEAR(CodebookThreshold(2, 3), 0.9816, 1e-4);
  EXPECT_EQ(CodebookThreshold(2, 2), 0.0f);
}

SideTask HadamardTask(uint32_t dim) {
  return {FindCodec("turbo4")->k, {1, dim, DType::kFloat32}, {}};
}

TEST(Hadamard, IsSumsAndDifferences) {
  std::vector<float> x = {8, 0, 0, 0, 1, 2, 3, 4};
  ScalarHadamard(x.data(), 2, 4);
  EXPECT_EQ(x, (std::vector<float>{8, 8, 8, 8, 10, -2, -4, 0}));
  EXPECT_EQ(HadamardScale(4, false), 0.5f);  // [4, 4, 4, 4] and [5, -1, -2, 0]
  EXPECT_EQ(HadamardScale(4, true), 0.5f);
  EXPECT_EQ(HadamardScale(128, false) * HadamardScale(128, true), 1.0f / 128);
  EXPECT_EQ(HadamardScale(1, false), 1.0f);
  EXPECT_EQ(HadamardScale(1, true), 1.0f);
  EXPECT_EQ(HadamardScale(2, true), 0.5f);
}

TEST(Hadamard, ComesBackAndKeepsLength) {
  TestRandom random(5);
  for (const uint32_t dim : {1u, 5u, 64u, 80u, 96u, 128u, 192u, 256u}) {
    EXPECT_EQ(HadamardBlock(dim), dim == 80    ? 16u
                                  : dim == 96  ? 32u
                                  : dim == 192 ? 64u
                                  : dim == 5   ? 1u
                                               : dim);
    std::vector<float> x(dim);
    for (float& value : x) {
      value = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    }
    std::vector<float> y = x;
    const SideTask task = HadamardTask(dim);
    ApplyTransform(task, ScalarKernels(), 1, y.data());
    EXPECT_NE(y, x);  // signs at least
    const uint32_t block = HadamardBlock(dim);
    const float length = HadamardScale(block, false) * std::sqrt(static_cast<float>(block));
    EXPECT_NEAR(std::sqrt(SumOfSquares(y.data(), dim)),
                length * std::sqrt(SumOfSquares(x.data(), dim)), 1e-2);
    UndoTransform(task, ScalarKernels(), 1, y.data());
    EXPECT_EQ(y, x);  // integers are exact
  }
}

TEST(Hadamard, SignsFollowTheSeed) {
  EXPECT_EQ(SignWord(0, 0), 0xe220a8397b1dcdafu);  // SplitMix64's own first numbers
  EXPECT_EQ(SignWord(0, 1), 0x6e789e6aa1b965f4u);
  SideTask task = HadamardTask(128);
  std::vector<float> x(128, 1.0f);
  std::vector<float> other = x;
  ApplyTransform(task, ScalarKernels(), 1, x.data());
  task.profile.sign_seed = 1;
  ApplyTransform(task, ScalarKernels(), 1, other.data());
  EXPECT_NE(x, other);
}

TEST(Smoothing, LeavesProductsWithQueriesAsTheyAre) {
  // Columns with maxima 4, 1, 9 and 16: the square root of the greater of each pair.
  const std::vector<float> lambda = {3, 4, 3, 4};
  const std::vector<float> keys = {4, 1, -9, 2, -3, 0.5f, 6, 16};
  const std::vector<float> query = {0.5f, 2, -1, 0.25f};
  SideTask task{FindCodec("qserve4")->k, {2, 4, DType::kFloat32}, {}};
  task.profile.smooth = lambda;
  std::vector<float> smoothed = keys;
  ApplyTransform(task, ScalarKernels(), 2, smoothed.data());
  EXPECT_EQ(smoothed[0], 4.0f / 3);
  EXPECT_EQ(smoothed[7], 4.0f);
  for (int t = 0; t < 2; ++t) {
    float plain = 0;
    float scaled = 0;
    for (int c = 0; c < 4; ++c) {
      plain += query[c] * keys[t * 4 + c];
      scaled += query[c] * lambda[c] * smoothed[t * 4 + c];
    }
    EXPECT_NEAR(plain, scaled, 1e-5);
  }
  UndoTransform(task, ScalarKernels(), 2, smoothed.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_NEAR(smoothed[i], keys[i], 1e-6);
  }
}

TEST(Exponential, IsCloseToTheLibrarys) {
  EXPECT_EQ(ExpOfNegative(0), 1.0f);
  for (float x = 0; x > -87; x -= 0.00137f) {
    ASSERT_NEAR(ExpOfNegative(x) / std::exp(static_cast<double>(x)), 1, 5e-7) << x;
  }
  EXPECT_LT(ExpOfNegative(-1e30f), 1e-37f);
  EXPECT_GT(ExpOfNegative(-HUGE_VALF), 0.0f);
}

}  // namespace
}  // namespace tokura::kernels
