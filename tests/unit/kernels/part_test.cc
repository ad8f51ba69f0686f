#include "kernels/part.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include "common/crc32c.h"
#include "kernels/float_convert.h"
#include "kernels/format.h"
#include "kernels/quantize.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

constexpr const char* kCodecs[] = {"raw", "int8", "kivi4", "k8v4", "kivi4+raw", "raw+int8"};

// Fills the block's elements with bits that no other element has nearby.
void FillBits(KvBuffer& buffer) {
  uint32_t bits = 12345;
  const size_t bytes = DTypeBytes(buffer.shape().dtype);
  buffer.ForEach([&](const At& at) {
    bits = bits * 1664525u + 1013904223u;
    buffer.SetBits(at, bits >> (32 - 8 * bytes));
  });
}

std::span<const std::byte> LayerBytes(std::span<const std::byte> part, const PartInfo& info,
                                      uint32_t layer) {
  return part.subspan(info.layer_offset[layer],
                      info.layer_offset[layer + 1] - info.layer_offset[layer]);
}

TEST(Part, RawComesBackBitForBitWhateverTheLayout) {
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3}) {
    std::vector<std::byte> first;
    for (const Layout layout : kLayouts) {
      const BufferShape shape{dtype, 2, 3, 64, 80, 192, 128};
      KvBuffer source(layout, shape);
      FillBits(source);
      const std::vector<std::byte> part = Encode(source, {{.codec = "raw"}, 64, 2, 1, 96});
      if (first.empty()) {
        first = part;
      }
      EXPECT_EQ(part, first);
      EXPECT_EQ(part.size(), *PartBytesMax(ShapeOf(shape, 64, 2), "raw"));
      KvBuffer target(layout, shape);
      ASSERT_TRUE(Decode(part, target, 1, 96).ok());
      EXPECT_TRUE(target.CanaryIntact(1, 2, 96, 64));
      source.ForEach([&](const At& at) {
        if (at.head >= 1 && at.token >= 96 && at.token < 160) {
          ASSERT_EQ(target.Bits(at), source.Bits(at));
        }
      });
    }
  }
}

TEST(Part, InfoSaysWhatWasPut) {
  KvBuffer source(Layout::kContiguous, {DType::kBFloat16, 3, 2, 64, 64, 64, 64});
  TestRandom random(2);
  source.Randomize(random);
  for (const char* codec : kCodecs) {
    const std::vector<std::byte> part = Encode(source, {{.codec = codec}, 64, 2});
    const PartIdentity identity = TestIdentity();
    const auto info = VerifyPart(part, &identity);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->identity, identity);
    EXPECT_EQ(info->shape, ShapeOf(source.shape(), 64, 2));
    EXPECT_EQ(info->codec, codec);
    EXPECT_EQ(info->part_bytes, part.size());
    EXPECT_EQ(info->layer_offset.size(), 4u);
    EXPECT_EQ(info->layer_offset.front(), info->prefix_bytes);
    EXPECT_EQ(info->layer_offset.back(), info->part_bytes);
    const bool raw = std::string(codec) == "raw";
    EXPECT_EQ(info->fidelity, raw ? Fidelity::kExact : Fidelity::kQuantized);
    EXPECT_TRUE(info->error.measured);
    EXPECT_EQ(info->error.layers.size(), 3u);
    EXPECT_EQ(info->error.Mean() == 0, raw);
    PartIdentity other = identity;
    other.content_id.bytes[3] ^= 1;
    EXPECT_EQ(VerifyPart(part, &other).status().code(), absl::StatusCode::kDataLoss);
  }
}

// Property test: random shapes, layouts, codecs and dtypes.
struct Case {
  BufferShape shape;
  EncodeArguments arguments;
  Layout layout;
  Layout target_layout;
};

