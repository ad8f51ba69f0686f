#include "kernels/codec.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "coded_side.h"
#include "kernels/float_convert.h"
#include "kernels/quantize.h"
#include "kernels/side_codec.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

CodecSide Int8() {
  return FindCodec("int8")->k;
}
CodecSide ChannelInt4() {
  return FindCodec("kivi4")->k;
}
CodecSide TokenInt4() {
  return FindCodec("kivi4")->v;
}

CodedSide Code(const CodecSide& side, const SideShape& shape, const std::vector<float>& x) {
  return CodeSide({side, shape, {}}, x);
}

using Ints = std::vector<int>;
using Floats = std::vector<float>;

TEST(CodecTable, FindsPresetsAndCombinations) {
  for (const CodecPreset& preset : CodecPresets()) {
    const auto found = FindCodec(preset.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*CodecNameOf(found->k, found->v), preset.name);
  }
  const auto mixed = FindCodec("int8+kivi2");
  ASSERT_TRUE(mixed.ok());
  EXPECT_EQ(mixed->k, Int8());
  EXPECT_EQ(mixed->v, FindCodec("kivi2")->v);
  EXPECT_EQ(*CodecNameOf(mixed->k, mixed->v), "int8+kivi2");
  EXPECT_EQ(FindCodec("int8+int8")->name, "int8");
  EXPECT_EQ(FindCodec("int8+kivi4")->name, "k8v4");
  EXPECT_EQ(*CodecNameOf(Int8(), TokenInt4()), "k8v4");
  for (const char* bad : {"", "+", "kivi4+", "+kivi4", "kivi5", "raw+int8+raw"}) {
    const auto status = FindCodec(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_NE(status.message().find("raw, fp8, int8, int4, kivi4"), absl::string_view::npos) << bad;
  }
  CodecSide unknown = Int8();
  unknown.bits = 7;
  EXPECT_EQ(CodecNameOf(unknown, Int8()).status().code(), absl::StatusCode::kNotFound);
}

TEST(CodecTable, BitsPerElementCountParameters) {
  EXPECT_EQ(BitsPerElement(*FindCodec("raw"), 128, 64, DType::kBFloat16), 16);
  EXPECT_EQ(BitsPerElement(*FindCodec("int8"), 128, 64, DType::kFloat16), 8.125);
  EXPECT_EQ(BitsPerElement(*FindCodec("kivi4"), 128, 64, DType::kFloat16), 4.375);
  EXPECT_EQ(BitsPerElement(*FindCodec("kivi4"), 64, 64, DType::kFloat16), 4.5);
  EXPECT_EQ(BitsPerElement(*FindCodec("kivi4"), 64, 16, DType::kFloat16), 5.25);
  EXPECT_EQ(BitsPerElement(*FindCodec("kivi4"), 128, 64, DType::kFloat32), 4.75);
  EXPECT_EQ(BitsPerElement(*FindCodec("kivi4"), 0, 64, DType::kFloat32), 0);
}

TEST(CodecTable, CanonicalSizes) {
  const auto bytes = [](uint32_t tokens, uint32_t dim) {
    return SideBytesOf(ChannelInt4(), {tokens, dim, DType::kFloat16}).padded() +
           SideBytesOf(TokenInt4(), {tokens, dim, DType::kFloat16}).padded();
  };
  EXPECT_EQ(bytes(64, 128), 8960u);
  EXPECT_EQ(bytes(16, 64), 1344u);
  EXPECT_EQ(bytes(64, 64), 4608u);
}

TEST(CodecTable, GroupsSplitAtSixtyFour) {
  EXPECT_EQ(GroupElements(TokenInt4(), 128), 128u);
  EXPECT_EQ(GroupElements(TokenInt4(), 256), 64u);
  EXPECT_EQ(GroupElements(ChannelInt4(), 60), 60u);
  EXPECT_EQ(GroupElements(ChannelInt4(), 65), 64u);
  EXPECT_EQ(GroupElements(Int8(), 256), 256u);
  EXPECT_EQ(GroupElements(FindCodec("kivi2")->v, 128), 32u);
}

TEST(Int4, RoundsHalfToEven) {
  const CodedSide coded =
      Code(TokenInt4(), {1, 8, DType::kFloat16}, {0, 15, .5, 1.5, 2.5, 3.5, 4, 14.5});
  EXPECT_EQ(coded.parameters, (Floats{1, 0}));
  EXPECT_EQ(coded.codes, (Ints{0, 15, 0, 2, 2, 4, 4, 14}));
}

TEST(Int4, QuantizesWithTheStoredScale) {
  CodedSide coded = Code(TokenInt4(), {1, 5, DType::kFloat16}, {-1, 0, 1, 2, .35f});
  EXPECT_EQ(coded.parameters[0], 0.199951171875f);
  EXPECT_EQ(coded.parameters[1], -1.0f);
  EXPECT_EQ(coded.codes, (Ints{0, 5, 10, 15, 7}));
  // With the exact scale 0.2 this is the tie 6.5 and would give 6.
  coded = Code(TokenInt4(), {1, 5, DType::kFloat16}, {-1, 0, 1, 2, .3f});
  EXPECT_EQ(coded.codes[4], 7);
}

TEST(Int4, ClampsInsteadOfWrapping) {
  const CodedSide coded = Code(TokenInt4(), {1, 2, DType::kFloat16}, {512, 513});
  EXPECT_EQ(coded.codes, (Ints{0, 15}));
  EXPECT_EQ(coded.parameters[1], 512.0f);
}

TEST(Int4, StoresTheMinimumNotAClampedZeroPoint) {
  const CodedSide coded = Code(TokenInt4(), {1, 4, DType::kFloat16}, {5, 6, 7, 8});
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(coded.decoded[i], 5.0f + i, 0.1f + 8e-3f);
  }
}

