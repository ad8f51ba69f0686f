#include "kernels/cpu_features.h"

#include <string>

#include <gtest/gtest.h>

namespace tokura::kernels {
namespace {

TEST(CpuFeatures, NamesRoundTrip) {
  for (const Isa isa : kIsas) {
    EXPECT_EQ(*ParseIsa(IsaName(isa)), isa);
  }
  const auto status = ParseIsa("sse9").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("scalar, avx2, avx512, amx"), absl::string_view::npos);
}

TEST(CpuFeatures, PlainCodeRunsEverywhereAndWiderSetsContainNarrower) {
  EXPECT_TRUE(IsaAvailable(Isa::kScalar));
  EXPECT_TRUE(!IsaAvailable(Isa::kAvx512) || IsaAvailable(Isa::kAvx2));
  EXPECT_TRUE(!IsaAvailable(Isa::kAmx) || IsaAvailable(Isa::kAvx512));
  EXPECT_TRUE(IsaAvailable(BestIsa()));
}

TEST(CpuFeatures, OnlyWhatRunsCanBeForced) {
  EXPECT_EQ(ActiveIsa(), BestIsa());
  for (const Isa isa : kIsas) {
    const absl::Status status = SetIsa(isa);
    EXPECT_EQ(status.ok(), IsaAvailable(isa));
    if (status.ok()) {
      EXPECT_EQ(ActiveIsa(), isa);
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_NE(std::string(status.message()).find(IsaName(isa)), std::string::npos);
    }
  }
  ASSERT_TRUE(SetIsa(BestIsa()).ok());
}

}  // namespace
}  // namespace tokura::kernels