Case RandomCase(TestRandom& random) {
  constexpr uint32_t kDims[] = {64, 80, 96, 128, 256, 8, 5};
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  Case c;
  c.shape.dtype = kTypes[random() % 3];
  c.shape.layers = 1 + random() % 2;
  c.shape.heads = 1 + random() % 3;
  c.shape.k_dim = kDims[random() % std::size(kDims)];
  c.shape.v_dim = random() % 4 == 0 ? kDims[random() % std::size(kDims)] : c.shape.k_dim;
  constexpr uint32_t kTokens[] = {1, 2, 3, 15, 16, 17, 63, 64, 65, 128, 256};
  c.arguments.tokens = kTokens[random() % std::size(kTokens)];
  constexpr uint32_t kPages[] = {1, 16, 64, 100, 128};
  c.shape.page_tokens = kPages[random() % std::size(kPages)];
  c.arguments.first_token = random() % 70;
  c.shape.tokens = c.arguments.first_token + c.arguments.tokens + random() % 3;
  c.arguments.first_head = random() % c.shape.heads;
  c.arguments.heads = 1 + random() % (c.shape.heads - c.arguments.first_head);
  c.arguments.options.codec = kCodecs[random() % std::size(kCodecs)];
  c.arguments.options.block_position = random() % 3;
  c.arguments.options.sink_tokens = random() % 70;
  c.arguments.options.record_queries = 1 + random() % 4;
  c.layout = kLayouts[random() % 4];
  c.target_layout = kLayouts[random() % 4];
  return c;
}

TEST(Part, RandomShapesRoundTripWithinTheBoundAndTouchNothingElse) {
  TestRandom random(42);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    const Case c = RandomCase(random);
    const EncodeArguments& a = c.arguments;
    KvBuffer source(c.layout, c.shape);
    source.Randomize(random);
    const std::vector<std::byte> before = source.Snapshot();
    const std::vector<std::byte> part = Encode(source, a);
    ASSERT_EQ(source.Snapshot(), before);
    ASSERT_TRUE(VerifyPart(part).ok()) << VerifyPart(part).status();
    BufferShape target_shape = c.shape;
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
    target_shape.dtype = kTypes[random() % 3];
    KvBuffer target(c.target_layout, target_shape);
    ASSERT_TRUE(Decode(part, target, a.first_head, a.first_token).ok());
    ASSERT_TRUE(target.CanaryIntact(a.first_head, a.heads, a.first_token, a.tokens));
    const uint64_t sinks_end = a.options.sink_tokens;
    source.ForEach([&](const At& at) {
      if (at.head < a.first_head || at.head >= a.first_head + a.heads || at.token < a.first_token ||
          at.token >= a.first_token + a.tokens) {
        return;
      }
      const uint64_t in_sequence =
          uint64_t{a.options.block_position} * a.tokens + at.token - a.first_token;
      const float expected = RoundToType(target_shape.dtype, source.Value(at));
      if (a.options.codec == "raw" || in_sequence < sinks_end) {
        ASSERT_EQ(target.Value(at), expected);
      } else {
        ASSERT_NEAR(target.Value(at), source.Value(at), 0.75);
      }
    });
  }
}

TEST(Part, BytesDependOnNeitherLayoutNorAlignmentNorFlushToZero) {
  TestRandom random(3);
  for (const char* codec : kCodecs) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      std::vector<std::byte> first;
      KvBuffer original(Layout::kContiguous, {dtype, 1, 2, 80, 80, 200, 128});
      original.Randomize(random);
      original.Set({Side::kK, 0, 0, 100, 1}, 1e-40f);  // subnormal in float32 and bfloat16
      for (const Layout layout : kLayouts) {
        KvBuffer source(layout, original.shape());
        original.ForEach([&](const At& at) { source.SetBits(at, original.Bits(at)); });
        const unsigned mode = _mm_getcsr();
        _mm_setcsr(mode | 0x8040 | (layout == Layout::kOdd ? 0x6000 : 0));  // and truncation
        const std::vector<std::byte> part = Encode(source, {{.codec = codec}, 64, 2, 0, 96});
        _mm_setcsr(mode);
        if (first.empty()) {
          first = part;
        }
        ASSERT_EQ(part, first) << codec;
      }
    }
  }
}