TEST(Int4, NibblesPairChannels) {
  const CodedSide coded = Code(TokenInt4(), {1, 8, DType::kFloat16}, {0, 1, 2, 3, 4, 5, 6, 7});
  // Scale 7/15: the codes are 0, 2, 4, … 15; the order of nibbles shows with codes 0 … 7:
  std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7, 15};
  const CodedSide ordered = Code(TokenInt4(), {1, 9, DType::kFloat16}, x);
  uint32_t word;
  std::memcpy(&word, ordered.bytes.data(), 4);
  EXPECT_EQ(word, 0x75316420u);
  std::memcpy(&word, ordered.bytes.data() + 4, 4);
  EXPECT_EQ(word, 15u);  // absent channels are zero
  EXPECT_EQ(coded.codes.front(), 0);
  EXPECT_EQ(coded.codes.back(), 15);
}

TEST(Int4, AxesDifferInTheirParameters) {
  const Floats x = {0, 10, 15, 25};
  const CodedSide channel = Code(ChannelInt4(), {2, 2, DType::kFloat16}, x);
  EXPECT_EQ(channel.parameters, (Floats{1, 1, 0, 10}));  // scales, minima
  EXPECT_EQ(channel.codes, (Ints{0, 0, 15, 15}));
  EXPECT_EQ(channel.decoded, x);
  const CodedSide token = Code(TokenInt4(), {2, 2, DType::kFloat16}, x);
  const float scale = HalfToFloat(FloatToHalf(10.0f / 15));
  EXPECT_EQ(token.parameters, (Floats{scale, 0, scale, 15}));
  EXPECT_EQ(token.codes, (Ints{0, 15, 0, 15}));
}

TEST(Int4, PerChannelGroupsFollowTheTokens) {
  const SideShape shape{130, 1, DType::kFloat16};
  Floats x(130, 1.0f);
  x[64] = 4;   // second group
  x[129] = 9;  // third group: tokens 128 and 129
  const CodedSide coded = Code(ChannelInt4(), shape, x);
  ASSERT_EQ(coded.parameters.size(), 6u);
  EXPECT_EQ(coded.parameters[0], 1.0f);
  EXPECT_NEAR(coded.parameters[2], 3.0f / 15, 1e-4);
  EXPECT_NEAR(coded.parameters[4], 8.0f / 15, 1e-3);
}

TEST(Int8, IsSymmetricAndRoundsHalfToEven) {
  const CodedSide coded =
      Code(Int8(), {1, 6, DType::kFloat16}, {127, -127, 3.4f, .5f, -3.5f, 2.5f});
  EXPECT_EQ(coded.parameters, (Floats{1}));
  EXPECT_EQ(coded.codes, (Ints{127, -127, 3, 0, -4, 2}));
}

TEST(Int8, NeverEmitsMinus128) {
  // The stored scale is below amax / 127, so that the quotient exceeds 127 a little.
  const CodedSide coded = Code(Int8(), {1, 2, DType::kBFloat16}, {-1.0f, 0.5f});
  EXPECT_EQ(coded.codes[0], -127);
}

class EveryInteger : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, EveryInteger,
                         testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16));

TEST_P(EveryInteger, ConstantGroupsDecodeExactly) {
  TestRandom random(7);
  for (const CodecSide& side : {ChannelInt4(), TokenInt4()}) {
    for (int i = 0; i < 2000; ++i) {
      const float value =
          RoundToType(GetParam(), std::bit_cast<float>(static_cast<uint32_t>(random())));
      if (!std::isfinite(value)) {
        continue;
      }
      const Floats x(12, value);
      const CodedSide coded = Code(side, {4, 3, GetParam()}, x);
      if (std::abs(value) > LargestFinite(GetParam()) - 15) {
        continue;  // falls back
      }
      ASSERT_EQ(coded.result, SideResult::kOk);
      ASSERT_EQ(coded.decoded, x);
    }
  }
  const Floats zeros(6, 0.0f);
  EXPECT_EQ(Code(Int8(), {2, 3, GetParam()}, zeros).decoded, zeros);
}

