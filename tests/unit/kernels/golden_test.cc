// Pins the bytes of the format. The files in tests/golden/kernels are whole parts. When the format
// changes on purpose, raise the revision and write them again, at the repository's root, with
//   TOKURA_SOURCE_DIR=. BUILD/tests/unit_kernels --gtest_also_run_disabled_tests
//       --gtest_filter=Golden.DISABLED_WriteFiles

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "kernels/part.h"
#include "kv_buffer.h"
#include "test_profile.h"

namespace tokura::kernels {
namespace {

struct Geometry {
  uint32_t layers;
  uint32_t heads;
  uint32_t tokens;
  uint32_t k_dim;
  uint32_t v_dim;
};
constexpr Geometry kSmall{2, 2, 8, 16, 12};
constexpr Geometry kLarge{1, 1, 70, 80, 136};  // more than one group on every axis
constexpr Geometry kLatent{1, 1, 6, 208, 0};

struct Example {
  const char* file;
  const char* codec;
  DType dtype;
  uint32_t block_position;
  Geometry geometry = kSmall;
  const char* codec_of_layer_1 = nullptr;
};

constexpr Example kExamples[] = {
    {"raw_float16", "raw", DType::kFloat16, 0},
    {"raw_float32", "raw", DType::kFloat32, 0},
    {"raw_bfloat16", "raw", DType::kBFloat16, 0},
    {"int8_float16", "int8", DType::kFloat16, 0},
    {"int8_bfloat16", "int8", DType::kBFloat16, 1},
    {"int8_float32", "int8", DType::kFloat32, 1},
    {"kivi4_float16", "kivi4", DType::kFloat16, 0},
    {"kivi4_bfloat16", "kivi4", DType::kBFloat16, 1},
    {"kivi4_float32", "kivi4", DType::kFloat32, 1},
    {"k8v4_float16", "k8v4", DType::kFloat16, 0},
    {"raw_float8", "raw", DType::kFloat8E4M3, 0},
    {"fp8_float8", "fp8", DType::kFloat8E4M3, 0},
    {"fp8_float16", "fp8", DType::kFloat16, 1},
    {"fp8_float32", "fp8", DType::kFloat32, 0, kLarge},
    {"int4_float16", "int4", DType::kFloat16, 0, kLarge},
    {"kivi4_large_bfloat16", "kivi4", DType::kBFloat16, 0, kLarge},
    {"kivi2_float16", "kivi2", DType::kFloat16, 0, kLarge},
    {"kivi_k2v4_bfloat16", "kivi_k2v4", DType::kBFloat16, 0},
    {"kivi_k4v2_float32", "kivi_k4v2", DType::kFloat32, 0},
    {"atom4_bfloat16", "atom4", DType::kBFloat16, 0, kLarge},
    {"atom4_float16", "atom4", DType::kFloat16, 1},
    {"qserve4_float16", "qserve4", DType::kFloat16, 0, kLarge},
    {"qserve4_float32", "qserve4", DType::kFloat32, 1},
    {"turbo4_float16", "turbo4", DType::kFloat16, 0, kLarge},
    {"turbo3_bfloat16", "turbo3", DType::kBFloat16, 1},
    {"kivi4r_float16", "kivi4r", DType::kFloat16, 0, kLarge},
    {"kivi3r_bfloat16", "kivi3r", DType::kBFloat16, 0},
    {"kivi4rv_float16", "kivi4rv", DType::kFloat16, 0, kLarge},
    {"kivi3rv_float32", "kivi3rv", DType::kFloat32, 1},
    {"mla_fp8_bfloat16", "mla_fp8", DType::kBFloat16, 0, kLatent},
    {"kivi4_int8_float16", "kivi4", DType::kFloat16, 0, kSmall, "int8"},
    {"kivi3_bfloat16", "kivi3", DType::kBFloat16, 0, kLarge},
};

// Element values are ((i · 37) mod 101 − 50) / 8 for the i-th element in the order (layer, head, K
// then V, token, channel), but K channel 3 is the constant 1.5, V of token 5 is 0, and V (0, 0, 6,
// 1) is infinite in the examples of block 1, so that layer 0 falls back to raw there. All are exact
// in every dtype but float8 e4m3.
KvBuffer Values(const Example& example) {
  const Geometry& g = example.geometry;
  KvBuffer buffer(Layout::kContiguous,
                  {example.dtype, g.layers, g.heads, g.k_dim, g.v_dim, g.tokens, g.tokens});
  uint32_t i = 0;
  for (uint32_t layer = 0; layer < g.layers; ++layer) {
    for (uint32_t head = 0; head < g.heads; ++head) {
      for (const Side side : {Side::kK, Side::kV}) {
        for (uint32_t token = 0; token < g.tokens; ++token) {
          for (uint32_t channel = 0; channel < (side == Side::kK ? g.k_dim : g.v_dim);
               ++channel, ++i) {
            float value = (static_cast<float>(i * 37 % 101) - 50.0f) / 8.0f;
            if (side == Side::kK && channel == 3) {
              value = 1.5f;
            } else if (side == Side::kV && token == 5) {
              value = 0;
            }
            buffer.Set({side, layer, head, token, channel}, value);
          }
        }
      }
    }
  }
  if (example.block_position == 1) {
    buffer.Set({Side::kV, 0, 0, 6, 1}, HUGE_VALF);
  }
  return buffer;
}

// Without the measurement, which may differ between implementations.
std::vector<std::byte> EncodeExample(const Example& example) {
  const TestProfiles profiles(example.geometry.k_dim, example.geometry.v_dim);
  EncodeOptions options;
  options.codec = example.codec;
  options.sink_tokens = 3;
  options.block_position = example.block_position;
  options.record = EncodeOptions::Record::kSkip;
  options.profiles = &profiles;
  options.profile = TestProfile::kId;
  if (example.codec_of_layer_1 != nullptr) {
    options.layer_codecs = {{1, example.codec_of_layer_1}};
  }
  return Encode(Values(example), {options, example.geometry.tokens, example.geometry.heads});
}

std::string GoldenDirectory() {
  const char* root = std::getenv("TOKURA_SOURCE_DIR");
  EXPECT_NE(root, nullptr) << "run by ctest, or set TOKURA_SOURCE_DIR to the repository";
  return std::string(root == nullptr ? "." : root) + "/tests/golden";
}

std::string PathOf(const Example& example) {
  return GoldenDirectory() + "/kernels/" + example.file + ".part";
}

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

TEST(Golden, EncodersGiveTheseBytes) {
  for (const Example& example : kExamples) {
    EXPECT_EQ(EncodeExample(example), ReadFile(PathOf(example))) << example.file;
  }
}

TEST(Golden, ReadersUnderstandThem) {
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.file);
    const std::vector<std::byte> part = ReadFile(PathOf(example));
    const PartIdentity identity = TestIdentity();
    const auto info = VerifyPart(part, &identity);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->codec, example.codec);
    const KvBuffer values = Values(example);
    KvBuffer decoded(Layout::kContiguous, values.shape());
    const TestProfiles profiles(example.geometry.k_dim, example.geometry.v_dim);
    ASSERT_TRUE(Decode(part, decoded, 0, 0, &profiles).ok());
    values.ForEach([&](const At& at) {
      const bool exact = info->fidelity == Fidelity::kExact ||
                         (example.block_position == 0 && at.token < 3) ||
                         (example.block_position == 1 && at.layer == 0);
      if (exact) {
        ASSERT_EQ(decoded.Bits(at), values.Bits(at));
      } else {
        // Values span 12.5; the coarsest codecs have 3 steps, or rotate errors.
        const bool coarse = std::string(example.codec).find('2') != std::string::npos ||
                            std::string(example.codec).find("turbo") == 0 ||
                            std::string(example.codec).find('r') != std::string::npos;
        ASSERT_NEAR(decoded.Value(at), values.Value(at), coarse ? 6.0 : 12.5 / 7 / 2 * 1.01);
      }
    });
  }
}

// The script shares no code with kernels/: it was written from FORMAT.md.
TEST(Golden, ASecondImplementationGivesTheseBytes) {
  if (std::system("python3 -c 'import struct' > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no python3";
  }
  EXPECT_EQ(std::system(("python3 '" + GoldenDirectory() + "/kernels_reference.py'").c_str()), 0);
}

TEST(Golden, DISABLED_WriteFiles) {
  for (const Example& example : kExamples) {
    const std::vector<std::byte> part = EncodeExample(example);
    std::ofstream out(PathOf(example), std::ios::binary);
    out.write(reinterpret_cast<const char*>(part.data()),
              static_cast<std::streamsize>(part.size()));
    ASSERT_TRUE(out.good());
  }
}

}  // namespace
}  // namespace tokura::kernels