TEST(Part, SinksAreTheFirstTokensOfTheSequence) {
  TestRandom random(4);
  KvBuffer source(Layout::kContiguous, {DType::kFloat16, 1, 1, 64, 64, 16, 16});
  source.Randomize(random);
  const auto exact_tokens = [&](uint32_t position, uint32_t sinks) {
    EncodeOptions options{.codec = "kivi4", .sink_tokens = sinks, .block_position = position};
    const std::vector<std::byte> part = Encode(source, {options, 16});
    const auto info = VerifyPart(part);
    format::Slab slab;
    std::memcpy(&slab, part.data() + info->layer_offset[0] + 16, sizeof(slab));
    EXPECT_EQ(slab.coded_tokens + slab.exact_tokens, 16u);
    KvBuffer target(Layout::kContiguous, source.shape());
    EXPECT_TRUE(Decode(part, target, 0, 0).ok());
    for (uint32_t token = 0; token < slab.exact_tokens; ++token) {
      EXPECT_EQ(target.Bits({Side::kK, 0, 0, token, 7}), source.Bits({Side::kK, 0, 0, token, 7}));
      EXPECT_EQ(target.Bits({Side::kV, 0, 0, token, 7}), source.Bits({Side::kV, 0, 0, token, 7}));
    }
    return slab.exact_tokens;
  };
  EXPECT_EQ(exact_tokens(0, 0), 0u);
  EXPECT_EQ(exact_tokens(0, 4), 4u);
  EXPECT_EQ(exact_tokens(1, 4), 0u);
  EXPECT_EQ(exact_tokens(0, 20), 16u);
  EXPECT_EQ(exact_tokens(1, 20), 4u);
  EXPECT_EQ(exact_tokens(0xffffffffu, 0xffffffffu), 0u);
}

TEST(Part, ValuesThatCannotBeCodedMakeTheirLayerRaw) {
  TestRandom random(5);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       -std::numeric_limits<float>::infinity(), 65504.0f};
  for (const char* codec : {"int8", "kivi4", "k8v4"}) {
    for (const float value : bad) {
      KvBuffer source(Layout::kVllmCpu, {DType::kFloat16, 3, 2, 64, 64, 64, 64});
      source.Randomize(random);
      source.Set({Side::kV, 1, 1, 63, 63}, value);
      source.Set({Side::kV, 1, 1, 63, 0}, -std::abs(value));
      uint32_t fallbacks = 0;
      const std::vector<std::byte> part = Encode(source, {{.codec = codec}, 64, 2}, &fallbacks);
      EXPECT_EQ(fallbacks, 1u);
      const auto info = VerifyPart(part);
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(info->fidelity, Fidelity::kQuantized);
      EXPECT_EQ(info->error.LayerError(1), 0);
      EXPECT_GT(info->error.LayerError(0), 0);
      EXPECT_GT(info->error.LayerError(2), 0);
      KvBuffer target(Layout::kOdd, source.shape());
      ASSERT_TRUE(Decode(part, target, 0, 0).ok());
      source.ForEach([&](const At& at) {
        if (at.layer == 1) {
          ASSERT_EQ(target.Bits(at), source.Bits(at));
        }
      });
    }
  }
}

TEST(Part, IsExactWhenEveryLayerFellBack) {
  KvBuffer source(Layout::kContiguous, {DType::kFloat16, 2, 1, 64, 64, 64, 64});
  source.ForEach([&](const At& at) { source.SetBits(at, 0x7e00); });
  uint32_t fallbacks = 0;
  const std::vector<std::byte> part = Encode(source, {}, &fallbacks);
  EXPECT_EQ(fallbacks, 2u);
  const auto info = VerifyPart(part);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->fidelity, Fidelity::kExact);
  EXPECT_EQ(info->error.Max(), 0);
}

TEST(Part, SkippedRecordOfALossyPartIsInfiniteError) {
  TestRandom random(6);
  KvBuffer source(Layout::kContiguous, {});
  source.Randomize(random);
  EncodeOptions options{.codec = "kivi4", .record = EncodeOptions::Record::kSkip};
  auto info = VerifyPart(Encode(source, {options}));
  ASSERT_TRUE(info.ok());
  EXPECT_FALSE(info->error.measured);
  EXPECT_TRUE(std::isinf(info->error.Mean()));
  EXPECT_TRUE(std::isinf(info->error.Max()));
  EXPECT_TRUE(std::isinf(info->error.LayerError(0)));
  options.codec = "raw";
  info = VerifyPart(Encode(source, {options}));
  EXPECT_EQ(info->error.Mean(), 0);
}

