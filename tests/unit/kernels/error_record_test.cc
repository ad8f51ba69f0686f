#include "kernels/error_record.h"

#include <cmath>
#include <iostream>
#include <vector>

#include <gtest/gtest.h>

#include "coded_side.h"
#include "kernels/attention.h"
#include "kernels/codec.h"
#include "kernels/cpu_features.h"
#include "kernels/exemplars.h"
#include "kernels/part.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

// Elements of one layer and head of a buffer, tokens from `first`, as [tokens, dim].
std::vector<float> Rows(const KvBuffer& buffer, Side side, uint32_t head, uint32_t first) {
  std::vector<float> out;
  buffer.ForEach([&](const At& at) {
    if (at.side == side && at.layer == 0 && at.head == head && at.token >= first) {
      out.push_back(buffer.Value(at));
    }
  });
  return out;
}

// The definition, in double precision, from what a reader decodes.
AttentionSums Reference(const KvBuffer& source, const KvBuffer& decoded, uint32_t sinks,
                        uint32_t queries) {
  const BufferShape& s = source.shape();
  const uint32_t n = s.tokens - sinks;
  const uint32_t count = std::min(queries, n);
  AttentionSums sums;
  for (uint32_t head = 0; head < s.heads; ++head) {
    const std::vector<float> k = Rows(source, Side::kK, head, sinks);
    const std::vector<float> v = Rows(source, Side::kV, head, sinks);
    const std::vector<float> k_decoded = Rows(decoded, Side::kK, head, sinks);
    const std::vector<float> v_decoded = Rows(decoded, Side::kV, head, sinks);
    std::vector<float> q;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t token = count == 1 ? n / 2 : i * (n - 1) / (count - 1);
      q.insert(q.end(), k.begin() + token * s.k_dim, k.begin() + (token + 1) * s.k_dim);
    }
    const AttentionShape shape{n, s.k_dim, s.v_dim, 1 / std::sqrt(s.k_dim), 0, 0};
    sums += AttentionError(shape, {k, v}, {k_decoded, v_decoded}, {q, {}});
  }
  return sums;
}

TEST(ErrorRecord, IsTheDefinitionWithTheBlocksOwnKeys) {
  TestRandom random(10);
  for (const char* codec : {"int8", "kivi4", "kivi4+raw", "raw+kivi4"}) {
    for (const uint32_t queries : {1u, 16u, 200u}) {
      for (const uint32_t sinks : {0u, 4u}) {
        KvBuffer source(Layout::kTokenMajor, {DType::kFloat16, 1, 2, 64, 80, 64, 64});
        source.Randomize(random);
        const std::vector<std::byte> part = Encode(
            source, {{.codec = codec, .sink_tokens = sinks, .record_queries = queries}, 64, 2});
        BufferShape wide = source.shape();
        wide.dtype = DType::kFloat32;
        KvBuffer decoded(Layout::kContiguous, wide);
        ASSERT_TRUE(Decode(part, decoded, 0, 0).ok());
        const AttentionSums expected = Reference(source, decoded, sinks, queries);
        const auto info = VerifyPart(part);
        ASSERT_TRUE(info.ok());
        const ErrorRecord& record = info->error;
        EXPECT_TRUE(record.proxy());
        EXPECT_FALSE(record.composed);
        EXPECT_EQ(record.queries, queries);
        ASSERT_EQ(record.layers.size(), 1u);
        EXPECT_NEAR(record.layers[0].error / expected.error, 1, 0.01) << codec << queries;
        EXPECT_NEAR(record.layers[0].size / expected.size, 1, 0.003);
        EXPECT_NEAR(record.Mean(), expected.Relative(), expected.Relative() * 0.01);
      }
    }
  }
}

