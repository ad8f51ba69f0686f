// What holds for one side of every codec.

#include "kernels/side_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coded_side.h"
#include "kernels/float_convert.h"
#include "kernels/fp_environment.h"
#include "kernels/guided_rounding.h"
#include "kernels/quantize.h"
#include "kv_buffer.h"
#include "test_profile.h"

namespace tokura::kernels {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int>;

constexpr DType kCodedTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

struct NamedSide {
  std::string name;
  CodecSide side;
  bool k = false;
};

// The different sides of all presets.
std::vector<NamedSide> Sides() {
  std::vector<NamedSide> out;
  const auto add = [&](const std::string& name, const CodecSide& side, bool k) {
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const NamedSide& other) { return other.side == side; });
    if (!side.raw() && !known) {
      out.push_back({name, side, k});
    }
  };
  for (const CodecPreset& preset : CodecPresets()) {
    add(std::string(preset.name) + " K", preset.k, true);
    add(std::string(preset.name) + " V", preset.v, false);
  }
  return out;
}

// A side with everything that it takes from a profile or a block. Owns what the task borrows.
struct Bench {
  Bench(const NamedSide& named, const SideShape& shape) : profile(shape.dim, shape.dim) {
    task.side = named.side;
    task.shape = shape;
    const HeadProfile head = profile.Head({0, 1, 2});
    task.profile = named.k ? head.k : head.v;
    if (named.side.rounding == Rounding::kGuidedByToken) {
      const Floats keys = Values(shape, 77, 1, 0);
      std::vector<float> queries;
      AppendExemplarRows(profile.ExemplarsOf({0, 1, 2}, 64), 0, &queries);
      MakeTokenGuides({keys.data(), shape.tokens, shape.dim, queries}, &guides);
      task.profile.guide = guides.view();
    }
  }

  // Normal numbers that dtype holds, with an offset in some channels.
  static Floats Values(const SideShape& shape, uint64_t seed, float unit, float offset) {
    TestRandom random(seed);
    Floats x;
    for (size_t i = 0; i < size_t{shape.tokens} * shape.dim; ++i) {
      const float value = Normal(random) * unit + (i % shape.dim % 7 == 3 ? offset : 0.0f);
      x.push_back(RoundToType(shape.dtype, value));
    }
    return x;
  }

  TestProfile profile;
  GuideArrays guides;
  SideTask task;
};

constexpr uint32_t kDims[] = {1, 5, 64, 80, 96, 128, 192, 256};
constexpr uint32_t kTokens[] = {1, 16, 17, 64, 65, 256};