TEST(Part, PayloadDoesNotDependOnTheRecord) {
  TestRandom random(6);
  KvBuffer source(Layout::kContiguous, {});
  source.Randomize(random);
  EncodeOptions options{.codec = "kivi4"};
  const std::vector<std::byte> measured = Encode(source, {options});
  options.record = EncodeOptions::Record::kSkip;
  const std::vector<std::byte> skipped = Encode(source, {options});
  const auto payload = [](const std::vector<std::byte>& part) {
    const auto info = VerifyPart(part);
    // The table is the last section of the prefix: 64 bytes for one layer.
    return std::vector<std::byte>(part.begin() + static_cast<ptrdiff_t>(info->prefix_bytes) - 64,
                                  part.end());
  };
  EXPECT_EQ(payload(measured), payload(skipped));
}

TEST(Part, MlaShapesAreStoredRaw) {
  const BufferShape shape{DType::kBFloat16, 2, 1, 576, 0, 64, 64};
  KvBuffer source(Layout::kTokenMajor, shape);
  FillBits(source);
  const std::vector<std::byte> part = Encode(source, {{.codec = "raw"}});
  KvBuffer target(Layout::kContiguous, shape);
  ASSERT_TRUE(Decode(part, target, 0, 0).ok());
  EXPECT_TRUE(target.CanaryIntact(0, 1, 0, 64));
  source.ForEach([&](const At& at) { ASSERT_EQ(target.Bits(at), source.Bits(at)); });
}