// Sizes that fill no quad, tile or vector, in every instruction set.
TEST(ErrorRecord, IsTheDefinitionForOddSizes) {
  struct Size {
    uint32_t k_dim;
    uint32_t v_dim;
    uint32_t tokens;
  };
  for (const Isa isa : kIsas) {
    if (!SetIsa(isa).ok()) {
      std::cout << "not run here: " << IsaName(isa) << '\n';
      continue;
    }
    TestRandom random(15);
    for (const Size& size : {Size{30, 50, 61}, Size{257, 18, 33}, Size{6, 3, 2}}) {
      KvBuffer source(Layout::kTokenMajor,
                      {DType::kFloat16, 1, 2, size.k_dim, size.v_dim, size.tokens, size.tokens});
      source.Randomize(random);
      const std::vector<std::byte> part = Encode(
          source, {{.codec = "kivi4", .sink_tokens = 0, .record_queries = 5}, size.tokens, 2});
      BufferShape wide = source.shape();
      wide.dtype = DType::kFloat32;
      KvBuffer decoded(Layout::kContiguous, wide);
      ASSERT_TRUE(Decode(part, decoded, 0, 0).ok());
      const AttentionSums expected = Reference(source, decoded, 0, 5);
      const ErrorRecord record = VerifyPart(part)->error;
      EXPECT_NEAR(record.layers[0].error / expected.error, 1, 0.01) << size.k_dim;
      EXPECT_NEAR(record.layers[0].size / expected.size, 1, 0.001) << size.k_dim;
    }
  }
  ASSERT_TRUE(SetIsa(BestIsa()).ok());
}

// `values` [tokens, dim] as a page of a view, and their codes.
RecordSide DenseSide(const SideTask& task, const std::vector<float>& values,
                     const CodedSide* maybe_coded) {
  static constexpr uint32_t kPage = 0;
  RecordSide side;
  side.access.base = reinterpret_cast<std::byte*>(const_cast<float*>(values.data()));
  side.access.page_table = &kPage;
  side.access.page_tokens = task.shape.tokens;
  side.access.token_stride = static_cast<int64_t>(task.shape.dim * sizeof(float));
  side.access.channel_stride = sizeof(float);
  side.access.dim = task.shape.dim;
  side.access.dtype = DType::kFloat32;
  side.task = task;
  side.coded = maybe_coded == nullptr ? nullptr : maybe_coded->bytes.data();
  return side;
}

TEST(ErrorRecord, ExemplarsAreTurnedToStandBehindTheBlock) {
  constexpr uint32_t kTokens = 40;
  constexpr uint32_t kDim = 24;
  constexpr uint32_t kExemplars = 22;  // more than one tile of AMX
  TestRandom random(16);
  const auto numbers = [&](size_t count) {
    std::vector<float> out(count);
    for (float& x : out) {
      x = Normal(random);
    }
    return out;
  };
  const std::vector<float> k = numbers(size_t{kTokens} * kDim);
  const std::vector<float> v = numbers(size_t{kTokens} * kDim);
  const SideTask k_task{FindCodec("kivi4")->k, {kTokens, kDim, DType::kFloat32}, {}};
  const SideTask v_task{FindCodec("kivi4")->v, {kTokens, kDim, DType::kFloat32}, {}};
  const CodedSide k_coded = CodeSide(k_task, k);
  const CodedSide v_coded = CodeSide(v_task, v);
  const RecordInput input{DenseSide(k_task, k, &k_coded), DenseSide(v_task, v, &v_coded), kDim};
  Exemplars exemplars;
  exemplars.k_dim = kDim;
  std::vector<float> tiles(ExemplarTileFloats(kExemplars, kDim));
  for (uint32_t i = 0; i < kExemplars; ++i) {
    for (uint32_t c = 0; c < kDim; ++c) {
      tiles[ExemplarTileIndex(i, c, kDim)] = Normal(random) / 4;
    }
  }
  exemplars.tiles = tiles.data();
  RecordMeter meter;
  for (const RopeShape& rope :
       {RopeShape{}, RopeShape{RopeKind::kHalfSplit, 0, 24}, RopeShape{RopeKind::kHalfSplit, 8, 16},
        RopeShape{RopeKind::kHalfSplit, 4, 12}, RopeShape{RopeKind::kInterleaved, 0, 24}}) {
    const std::vector<uint64_t> turns = TurnsOf(100, rope.dims);
    exemplars.rope = rope;
    exemplars.turns = turns;
    for (const Isa isa : kIsas) {
      if (!SetIsa(isa).ok()) {
        std::cout << "not run here: " << IsaName(isa) << '\n';
        continue;
      }
      for (const uint32_t count : {6u, kExemplars}) {
        exemplars.count = count;
        for (const uint64_t last : {uint64_t{0}, uint64_t{3}, uint64_t{100000}}) {
          std::vector<float> rows;
          AppendExemplarRows(exemplars, last, &rows);
          const AttentionSums expected =
              AttentionError({kTokens, kDim, kDim, 1, 0, 0}, {k, v},
                             {k_coded.decoded, v_coded.decoded}, {rows, {}});
          const AttentionSums found = meter.MeasureExemplars(input, exemplars, last);
          const bool by_tiles = isa == Isa::kAmx && count == kExemplars;
          EXPECT_NEAR(found.error / expected.error, 1, by_tiles ? 5e-3 : 1e-3)
              << IsaName(isa) << " " << rope.dims << " " << count << " " << last;
          EXPECT_NEAR(found.size / expected.size, 1, by_tiles ? 5e-3 : 1e-4)
              << IsaName(isa) << " " << rope.dims << " " << count << " " << last;
        }
      }
    }
  }
  ASSERT_TRUE(SetIsa(BestIsa()).ok());
}