// Largest possible error of an element, given the values that it is coded with.
class ErrorBound {
 public:
  ErrorBound(const SideTask& task, const Floats& x, const CodedSide& coded)
      : task_(task), x_(x), coded_(coded) {
    const uint32_t dim = task.shape.dim;
    const bool per_token = task.side.grouping == Grouping::kPerToken;
    lines_.resize(per_token ? task.shape.tokens : dim);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto c = static_cast<uint32_t>(i % dim);
      Line& line = lines_[per_token ? i / dim : c];
      line.low = std::min(line.low, x[i] / Factor(c));
      line.high = std::max(line.high, x[i] / Factor(c));
      largest_ = std::max(largest_, std::abs(static_cast<double>(x[i])));
    }
  }

  void Check() const {
    const CodecSide& side = task_.side;
    if (side.number == Number::kLloydMax) {
      return CheckVectors();
    }
    const uint32_t dim = task_.shape.dim;
    for (size_t i = 0; i < x_.size(); ++i) {
      const double error = std::abs(static_cast<double>(coded_.decoded[i]) - x_[i]);
      const auto c = static_cast<uint32_t>(i % dim);
      const Line& line = lines_[side.grouping == Grouping::kPerToken ? i / dim : c];
      const double bound =
          side.number == Number::kFloat8 ? Float8Bound(x_[i]) : IntegerBound(line) * Factor(c);
      ASSERT_LE(error, bound + 1e-37) << "token " << i / dim << " channel " << c;
    }
  }

 private:
  // A whole token or a whole channel, which is at least as wide as its groups.
  struct Line {
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
  };

  double Epsilon() const {
    return task_.shape.dtype == DType::kBFloat16  ? 0x1p-8
           : task_.shape.dtype == DType::kFloat16 ? 0x1p-11
                                                  : 0x1p-24;
  }

  double Float8Bound(float x) const {
    return std::max(std::abs(static_cast<double>(x)) * 0x1p-4, largest_ * 0x1p-17);
  }

  double Factor(uint32_t c) const {
    return task_.side.transform == Transform::kSmooth ? task_.profile.smooth[c] : 1.0;
  }

  double IntegerBound(const Line& line) const {
    const CodecSide& side = task_.side;
    const bool asymmetric = side.zero == Zero::kAsymmetric;
    const double largest = std::max(std::abs(line.low), std::abs(line.high));
    const double steps = (1 << (side.bits - (asymmetric ? 0 : 1))) - 1;
    const double scale = (asymmetric ? line.high - line.low : largest) / steps;
    // Guided codes may be any: only the range bounds them.
    const double half = side.rounding == Rounding::kNearest ? scale / 2 : scale * steps;
    const double subnormal = task_.shape.dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-126;
    return half * (1 + Epsilon()) + steps * (scale * Epsilon() + subnormal) +
           largest * (Epsilon() + 0x1p-21);
  }

  // Vectors keep their length, so the error says how much their directions differ.
  void CheckVectors() const {
    const uint32_t dim = task_.shape.dim;
    for (uint32_t t = 0; t < task_.shape.tokens; ++t) {
      double error = 0;
      double size = 0;
      double decoded = 0;
      for (uint32_t c = 0; c < dim; ++c) {
        const double value = x_[size_t{t} * dim + c];
        const double after = coded_.decoded[size_t{t} * dim + c];
        error += (after - value) * (after - value);
        size += value * value;
        decoded += after * after;
      }
      ASSERT_NEAR(std::sqrt(decoded / size), 1, 2 * Epsilon() + 1e-5);
      ASSERT_LE(std::sqrt(error / size), task_.side.bits == 4 ? 0.3 : 0.5);
    }
  }

  const SideTask& task_;
  const Floats& x_;
  const CodedSide& coded_;
  std::vector<Line> lines_;
  double largest_ = 0;
};