TEST(Part, LayersAreReadAloneWithThePrefix) {
  TestRandom random(8);
  const BufferShape shape{DType::kFloat16, 4, 2, 64, 64, 64, 64};
  KvBuffer source(Layout::kContiguous, shape);
  source.Randomize(random);
  const std::vector<std::byte> part = Encode(source, {{.codec = "kivi4"}, 64, 2});
  const auto whole = VerifyPart(part);
  ASSERT_TRUE(whole.ok());
  const std::vector<std::byte> prefix(part.begin(),
                                      part.begin() + static_cast<ptrdiff_t>(whole->prefix_bytes));
  const auto reader = PartReader::Open(prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::span<const std::byte> second = LayerBytes(part, reader->info(), 2);
  EXPECT_TRUE(reader->VerifyLayer(2, second).ok());
  EXPECT_EQ(reader->VerifyLayer(1, second).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(reader->VerifyLayer(4, second).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reader->VerifyLayer(2, second.first(second.size() - 64)).code(),
            absl::StatusCode::kInvalidArgument);
  KvBuffer target(Layout::kContiguous, shape);
  ASSERT_TRUE(reader->DecodeLayer(2, second, {&target.view(), 2, 0, 0}).ok());
  KvBuffer all(Layout::kContiguous, shape);
  ASSERT_TRUE(Decode(part, all, 0, 0).ok());
  const uint32_t canary = 0xa5a5;
  all.ForEach(
      [&](const At& at) { ASSERT_EQ(target.Bits(at), at.layer == 2 ? all.Bits(at) : canary); });
}

TEST(Part, RefusesViewsThatDisagree) {
  KvBuffer source(Layout::kContiguous, {DType::kFloat16, 2, 2, 64, 64, 64, 64});
  FillBits(source);
  const PartShape good = ShapeOf(source.shape(), 64, 2);
  PartBytes out(*PartBytesMax(good, "raw"));
  const auto create = [&](const PartShape& shape, const PartEncoder::Source& from,
                          std::span<std::byte> to) {
    return PartEncoder::Create(TestIdentity(), shape, from, {.codec = "raw"}, to).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const PartEncoder::Source from{&source.view(), 0, 0};
  EXPECT_EQ(create(good, from, out.out()), absl::StatusCode::kOk);
  EXPECT_EQ(create(good, from, out.out().first(out.out().size() - 1)), kInvalid);
  EXPECT_EQ(create(good, from, out.out().subspan(1)), kInvalid);
  EXPECT_EQ(create(good, {nullptr, 0, 0}, out.out()), kInvalid);
  EXPECT_EQ(create(good, {&source.view(), 1, 0}, out.out()), kInvalid);
  EXPECT_EQ(create(good, {&source.view(), 0, 1}, out.out()), kInvalid);
  EXPECT_EQ(create(good, {&source.view(), 0xffffffffu, 0xffffffffu}, out.out()), kInvalid);
  PartShape other = good;
  other.layers = 1;
  EXPECT_EQ(create(other, from, out.out()), kInvalid);
  other = good;
  other.dtype = DType::kBFloat16;
  EXPECT_EQ(create(other, from, out.out()), kInvalid);
  other = good;
  other.tokens = 0;
  EXPECT_EQ(create(other, from, out.out()), kInvalid);
  KvView device = source.view();
  device.space = MemorySpace::kCuda;
  EXPECT_EQ(create(good, {&device, 0, 0}, out.out()), kInvalid);
  EXPECT_EQ(
      PartEncoder::Create(TestIdentity(), good, from, {.codec = "zip"}, out.out()).status().code(),
      absl::StatusCode::kNotFound);
}

TEST(Part, RefusesShapesBeyondTheFormat) {
  const PartShape good{DType::kFloat16, 1, 1, 64, 64, 64};
  const auto code = [](const PartShape& shape) {
    return PartBytesMax(shape, "kivi4").status().code();
  };
  EXPECT_EQ(code(good), absl::StatusCode::kOk);
  PartShape bad = good;
  bad.tokens = format::kTokensMax;
  bad.heads = format::kHeadsMax;
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);  // a layer above 4 GiB
  for (uint32_t PartShape::*field : {&PartShape::layers, &PartShape::heads, &PartShape::k_head_dim,
                                     &PartShape::v_head_dim, &PartShape::tokens}) {
    bad = good;
    bad.*field = 0xffffffffu;
    EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  }
  bad = good;
  bad.dtype = DType::kFloat8E4M3;
  EXPECT_EQ(code(bad), absl::StatusCode::kUnimplemented);
}

TEST(Part, DecodeRefusesTargetsThatDisagreeAndWritesNothing) {
  KvBuffer source(Layout::kContiguous, {DType::kFloat8E4M3, 1, 2, 64, 64, 64, 64});
  FillBits(source);
  const std::vector<std::byte> part = Encode(source, {{.codec = "raw"}, 64, 2});
  const auto reader = PartReader::Open(part);
  ASSERT_TRUE(reader.ok());
  const auto layer = LayerBytes(part, reader->info(), 0);
  const BufferShape shapes[] = {{DType::kFloat8E4M3, 1, 2, 64, 32, 64, 64},   // head size
                                {DType::kFloat8E4M3, 1, 1, 64, 64, 64, 64},   // heads
                                {DType::kFloat8E4M3, 1, 2, 64, 64, 63, 64}};  // tokens
  for (const BufferShape& shape : shapes) {
    KvBuffer target(Layout::kContiguous, shape);
    EXPECT_EQ(reader->DecodeLayer(0, layer, {&target.view(), 0, 0, 0}).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(target.CanaryIntact(0, 0, 0, 0));
  }
  KvBuffer target(Layout::kContiguous, source.shape());
  EXPECT_FALSE(reader->DecodeLayer(0, layer, {&target.view(), 1, 0, 0}).ok());
  EXPECT_FALSE(reader->DecodeLayer(1, layer, {&target.view(), 0, 0, 0}).ok());
  EXPECT_FALSE(reader->DecodeLayer(0, layer.first(64), {&target.view(), 0, 0, 0}).ok());
  EXPECT_FALSE(reader->DecodeLayer(0, layer, {nullptr, 0, 0, 0}).ok());
  EXPECT_TRUE(target.CanaryIntact(0, 0, 0, 0));
}

}  // namespace
}  // namespace tokura::kernels