TEST(ErrorRecord, OrdersTheCodecs) {
  TestRandom random(11);
  KvBuffer source(Layout::kContiguous, {});
  source.Randomize(random);
  const double int8 = VerifyPart(Encode(source, {{.codec = "int8"}}))->error.Mean();
  const double mixed = VerifyPart(Encode(source, {{.codec = "int8+kivi4"}}))->error.Mean();
  const double kivi4 = VerifyPart(Encode(source, {{.codec = "kivi4"}}))->error.Mean();
  EXPECT_GT(int8, 0);
  EXPECT_LT(int8, mixed);
  EXPECT_LT(mixed, kivi4);
  EXPECT_LT(kivi4, 0.3);
}

TEST(ErrorRecord, BlocksOfSinksAloneHaveNoError) {
  TestRandom random(12);
  KvBuffer source(Layout::kContiguous, {DType::kFloat16, 2, 1, 64, 64, 3, 3});
  source.Randomize(random);
  const auto info = VerifyPart(Encode(source, {{.codec = "kivi4"}, 3}));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->error.Max(), 0);
  EXPECT_EQ(info->error.layers[0].size, 0);
}

TEST(ErrorRecord, IsInfiniteWhereValuesAreTooLargeToMeasure) {
  TestRandom random(13);
  KvBuffer source(Layout::kContiguous, {DType::kBFloat16, 2, 1, 64, 64, 64, 64});
  source.Randomize(random);
  for (uint32_t token = 0; token < 64; ++token) {
    source.Set({Side::kK, 1, 0, token, 5}, static_cast<float>(token) * 1e30f);
  }
  for (const Isa isa : kIsas) {
    if (!SetIsa(isa).ok()) {
      std::cout << "not run here: " << IsaName(isa) << '\n';
      continue;
    }
    const auto info = VerifyPart(Encode(source, {{.codec = "kivi4"}}));
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_LT(info->error.LayerError(0), 1) << IsaName(isa);
    EXPECT_TRUE(std::isinf(info->error.LayerError(1))) << IsaName(isa);
    EXPECT_TRUE(std::isinf(info->error.Mean())) << IsaName(isa);
  }
  ASSERT_TRUE(SetIsa(BestIsa()).ok());
}

TEST(ErrorRecord, MeanAndMaximumAreOverLayers) {
  ErrorRecord record;
  record.layers = {{1, 4}, {0, 0}, {9, 4}};
  EXPECT_EQ(record.LayerError(0), 0.5);
  EXPECT_EQ(record.LayerError(1), 0);
  EXPECT_NEAR(record.Mean(), 2.0 / 3, 1e-12);
  EXPECT_EQ(record.Max(), 1.5);
  EXPECT_EQ(ErrorRecord{}.Mean(), 0);
}

}  // namespace
}  // namespace tokura::kernels