TEST(SideCodec, ErrorsAreBoundedForEveryShapeAndType) {
  const ScopedFloatEnvironment environment;
  for (const NamedSide& named : Sides()) {
    for (const uint32_t dim : kDims) {
      for (const uint32_t tokens : kTokens) {
        const DType dtype = kCodedTypes[(dim + tokens) % 3];
        SCOPED_TRACE(named.name + " dim " + std::to_string(dim) + " tokens " +
                     std::to_string(tokens));
        const Bench bench(named, {tokens, dim, dtype});
        const Floats x = Bench::Values(bench.task.shape, dim + tokens, 1, 6);
        const CodedSide coded = CodeSide(bench.task, x);
        ASSERT_EQ(coded.result, SideResult::kOk);
        ErrorBound(bench.task, x, coded).Check();
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

TEST(SideCodec, ErrorsAreBoundedForEveryMagnitude) {
  const ScopedFloatEnvironment environment;
  for (const NamedSide& named : Sides()) {
    for (const DType dtype : kCodedTypes) {
      for (int exponent = -20; exponent <= 10; exponent += 3) {
        if (named.side.number == Number::kLloydMax && exponent < -8) {
          continue;  // the scale of a half has few bits left
        }
        if (named.side.transform != Transform::kNone && exponent > 7) {
          continue;  // undoing the transform could enlarge a decoded number beyond a half
        }
        SCOPED_TRACE(named.name + " 2^" + std::to_string(exponent));
        const Bench bench(named, {16, 64, dtype});
        const Floats x = Bench::Values(bench.task.shape, 5, std::ldexp(1.0f, exponent),
                                       std::ldexp(20.0f, exponent));
        const CodedSide coded = CodeSide(bench.task, x);
        ASSERT_EQ(coded.result, SideResult::kOk);
        ErrorBound(bench.task, x, coded).Check();
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

TEST(SideCodec, ZerosDecodeToZeros) {
  for (const NamedSide& named : Sides()) {
    const Bench bench(named, {17, 64, DType::kFloat16});
    const Floats zeros(17 * 64, 0.0f);
    const CodedSide coded = CodeSide(bench.task, zeros);
    ASSERT_EQ(coded.result, SideResult::kOk) << named.name;
    EXPECT_EQ(coded.decoded, zeros) << named.name;
    const Floats negative(17 * 64, -0.0f);
    EXPECT_EQ(CodeSide(bench.task, negative).decoded, zeros) << named.name;
  }
}

// Real keys have channels that are zero throughout, and values tokens.
TEST(SideCodec, ZeroChannelsAndTokensStayZero) {
  for (const NamedSide& named : Sides()) {
    if (named.side.number == Number::kLloydMax) {
      continue;  // rotation spreads every error over all channels
    }
    const Bench bench(named, {16, 64, DType::kBFloat16});
    Floats x = Bench::Values(bench.task.shape, 9, 1, 0);
    const bool per_channel = named.side.grouping == Grouping::kPerChannel;
    for (int t = 0; t < 16; ++t) {
      for (int c = 0; c < 64; ++c) {
        if (per_channel ? c == 20 : t == 5) {
          x[t * 64 + c] = 0;
        }
      }
    }
    const CodedSide coded = CodeSide(bench.task, x);
    ASSERT_EQ(coded.result, SideResult::kOk);
    for (size_t i = 0; i < x.size(); ++i) {
      if (per_channel ? i % 64 == 20 : i / 64 == 5) {
        EXPECT_EQ(coded.decoded[i], 0.0f) << named.name;
      }
    }
  }
}

TEST(SideCodec, WhatIsNotFiniteIsNotRepresentable) {
  const float bad[] = {
      std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
      std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()};
  for (const NamedSide& named : Sides()) {
    const Bench bench(named, {3, 70, DType::kFloat16});
    for (const float value : bad) {
      for (uint32_t position = 0; position < 3 * 70; position += 11) {
        Floats x = Bench::Values(bench.task.shape, 2, 1, 0);
        x[position] = value;
        const uint32_t channel = position % 70;
        const auto& outliers = bench.task.profile.outliers;
        const bool kept = channel >= 70u - named.side.tail ||
                          (named.side.outliers != 0 &&
                           std::find(outliers.begin(), outliers.end(), channel) != outliers.end());
        const CodedSide coded = CodeSide(bench.task, x);
        EXPECT_EQ(coded.result, kept ? SideResult::kOk : SideResult::kNotRepresentable)
            << named.name << " position " << position;
        if (kept) {
          EXPECT_EQ(std::bit_cast<uint32_t>(coded.decoded[position]) & 0x7f800000u, 0x7f800000u);
        }
      }
    }
  }
}

TEST(SideCodec, WhatIsRepresentableDecodesToFiniteNumbers) {
  for (const NamedSide& named : Sides()) {
    for (const DType dtype : kCodedTypes) {
      const Bench bench(named, {8, 32, dtype});
      TestRandom random(13);
      for (int round = 0; round < 60; ++round) {
        const float most = LargestFinite(dtype) / static_cast<float>(1 << (round % 4));
        Floats x;
        for (int i = 0; i < 8 * 32; ++i) {
          x.push_back(
              RoundToType(dtype, most * (static_cast<float>(random() % 2001) / 1000.0f - 1.0f)));
        }
        const CodedSide coded = CodeSide(bench.task, x);
        for (const float value : coded.decoded) {
          ASSERT_TRUE(std::isfinite(RoundToType(dtype, value))) << named.name;
        }
      }
    }
  }
}

TEST(SideCodec, SubnormalNumbersAreCodedWhateverTheirSize) {
  for (const NamedSide& named : Sides()) {
    for (const DType dtype : kCodedTypes) {
      const Bench bench(named, {4, 64, dtype});
      const float unit = dtype == DType::kFloat16 ? 0x1p-24f : 0x1p-133f;
      Floats x;
      for (int i = 0; i < 4 * 64; ++i) {
        x.push_back(unit * static_cast<float>(i * 7 % 23 - 11));
      }
      const CodedSide coded = CodeSide(bench.task, x);
      ASSERT_EQ(coded.result, SideResult::kOk) << named.name;
      for (size_t i = 0; i < x.size(); ++i) {
        // Rotated numbers may lose the size of the vector; the others half of 22 units at most.
        ASSERT_LE(std::abs(coded.decoded[i] - x[i]), unit * 32 + 0x1p-126f) << named.name;
      }
    }
  }
}

TEST(SideCodec, ChannelsThatStayComeBackBitForBit) {
  const NamedSide atom{"atom4 K", FindCodec("atom4")->k, true};
  const Bench bench(atom, {20, 192, DType::kBFloat16});
  ASSERT_EQ(OutlierChannels(atom.side, 192), 4u);
  Floats x = Bench::Values(bench.task.shape, 4, 1, 0);
  for (uint32_t t = 0; t < 20; ++t) {
    for (uint32_t i = 0; i < 4; ++i) {
      x[t * 192 + bench.task.profile.outliers[i]] *= 4096;  // does not reach the other scales
    }
  }
  const CodedSide coded = CodeSide(bench.task, x);
  ASSERT_EQ(coded.result, SideResult::kOk);
  for (uint32_t t = 0; t < 20; ++t) {
    for (uint32_t c = 0; c < 192; ++c) {
      const auto& outliers = bench.task.profile.outliers;
      const bool kept = std::find(outliers.begin(), outliers.end(), c) != outliers.end();
      ASSERT_LE(std::abs(coded.decoded[t * 192 + c] - x[t * 192 + c]), kept ? 0.0f : 0.4f);
    }
  }
}

TEST(SideCodec, LatentRecordsAre656Bytes) {
  const CodecSide side = FindCodec("mla_fp8")->k;
  const SideBytes bytes = SideBytesOf(side, {1, 576, DType::kBFloat16});
  EXPECT_EQ(bytes.codes, 512u);
  EXPECT_EQ(bytes.parameters, 16u);
  EXPECT_EQ(bytes.exact, 128u);
  Floats x(576, 0.25f);
  x[100] = 3.0f;
  x[300] = -448.0f;
  const CodedSide coded = CodeSide({side, {1, 576, DType::kBFloat16}, {}}, x);
  EXPECT_EQ(coded.parameters, (Floats{0x1p-7f, 0x1p-10f, 1, 0x1p-10f}));
  EXPECT_EQ(coded.decoded, x);
}

TEST(SideCodec, Float8OfFloat8IsExact) {
  const CodecSide side = FindCodec("fp8")->k;
  ASSERT_TRUE(side.exact(DType::kFloat8E4M3));
  ASSERT_FALSE(side.exact(DType::kFloat16));
  Floats x;
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) != 0x7f) {
      x.push_back(Float8ToFloat(static_cast<uint8_t>(code)));
    }
  }
  const CodedSide coded = CodeSide({side, {2, 127, DType::kFloat8E4M3}, {}}, x);
  ASSERT_EQ(coded.result, SideResult::kOk);
  EXPECT_EQ(coded.parameters, Floats{1});
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(coded.decoded[i]), std::bit_cast<uint32_t>(x[i]));
  }
  x[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(CodeSide({side, {2, 127, DType::kFloat8E4M3}, {}}, x).result,
            SideResult::kNotRepresentable);
}

CodedSide One(const CodecSide& side, const Floats& x) {
  return CodeSide({side, {1, static_cast<uint32_t>(x.size()), DType::kFloat16}, {}}, x);
}

TEST(TwoBits, RoundHalfToEven) {
  const CodecSide side = FindCodec("kivi2")->v;
  CodedSide coded = One(side, {0, 1, 2, 3, .5f, 1.5f, 2.5f, 3});
  EXPECT_EQ(coded.parameters, (Floats{1, 0}));
  EXPECT_EQ(coded.codes, (Ints{0, 1, 2, 3, 0, 2, 2, 3}));
  coded = One(side, {-1, -.5f, .25f, 2});
  EXPECT_EQ(coded.parameters, (Floats{1, -1}));
  EXPECT_EQ(coded.codes, (Ints{0, 0, 1, 3}));
  EXPECT_EQ(coded.decoded, (Floats{-1, -1, 0, 2}));
}

TEST(Symmetric4, NeverUsesMinusEight) {
  const CodecSide side = FindCodec("int4")->k;
  const CodedSide coded = One(side, {1, -7, 3.4f, .5f, -3.5f});
  EXPECT_EQ(coded.parameters, Floats{1});
  EXPECT_EQ(coded.codes, (Ints{1, -7, 3, 0, -4}));
  TestRandom random(8);
  for (int round = 0; round < 500; ++round) {
    Floats x;
    for (int i = 0; i < 64; ++i) {
      x.push_back(RoundToType(DType::kFloat16, -std::abs(Normal(random))));
    }
    for (const int code : One(side, x).codes) {
      ASSERT_GE(code, -7);
    }
  }
}

// A group of one element, as a block of one token is to a per-channel side, is exact: no error is
// no sign of a good codec there.
TEST(SideCodec, GroupsOfOneElementAreExact) {
  for (const char* name : {"kivi2", "kivi4", "kivi4r"}) {
    const Bench bench({name, FindCodec(name)->k, true}, {1, 64, DType::kFloat16});
    const Floats x = Bench::Values(bench.task.shape, 3, 1, 5);
    EXPECT_EQ(CodeSide(bench.task, x).decoded, x);
  }
}

TEST(Turbo, CorrectsTheLength) {
  CodecSide side = FindCodec("turbo4")->k;
  side.bits = 2;
  const CodedSide coded = CodeSide({side, {1, 4, DType::kFloat32}, {}}, {8, 0, 0, 0});
  // Without the correction this were 12.08: every coordinate is 1.51 where it should be 1.
  EXPECT_NEAR(coded.decoded[0], 8, 1e-6);
  EXPECT_EQ(coded.decoded[1], 0);
  EXPECT_NEAR(coded.parameters[0] * 1.5104176f, 4, 1e-6);
}

TEST(Turbo, HasTheErrorOfItsCodebook) {
  for (const auto& [name, expected] : {std::pair{"turbo4", 0.0965}, std::pair{"turbo3", 0.184}}) {
    const CodecSide side = FindCodec(name)->k;
    const SideShape shape{256, 128, DType::kFloat16};
    const Floats x = Bench::Values(shape, 6, 1, 0);
    const CodedSide coded = CodeSide({side, shape, {}}, x);
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += (coded.decoded[i] - x[i]) * (coded.decoded[i] - x[i]);
      size += x[i] * x[i];
    }
    EXPECT_NEAR(std::sqrt(error / size), expected, 0.01);
  }
}

// Relative errors on normal numbers, by the reference's table.
TEST(SideCodec, PlainQuantizersHaveTheirUsualErrors) {
  const struct {
    const char* codec;
    bool v;
    uint32_t dim;
    double error;
  } rows[] = {{"kivi4", false, 64, .090},  {"kivi4", true, 128, .100}, {"kivi4", true, 256, .090},
              {"kivi2", true, 128, .393},  {"int4", false, 128, .117}, {"int8", false, 128, .0065},
              {"turbo3", true, 128, .214}, {"fp8", false, 128, .0265}};
  for (const auto& row : rows) {
    const SideShape shape{64, row.dim, DType::kFloat32};
    const auto codec = FindCodec(row.codec);
    const Floats x = Bench::Values(shape, 21, 1, 0);
    const CodedSide coded = CodeSide({row.v ? codec->v : codec->k, shape, {}}, x);
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += (coded.decoded[i] - x[i]) * (coded.decoded[i] - x[i]);
      size += x[i] * x[i];
    }
    EXPECT_NEAR(std::sqrt(error / size) / row.error, 1, 0.05) << row.codec << (row.v ? " V" : " K");
  }
}

}  // namespace
}  // namespace tokura::kernels
