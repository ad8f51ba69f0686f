#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/bench_codec_bed.h"
#include "cli/kvcap.h"
#include "cli/local_codec.h"
#include "cli/paths.h"
#include "common/status_macros.h"
#include "kernels/codec.h"
#include "kernels/cpu_features.h"
#include "kernels/part.h"

namespace tokura::cli {
namespace {

constexpr uint32_t kTokens = 64;

// A view of everything that was captured.
kernels::KvView ViewOf(Capture* capture) {
  std::vector<kernels::KvLayer> layers;
  const size_t elements = capture->kv_heads * capture->HeadElements();
  for (size_t layer = 0; layer < capture->layers.size(); ++layer) {
    layers.push_back({reinterpret_cast<std::byte*>(capture->k.data() + layer * elements),
                      reinterpret_cast<std::byte*>(capture->v.data() + layer * elements)});
  }
  return kernels::ContiguousView(DType::kFloat16, capture->kv_heads, capture->head_dim,
                                 capture->tokens, std::move(layers));
}

class CapturedKv : public testing::TestWithParam<kernels::Isa> {
 protected:
  void SetUp() override {
    if (!kernels::IsaAvailable(GetParam())) {
      GTEST_SKIP() << "NOT TESTED HERE: this machine does not run " << kernels::IsaName(GetParam());
    }
    auto capture = ReadSequence(*DemoDataDirectory("") + "/request_1.kvcap",
                                *DemoDataDirectory("") + "/prefix.kvcap");
    ASSERT_TRUE(capture.ok()) << capture.status();
    capture_ = *std::move(capture);
    view_ = ViewOf(&capture_);
    shape_.dtype = DType::kFloat16;
    shape_.layers = static_cast<uint32_t>(capture_.layers.size());
    shape_.heads = capture_.kv_heads;
    shape_.k_head_dim = capture_.head_dim;
    shape_.v_head_dim = capture_.head_dim;
    shape_.tokens = kTokens;
  }
  void TearDown() override { ASSERT_TRUE(kernels::SetIsa(kernels::BestIsa()).ok()); }

  // One block in the instruction set `isa`, record included.
  absl::StatusOr<std::vector<std::byte>> Encode(kernels::Isa isa, std::string_view codec,
                                                uint32_t block, const BedProfile& profile) {
    TOKURA_RETURN_IF_ERROR(kernels::SetIsa(isa));
    kernels::EncodeOptions options;
    options.codec = std::string(codec);
    options.block_position = block;
    options.record_queries = kernels::kExemplarsMax;
    options.profiles = &profile;
    options.profile = profile.id();
    TOKURA_ASSIGN_OR_RETURN(const size_t bytes, kernels::PartBytesMax(shape_, options));
    const PartBuffer out(bytes);
    TOKURA_ASSIGN_OR_RETURN(
        kernels::PartEncoder encoder,
        kernels::PartEncoder::Create(kernels::PartIdentity{}, shape_,
                                     {.view = &view_, .first_token = block * kTokens}, options,
                                     out.bytes()));
    while (!encoder.done()) {
      encoder.EncodeLayer();
    }
    const auto part = out.bytes().first(encoder.Finish());
    return std::vector<std::byte>(part.begin(), part.end());
  }

