// Whole parts with every codec, with profiles and with codecs for single layers.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "common/crc32c.h"
#include "kernels/codec.h"
#include "kernels/float_convert.h"
#include "kernels/format.h"
#include "kernels/part.h"
#include "kernels/quantize.h"
#include "kv_buffer.h"
#include "test_profile.h"

namespace tokura::kernels {
namespace {

EncodeOptions WithProfile(std::string_view codec, const ProfileSource* profiles) {
  EncodeOptions options;
  options.codec = codec;
  options.record_queries = 2;
  options.profiles = profiles;
  options.profile = TestProfile::kId;
  return options;
}

absl::Status Created(const PartShape& shape, const KvView& view, const EncodeOptions& options) {
  const auto bytes = PartBytesMax(shape, options);
  if (!bytes.ok()) {
    return bytes.status();
  }
  PartBytes out(*bytes);
  return PartEncoder::Create(TestIdentity(), shape, {&view, 0, 0}, options, out.out()).status();
}

// What an element may be off by: normal numbers, K with an offset of 6 in some channels.
float Tolerance(const CodecSide& side) {
  if (side.raw()) {
    return 0;
  }
  if (side.number == Number::kFloat8) {
    return 0.75f;
  }
  const auto steps = static_cast<float>((1 << side.bits) - 1);
  const float range = 14;
  const bool nearest = side.rounding == Rounding::kNearest && side.number == Number::kInteger;
  // λ is up to 3 here; rotated errors have no bound of their own but the vector's length.
  return nearest ? range / steps * (side.transform == Transform::kSmooth ? 1.5f : 0.75f) : range;
}

TEST(PartCodecs, EveryPresetRoundTripsAndTouchesNothingElse) {
  TestRandom random(51);
  constexpr uint32_t kDims[] = {64, 80, 96, 128, 192, 256, 5};
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                              DType::kFloat8E4M3};
  constexpr uint32_t kTokens[] = {16, 64, 65, 256, 1};
  for (const CodecPreset& preset : CodecPresets()) {
    for (int round = 0; round < 4; ++round) {
      SCOPED_TRACE(std::string(preset.name) + " " + std::to_string(round));
      BufferShape shape;
      shape.dtype = kTypes[random() % 3];
      shape.heads = 2;
      shape.k_dim = kDims[random() % std::size(kDims)];
      shape.v_dim = preset.name == "mla_fp8" && round % 2 == 0 ? 0 : kDims[random() % 7];
      const uint32_t tokens = kTokens[random() % std::size(kTokens)];
      const uint32_t first = random() % 20;
      shape.tokens = first + tokens;
      shape.page_tokens = 16 << random() % 4;
      const TestProfiles profiles(shape.k_dim, shape.v_dim);
      KvBuffer source(kLayouts[random() % 4], shape);
      source.Randomize(random);
      EncodeOptions options = WithProfile(preset.name, &profiles);
      options.record = EncodeOptions::Record::kSkip;
      const std::vector<std::byte> part = Encode(source, {options, tokens, 1, 1, first});
      ASSERT_TRUE(VerifyPart(part).ok()) << VerifyPart(part).status();
      BufferShape target_shape = shape;
      target_shape.dtype = kTypes[random() % 4];
      KvBuffer target(kLayouts[random() % 4], target_shape);
      ASSERT_TRUE(Decode(part, target, 1, first, &profiles).ok());
      ASSERT_TRUE(target.CanaryIntact(1, 1, first, tokens));
      source.ForEach([&](const At& at) {
        if (at.head != 1 || at.token < first) {
          return;
        }
        const float expected = RoundToType(target_shape.dtype, source.Value(at));
        const float tolerance = Tolerance(at.side == Side::kK ? preset.k : preset.v);
        const float rounding = target_shape.dtype == DType::kFloat8E4M3 ? 1.0f : 0.05f;
        if (at.token - first < 4) {
          ASSERT_EQ(target.Value(at), expected);  // sinks
        } else {
          ASSERT_NEAR(target.Value(at), expected, tolerance == 0 ? 0 : tolerance + rounding);
        }
      });
    }
  }
}

TEST(PartCodecs, BlocksOfSinksAloneAreExact) {
  TestRandom random(9);
  KvBuffer source(Layout::kContiguous, {DType::kFloat16, 1, 1, 64, 64, 4, 4});
  source.Randomize(random);
  const TestProfiles profiles(64, 64);
  for (const CodecPreset& preset : CodecPresets()) {
    const std::vector<std::byte> part = Encode(source, {WithProfile(preset.name, &profiles), 4});
    ASSERT_TRUE(VerifyPart(part).ok()) << preset.name;
    KvBuffer target(Layout::kContiguous, source.shape());
    ASSERT_TRUE(Decode(part, target, 0, 0, &profiles).ok()) << preset.name;
    source.ForEach([&](const At& at) { ASSERT_EQ(target.Bits(at), source.Bits(at)); });
  }
}

TEST(PartCodecs, NeedTheirProfileToEncode) {
  KvBuffer source(Layout::kContiguous, {});
  const PartShape shape = ShapeOf(source.shape(), 64, 1);
  const TestProfiles profiles(64, 64);
  const TestProfiles none;
  const TestProfiles other(128, 64);
  for (const CodecPreset& preset : CodecPresets()) {
    const ProfileUse use = std::max(UsesProfile(preset.k), UsesProfile(preset.v));
    const bool needed = use == ProfileUse::kToEncode || use == ProfileUse::kToDecode;
    EncodeOptions options = WithProfile(preset.name, &profiles);
    EXPECT_TRUE(Created(shape, source.view(), options).ok()) << preset.name;
    options.profile = 0;
    const absl::Status unnamed = Created(shape, source.view(), options);
    EXPECT_EQ(unnamed.ok(), !needed) << preset.name;
    EXPECT_TRUE(unnamed.ok() || absl::IsFailedPrecondition(unnamed));
    if (use != ProfileUse::kNone) {
      const absl::Status absent = Created(shape, source.view(), WithProfile(preset.name, &none));
      EXPECT_EQ(absent.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_NE(absent.message().find("1122334455667788"), absl::string_view::npos);
      EXPECT_EQ(Created(shape, source.view(), WithProfile(preset.name, nullptr)).code(),
                absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(Created(shape, source.view(), WithProfile(preset.name, &other)).code(),
                absl::StatusCode::kFailedPrecondition);
    }
  }
}

TEST(PartCodecs, NeedTheirProfileToDecodeAndAreVerifiedWithout) {
  TestRandom random(3);
  KvBuffer source(Layout::kContiguous, {});
  source.Randomize(random);
  const TestProfiles profiles(64, 64);
  const TestProfiles none;
  const TestProfiles other(128, 64);
  for (const CodecPreset& preset : CodecPresets()) {
    SCOPED_TRACE(preset.name);
    EncodeOptions options = WithProfile(preset.name, &profiles);
    options.record = EncodeOptions::Record::kSkip;
    const std::vector<std::byte> part = Encode(source, {options});
    const auto info = VerifyPart(part);
    ASSERT_TRUE(info.ok()) << info.status();
    const ProfileUse use = std::max(UsesProfile(preset.k), UsesProfile(preset.v));
    EXPECT_EQ(info->codec_profile, use == ProfileUse::kNone ? 0 : TestProfile::kId);
    const bool guided = preset.k.rounding != Rounding::kNearest;
    const bool needed = use != ProfileUse::kNone && !guided;
    for (const TestProfiles* source_of : {&none, &other}) {
      const auto reader = PartReader::Open(part, source_of);
      ASSERT_TRUE(reader.ok());
      EXPECT_EQ(reader->CheckDecodable().ok(), !needed);
      KvBuffer target(Layout::kContiguous, source.shape());
      const absl::Status status = Decode(part, target, 0, 0, source_of);
      EXPECT_EQ(status.ok(), !needed);
      if (needed) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_TRUE(target.CanaryIntact(0, 0, 0, 0));
      }
    }
  }
}

TEST(PartCodecs, CodecsThatUseNoProfileDoNotDependOnOne) {
  TestRandom random(4);
  KvBuffer source(Layout::kContiguous, {});
  source.Randomize(random);
  const TestProfiles profiles(64, 64);
  for (const char* codec : {"raw", "fp8", "int8", "int4", "kivi4", "kivi2", "k8v4"}) {
    EncodeOptions options = WithProfile(codec, &profiles);
    options.record = EncodeOptions::Record::kSkip;
    const std::vector<std::byte> with = Encode(source, {options});
    options.profile = 0;
    EXPECT_EQ(Encode(source, {options}), with) << codec;
  }
}

TEST(PartCodecs, RotationUsesSignsOfItsOwnWithoutAProfile) {
  TestRandom random(5);
  KvBuffer source(Layout::kContiguous, {});
  source.Randomize(random);
  const std::vector<std::byte> part = Encode(source, {{.codec = "turbo4"}});
  EXPECT_EQ(VerifyPart(part)->codec_profile, 0u);
  KvBuffer target(Layout::kContiguous, source.shape());
  EXPECT_TRUE(Decode(part, target, 0, 0).ok());
}

TEST(PartCodecs, GuidedPartsAreReadByThePlainDecoder) {
  TestRandom random(6);
  KvBuffer source(Layout::kContiguous, {});
  source.Randomize(random);
  const TestProfiles profiles(64, 64);
  EncodeOptions options = WithProfile("kivi4r", &profiles);
  options.record = EncodeOptions::Record::kSkip;
  const std::vector<std::byte> guided = Encode(source, {options});
  options.codec = "kivi4";
  options.profile = 0;
  const std::vector<std::byte> plain = Encode(source, {options});
  ASSERT_EQ(guided.size(), plain.size());
  const auto info = VerifyPart(guided);
  EXPECT_EQ(info->codec, "kivi4r");
  // V, scales and minima are the same bytes, codes of K are not.
  format::Slab slab;
  const size_t at = info->layer_offset[0] + 16;
  std::memcpy(&slab, guided.data() + at, sizeof(slab));
  EXPECT_NE(std::memcmp(guided.data() + at + 32, plain.data() + at + 32, 60 * 32), 0);
  EXPECT_EQ(std::memcmp(guided.data() + at + 32 + 60 * 32, plain.data() + at + 32 + 60 * 32,
                        slab.bytes - 32 - 60 * 32),
            0);
}

TEST(PartCodecs, LayersMayHaveCodecsOfTheirOwn) {
  TestRandom random(7);
  const BufferShape shape{DType::kFloat16, 5, 2, 64, 64, 64, 64};
  KvBuffer source(Layout::kContiguous, shape);
  source.Randomize(random);
  source.Set({Side::kV, 3, 0, 60, 1}, std::numeric_limits<float>::infinity());
  EncodeOptions options{.codec = "kivi4", .sink_tokens = 0};
  options.layer_codecs = {{0, "raw"}, {4, "int8"}, {3, "int8"}};
  uint32_t fallbacks = 0;
  const std::vector<std::byte> part = Encode(source, {options, 64, 2}, &fallbacks);
  EXPECT_EQ(fallbacks, 1u);
  const auto info = VerifyPart(part);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->codec, "kivi4");
  EXPECT_EQ(info->fidelity, Fidelity::kQuantized);
  EXPECT_EQ(info->error.LayerError(0), 0);
  EXPECT_GT(info->error.LayerError(1), 3 * info->error.LayerError(4));
  EXPECT_GT(info->error.LayerError(4), 0);
  EXPECT_EQ(info->error.LayerError(3), 0);
  KvBuffer target(Layout::kContiguous, shape);
  ASSERT_TRUE(Decode(part, target, 0, 0).ok());
  source.ForEach([&](const At& at) {
    if (at.layer == 0 || at.layer == 3) {
      ASSERT_EQ(target.Bits(at), source.Bits(at));
    } else {
      ASSERT_NEAR(target.Value(at), source.Value(at), at.layer == 4 ? 0.05 : 0.6);
    }
  });
}

TEST(PartCodecs, LayerCodecsAreChecked) {
  const PartShape shape{DType::kFloat16, 20, 1, 64, 64, 64};
  EncodeOptions options;
  options.layer_codecs = {{20, "int8"}};
  EXPECT_EQ(PartBytesMax(shape, options).status().code(), absl::StatusCode::kInvalidArgument);
  options.layer_codecs = {{1, "int8"}, {1, "raw"}};
  EXPECT_EQ(PartBytesMax(shape, options).status().code(), absl::StatusCode::kInvalidArgument);
  options.layer_codecs = {{1, "zip"}};
  EXPECT_EQ(PartBytesMax(shape, options).status().code(), absl::StatusCode::kNotFound);
  options.layer_codecs = {{1, "kivi4"}};
  EXPECT_EQ(*PartBytesMax(shape, options), *PartBytesMax(shape, "kivi4"));
  options.layer_codecs.clear();
  for (uint32_t layer = 0; layer < 20 && layer < CodecPresets().size(); ++layer) {
    options.layer_codecs.push_back({layer, std::string(CodecPresets()[layer].name)});
  }
  EXPECT_EQ(PartBytesMax(shape, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PartCodecs, Float8OfAnEngineThatKeepsFloat8LosesNothing) {
  BufferShape shape{DType::kFloat8E4M3, 2, 2, 80, 64, 64, 64};
  KvBuffer source(Layout::kVllmCpu, shape);
  uint32_t bits = 0;
  source.ForEach([&](const At& at) {
    bits = bits * 1664525u + 1013904223u;
    const uint32_t byte = bits >> 24;
    source.SetBits(at, (byte & 0x7f) == 0x7f ? 0x12 : byte);
  });
  std::vector<std::byte> part = Encode(source, {{.codec = "fp8"}, 64, 2});
  auto info = VerifyPart(part);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->fidelity, Fidelity::kExact);
  EXPECT_EQ(info->error.Max(), 0);
  KvBuffer target(Layout::kOdd, shape);
  ASSERT_TRUE(Decode(part, target, 0, 0).ok());
  source.ForEach([&](const At& at) { ASSERT_EQ(target.Bits(at), source.Bits(at)); });
  // A NaN has no code: its layer is raw, and comes back bit for bit as well.
  source.SetBits({Side::kV, 1, 0, 40, 3}, 0xff);
  uint32_t fallbacks = 0;
  part = Encode(source, {{.codec = "fp8"}, 64, 2}, &fallbacks);
  EXPECT_EQ(fallbacks, 1u);
  EXPECT_EQ(VerifyPart(part)->fidelity, Fidelity::kExact);
  ASSERT_TRUE(Decode(part, target, 0, 0).ok());
  EXPECT_EQ(target.Bits({Side::kV, 1, 0, 40, 3}), 0xffu);
  for (const char* codec : {"int8", "kivi4", "turbo4", "qserve4"}) {
    EXPECT_EQ(PartBytesMax(ShapeOf(shape, 64, 2), codec).status().code(),
              absl::StatusCode::kUnimplemented);
  }
}

TEST(PartCodecs, LatentHeadsHaveNoV) {
  TestRandom random(8);
  const BufferShape shape{DType::kBFloat16, 1, 1, 576, 0, 64, 64};
  KvBuffer source(Layout::kTokenMajor, shape);
  source.Randomize(random);
  for (const char* codec : {"mla_fp8", "int8", "fp8", "kivi4"}) {
    EncodeOptions options{.codec = codec, .sink_tokens = 0};
    const std::vector<std::byte> part = Encode(source, {options});
    const auto info = VerifyPart(part);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_GT(info->error.Mean(), 0);
    EXPECT_LT(info->error.Mean(), 0.3);
    KvBuffer target(Layout::kContiguous, shape);
    ASSERT_TRUE(Decode(part, target, 0, 0).ok());
    if (std::string(codec) == "mla_fp8") {
      EXPECT_NEAR(static_cast<double>(info->part_bytes - info->prefix_bytes), 64 * 656, 200);
      source.ForEach([&](const At& at) {
        if (at.channel >= 512) {
          ASSERT_EQ(target.Bits(at), source.Bits(at));
        }
      });
    }
  }
}

// A codec that needs a profile, in a header that names none.
TEST(PartCodecs, HeadersNameTheProfileThatTheirCodecNeeds) {
  KvBuffer source(Layout::kContiguous, {});
  const TestProfiles profiles(64, 64);
  for (const char* codec : {"atom4", "qserve4", "kivi4r"}) {
    std::vector<std::byte> part = Encode(source, {WithProfile(codec, &profiles)});
    uint32_t header_bytes;
    std::memcpy(&header_bytes, part.data() + offsetof(format::Header, header_bytes), 4);
    std::memset(part.data() + offsetof(format::Header, codec_profile), 0, 8);
    const uint32_t crc = Crc32c({part.data(), header_bytes - 4});
    std::memcpy(part.data() + header_bytes - 4, &crc, 4);
    EXPECT_EQ(PartReader::Open(part).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tokura::kernels
