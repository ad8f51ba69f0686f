#include "kernels/part.h"


#include <gtest/gtest.h>

#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

TEST(Part, RawComesBackBitForBitWhateverTheLayout) {
  TestRandom random(1);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::byte> first;
    for (const Layout layout : kLayouts) {
      const BufferShape shape{dtype, 2, 3, 64, 80, 192, 128};
      KvBuffer source(layout, shape);
      uint32_t bits = 12345;
      source.ForEach([&](const At& at) {
        bits = bits * 1664525u + 1013904223u;
        source.SetBits(at, bits >> (32 - 8 * DTypeBytes(dtype)));
      });
      EncodeArguments arguments{{.codec = "raw"}, 64, 2, 1, 96};
      const std::vector<std::byte> part = Encode(source, arguments);
      if (first.empty()) {
        first = part;
      }
      EXPECT_EQ(part, first);
      for (const Layout target_layout : kLayouts) {
        KvBuffer target(target_layout, shape);
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
}

TEST(Part, LossyCodecsStayNearTheValues) {
  TestRandom random(2);
  for (const char* codec : {"int8", "kivi4", "int8+kivi4", "raw+kivi4"}) {
    KvBuffer source(Layout::kVllmCpu, {});
    source.Randomize(random);
    const std::vector<std::byte> part = Encode(source, {{.codec = codec}});
    const auto info = VerifyPart(part);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->codec, codec);
    EXPECT_EQ(info->fidelity, Fidelity::kQuantized);
    EXPECT_GT(info->error.Mean(), 0.0001);
    EXPECT_LT(info->error.Mean(), 0.3);
    KvBuffer target(Layout::kContiguous, {});
    ASSERT_TRUE(Decode(part, target, 0, 0).ok());
    source.ForEach([&](const At& at) {
      if (at.token < 4) {
        ASSERT_EQ(target.Bits(at), source.Bits(at));
      }
      ASSERT_NEAR(target.Value(at), source.Value(at), 0.5) << codec;
    });
  }
}

}  // namespace
}  // namespace tokura::kernels