  // All layers, as floats.
  absl::StatusOr<std::vector<float>> Decode(kernels::Isa isa, std::span<const std::byte> part,
                                            const BedProfile& profile) {
    TOKURA_RETURN_IF_ERROR(kernels::SetIsa(isa));
    TOKURA_ASSIGN_OR_RETURN(const kernels::PartReader reader,
                            kernels::PartReader::Open(part, &profile));
    const size_t side = size_t{shape_.heads} * kTokens * shape_.k_head_dim;
    std::vector<float> values(2 * side * shape_.layers);
    std::vector<kernels::KvLayer> layers;
    for (size_t layer = 0; layer < shape_.layers; ++layer) {
      float* k = values.data() + 2 * side * layer;
      layers.push_back({reinterpret_cast<std::byte*>(k), reinterpret_cast<std::byte*>(k + side)});
    }
    const kernels::KvView view = kernels::ContiguousView(
        DType::kFloat32, shape_.heads, shape_.k_head_dim, kTokens, std::move(layers));
    const std::vector<size_t>& offset = reader.info().layer_offset;
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      const auto stored = part.subspan(offset[layer], offset[layer + 1] - offset[layer]);
      TOKURA_RETURN_IF_ERROR(reader.DecodeLayer(layer, stored, {&view, layer, 0, 0}));
    }
    return values;
  }

  Capture capture_;
  kernels::KvView view_;
  kernels::PartShape shape_;
};
INSTANTIATE_TEST_SUITE_P(Isas, CapturedKv,
                         testing::Values(kernels::Isa::kAvx2, kernels::Isa::kAvx512),
                         [](const auto& info) {
                           return std::string(kernels::IsaName(info.param));
                         });

TEST_P(CapturedKv, HasTheSamePartsInEveryInstructionSet) {
  const BedProfile profile(shape_.k_head_dim, shape_.v_head_dim);
  for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
    for (const uint32_t block : {0u, 2u}) {  // with sinks and without
      const auto plain = Encode(kernels::Isa::kScalar, preset.name, block, profile);
      ASSERT_TRUE(plain.ok()) << preset.name << ": " << plain.status();
      const auto part = Encode(GetParam(), preset.name, block, profile);
      ASSERT_TRUE(part.ok()) << part.status();
      ASSERT_EQ(*part, *plain) << preset.name;
      const auto plain_values = Decode(kernels::Isa::kScalar, *plain, profile);
      ASSERT_TRUE(plain_values.ok()) << plain_values.status();
      const auto values = Decode(GetParam(), *plain, profile);
      ASSERT_TRUE(values.ok()) << values.status();
      ASSERT_EQ(*values, *plain_values) << preset.name;
    }
  }
}

using CapturedKvByTiles = CapturedKv;
INSTANTIATE_TEST_SUITE_P(Isas, CapturedKvByTiles, testing::Values(kernels::Isa::kAmx));

TEST_P(CapturedKvByTiles, HasTheSameCodesAndRecordsThatAgree) {
  const BedProfile profile(shape_.k_head_dim, shape_.v_head_dim);
  double furthest = 0;
  for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
    for (const uint32_t block : {0u, 2u}) {
      const auto loops = Encode(kernels::Isa::kAvx512, preset.name, block, profile);
      ASSERT_TRUE(loops.ok()) << preset.name << ": " << loops.status();
      const auto tiles = Encode(kernels::Isa::kAmx, preset.name, block, profile);
      ASSERT_TRUE(tiles.ok()) << tiles.status();
      const auto expected = kernels::VerifyPart(*loops);
      const auto found = kernels::VerifyPart(*tiles);
      ASSERT_TRUE(expected.ok() && found.ok()) << found.status();
      const auto codes = static_cast<ptrdiff_t>(expected->layer_offset.front());
      ASSERT_TRUE(
          std::equal(loops->begin() + codes, loops->end(), tiles->begin() + codes, tiles->end()))
          << preset.name;
      for (size_t layer = 0; layer < expected->error.layers.size(); ++layer) {
        const double error = expected->error.LayerError(layer);
        const double difference = error == 0 ? found->error.LayerError(layer)
                                             : found->error.LayerError(layer) / error - 1;
        ASSERT_LT(std::abs(difference), 0.01) << preset.name << " " << block << " " << layer;
        furthest = std::max(furthest, std::abs(difference));
      }
    }
  }
  std::printf("records by tile units and by loops: %.2f %% apart at most\n", 100 * furthest);
}

}  // namespace
}  // namespace tokura::cli
