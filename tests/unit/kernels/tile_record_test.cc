#include "kernels/tile_record.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_features.h"
#include "kernels/part.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

// The same measured by tile units and by loops.
class TileRecord : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsaAvailable(Isa::kAmx)) {
      GTEST_SKIP() << "this machine has no tile units";
    }
  }
  void TearDown() override { ASSERT_TRUE(SetIsa(BestIsa()).ok()); }

  static PartInfo EncodeIn(Isa isa, const KvBuffer& source, const EncodeArguments& arguments,
                           std::vector<std::byte>* part) {
    EXPECT_TRUE(SetIsa(isa).ok());
    *part = Encode(source, arguments);
    return *VerifyPart(*part);
  }

  // Codes are equal, records agree within `tolerance`.
  static void Compare(const KvBuffer& source, const EncodeArguments& arguments, double tolerance) {
    std::vector<std::byte> one;
    std::vector<std::byte> other;
    const PartInfo loops = EncodeIn(Isa::kAvx512, source, arguments, &one);
    const PartInfo tiles = EncodeIn(Isa::kAmx, source, arguments, &other);
    ASSERT_EQ(one.size(), other.size());
    const size_t codes = loops.layer_offset.front();
    EXPECT_TRUE(std::equal(one.begin() + codes, one.end(), other.begin() + codes));
    ASSERT_EQ(tiles.error.layers.size(), loops.error.layers.size());
    EXPECT_EQ(tiles.error.queries, loops.error.queries);
    for (size_t layer = 0; layer < loops.error.layers.size(); ++layer) {
      const ErrorRecord::Layer& a = loops.error.layers[layer];
      const ErrorRecord::Layer& b = tiles.error.layers[layer];
      EXPECT_NEAR(b.error / a.error, 1, tolerance) << layer;
      EXPECT_NEAR(b.size / a.size, 1, tolerance) << layer;
    }
  }
};

TEST_F(TileRecord, AgreesForEveryCodecTypeAndLayout) {
  TestRandom random(31);
  for (const char* codec :
       {"int8", "kivi4", "kivi2", "fp8", "int4", "raw+kivi4", "kivi4+raw", "int8+kivi2"}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(testing::Message()
                     << codec << " " << DTypeName(dtype) << " " << static_cast<int>(layout));
        KvBuffer source(layout, {dtype, 2, 2, 64, 64, 64, 64});
        source.Randomize(random);
        Compare(source, {{.codec = codec, .record_queries = 40}, 64, 2}, 0.02);
      }
    }
  }
}

// Sizes that fill no tile, and those of real models.
TEST_F(TileRecord, AgreesForEverySize) {
  struct Size {
    uint32_t k_dim;
    uint32_t v_dim;
    uint32_t tokens;
    uint32_t page_tokens;
  };
  TestRandom random(32);
  for (const Size& size :
       {Size{64, 64, 16, 16}, Size{80, 80, 64, 64}, Size{96, 96, 48, 16}, Size{128, 128, 64, 128},
        Size{192, 128, 33, 64}, Size{256, 256, 256, 256}, Size{30, 50, 61, 61},
        Size{257, 18, 33, 64}, Size{6, 3, 20, 7}, Size{576, 0, 64, 64}, Size{40, 0, 37, 16}}) {
    for (const uint32_t queries : {9u, 16u, 17u, 33u, 64u}) {
      SCOPED_TRACE(testing::Message()
                   << size.k_dim << " " << size.v_dim << " " << size.tokens << " " << queries);
      KvBuffer source(Layout::kTokenMajor, {DType::kFloat16, 1, 2, size.k_dim, size.v_dim,
                                            size.tokens, size.page_tokens});
      source.Randomize(random);
      Compare(source,
              {{.codec = "int8", .sink_tokens = queries % 5, .record_queries = queries},
               size.tokens,
               2},
              size.k_dim < 16 ? 0.05 : 0.02);
    }
  }
}

TEST_F(TileRecord, LeavesWhatIsBeyondItsRangeToTheLoops) {
  TestRandom random(33);
  // Outputs whose squares are beyond fp32, errors whose squares are below its normal range, and
  // values that tile units take for zero.
  for (const float scale : {1e25f, 1e-17f, 1e-20f, 1e-41f}) {
    KvBuffer source(Layout::kContiguous, {DType::kFloat32, 1, 1, 64, 64, 64, 64});
    source.Randomize(random);
    source.ForEach([&](const At& at) {
      if (at.side == Side::kV) {
        source.Set(at, source.Value(at) * scale);
      }
    });
    std::vector<std::byte> part;
    const EncodeArguments arguments{{.codec = "int8", .record_queries = 32}, 64, 1};
    const PartInfo loops = EncodeIn(Isa::kAvx512, source, arguments, &part);
    const PartInfo tiles = EncodeIn(Isa::kAmx, source, arguments, &part);
    EXPECT_EQ(loops.error.layers[0].error, tiles.error.layers[0].error) << scale;
    EXPECT_EQ(loops.error.layers[0].size, tiles.error.layers[0].size) << scale;
    EXPECT_GT(tiles.error.LayerError(0), 0) << scale;
  }
}

TEST_F(TileRecord, MeasuresMoreQueriesUnlessSomebodySays) {
  TestRandom random(35);
  KvBuffer source(Layout::kContiguous, {DType::kFloat16, 1, 1, 64, 64, 128, 128});
  source.Randomize(random);
  std::vector<std::byte> part;
  const EncodeArguments asked{{.codec = "int8", .record_queries = 30}, 128, 1};
  const EncodeArguments default_arguments{{.codec = "int8"}, 128, 1};
  EXPECT_EQ(EncodeIn(Isa::kAmx, source, asked, &part).error.queries, 30u);
  EXPECT_EQ(EncodeIn(Isa::kAmx, source, default_arguments, &part).error.queries,
            kTileRecordQueries);
  EXPECT_EQ(EncodeIn(Isa::kAvx512, source, default_arguments, &part).error.queries, kRecordQueries);
}

}  // namespace
}  // namespace tokura::kernels