TEST_P(EveryInteger, SignsOfZeroDoNotReachTheBytes) {
  for (const CodecSide& side : {Int8(), ChannelInt4(), TokenInt4()}) {
    const CodedSide plus = Code(side, {2, 2, GetParam()}, {0, -0.0f, -0.0f, 0});
    const CodedSide minus = Code(side, {2, 2, GetParam()}, {-0.0f, 0, -0.0f, -0.0f});
    EXPECT_EQ(plus.bytes, minus.bytes);
    for (const float value : plus.decoded) {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), 0u);
    }
  }
}

TEST_P(EveryInteger, ErrorIsAtMostHalfAStep) {
  TestRandom random(11);
  const DType dtype = GetParam();
  for (const CodecSide& side : {Int8(), ChannelInt4(), TokenInt4()}) {
    const float steps = side.bits == 8 ? 127 : 15;
    for (int round = 0; round < 400; ++round) {
      const int exponent = static_cast<int>(random() % 60) - 40;  // subnormal halves included
      const float unit = std::ldexp(1.0f, dtype == DType::kFloat16 ? exponent / 2 : exponent * 3);
      const float offset = random() % 2 == 0 ? 0.0f : 20.0f * unit;
      Floats x;
      for (int i = 0; i < 8; ++i) {
        x.push_back(RoundToType(dtype, Normal(random) * unit + offset));
      }
      const SideShape shape{side.grouping == Grouping::kPerChannel ? 8u : 1u,
                            side.grouping == Grouping::kPerChannel ? 1u : 8u, dtype};
      const CodedSide coded = Code(side, shape, x);
      ASSERT_EQ(coded.result, SideResult::kOk);
      const double scale = coded.parameters[0];
      // Half a step, the scale's rounding at the last code, and the float32 roundings.
      const double epsilon = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
      for (size_t i = 0; i < x.size(); ++i) {
        const double bound =
            std::max(scale / 2, steps * scale * epsilon) * (1 + 1e-5) + std::abs(x[i]) * 0x1p-22;
        ASSERT_LE(std::abs(static_cast<double>(coded.decoded[i]) - x[i]), bound)
            << i << " unit " << unit << " scale " << scale;
      }
    }
  }
}

TEST_P(EveryInteger, RefusesWhatIsNotFinite) {
  const float bad[] = {
      std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
      std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()};
  for (const CodecSide& side : {Int8(), ChannelInt4(), TokenInt4()}) {
    for (const float value : bad) {
      for (int position = 0; position < 18; ++position) {
        Floats x(18, 1.0f);
        x[position] = value;
        EXPECT_EQ(Code(side, {2, 9, GetParam()}, x).result, SideResult::kNotRepresentable);
      }
    }
  }
}

TEST_P(EveryInteger, RefusesRangesWhoseDecodedEndIsNotFinite) {
  const float most = LargestFinite(GetParam());
  // The scale of this range rounds up or overflows, so that the top code decodes to infinity.
  EXPECT_EQ(Code(TokenInt4(), {1, 2, GetParam()}, {-most, most}).result,
            SideResult::kNotRepresentable);
  for (const CodecSide& side : {Int8(), ChannelInt4(), TokenInt4()}) {
    TestRandom random(5);
    for (int i = 0; i < 200; ++i) {
      Floats x;
      for (int j = 0; j < 4; ++j) {
        x.push_back(
            RoundToType(GetParam(), most * (static_cast<float>(random() % 1000) / 500.0f - 1.0f)));
      }
      x[i % 4] = most;
      const CodedSide coded = Code(side, {2, 2, GetParam()}, x);
      if (coded.result == SideResult::kOk) {
        for (const float value : coded.decoded) {
          ASSERT_TRUE(std::isfinite(RoundToType(GetParam(), value)));
        }
      }
    }
  }
}

TEST(Int4, SubnormalScalesAreRoundedUp) {
  // A range of 22 · 2^-24 needs the scale 1.47 · 2^-24, which rounds to 1 and would lose 7 steps.
  const float unit = 0x1p-24f;
  const CodedSide coded = Code(TokenInt4(), {1, 2, DType::kFloat16}, {0, 22 * unit});
  EXPECT_EQ(coded.parameters[0], 2 * unit);
  EXPECT_EQ(coded.decoded[1], 22 * unit);
  const CodedSide tiny = Code(TokenInt4(), {1, 2, DType::kFloat32}, {0, 0x1p-149f});
  EXPECT_EQ(tiny.parameters[0], 0x1p-126f);
  EXPECT_EQ(tiny.codes, (Ints{0, 0}));
}

TEST(SideCodec, RefusesSidesAndTypesItCannotCode) {
  CodecSide five_bits = Int8();
  five_bits.bits = 5;
  EXPECT_EQ(CheckSide(five_bits, DType::kFloat16).code(), absl::StatusCode::kUnimplemented);
  CodecSide basis = Int8();
  basis.transform = Transform::kProfileBasis;
  EXPECT_EQ(CheckSide(basis, DType::kFloat16).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckSide(Int8(), DType::kFloat8E4M3).code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(CheckSide({}, DType::kFloat8E4M3).ok());
}

}  // namespace
}  // namespace tokura::kernels
