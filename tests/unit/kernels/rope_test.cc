#include "kernels/rope.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace tokura::kernels {
namespace {

TEST(Rope, RotationIsTheCosineAndSineOfThePhase) {
  for (uint64_t i = 0; i < 4096; ++i) {
    const uint64_t phase = i * 0x9e3779b97f4a7c15u;
    const double angle = 2 * std::numbers::pi * static_cast<double>(phase >> 11) * 0x1p-53;
    const Rotation rotation = RotationOf(phase);
    EXPECT_NEAR(rotation.cosine, std::cos(angle), 1e-7) << phase;
    EXPECT_NEAR(rotation.sine, std::sin(angle), 1e-7) << phase;
  }
  EXPECT_EQ(RotationOf(0).cosine, 1);
  EXPECT_EQ(RotationOf(uint64_t{1} << 62).sine, 1);
  EXPECT_EQ(RotationOf(uint64_t{1} << 63).cosine, -1);
  EXPECT_EQ(RotationOf(uint64_t{3} << 62).sine, -1);
}

TEST(Rope, TurnsAreThePublishedFrequencies) {
  const std::vector<uint64_t> turns = TurnsOf(10000, 64);
  ASSERT_EQ(turns.size(), 32u);
  for (uint32_t i = 0; i < 32; ++i) {
    const double radians = static_cast<double>(turns[i]) * 0x1p-64 * 2 * std::numbers::pi;
    EXPECT_NEAR(radians / std::pow(10000.0, -2.0 * i / 64), 1, 1e-12);
  }
}

TEST(Rope, PairsFollowTheKind) {
  const RopeShape half{RopeKind::kHalfSplit, 4, 8};
  EXPECT_EQ(half.PairAt(1).a, 5u);
  EXPECT_EQ(half.PairAt(1).b, 9u);
  EXPECT_EQ(half.Partner(5), 9u);
  EXPECT_EQ(half.Partner(9), 5u);
  EXPECT_EQ(half.Partner(3), 3u);
  EXPECT_EQ(half.Partner(12), 12u);
  const RopeShape interleaved{RopeKind::kInterleaved, 3, 4};
  EXPECT_EQ(interleaved.PairAt(1).a, 5u);
  EXPECT_EQ(interleaved.PairAt(1).b, 6u);
  EXPECT_EQ(interleaved.Partner(3), 4u);
  EXPECT_EQ(interleaved.Partner(6), 5u);
}

TEST(Rope, TurningBackGivesTheVectorAgainHoweverFar) {
  const RopeShape shape{RopeKind::kHalfSplit, 0, 64};
  const std::vector<uint64_t> turns = TurnsOf(100000, 64);
  std::vector<Rotation> rotations(32);
  for (const uint64_t far : {uint64_t{1}, uint64_t{131072}, uint64_t{1} << 40}) {
    std::vector<float> x(64);
    for (uint32_t c = 0; c < 64; ++c) {
      x[c] = static_cast<float>(c) / 8 - 4;
    }
    const std::vector<float> before = x;
    RotationsAt(turns, far, rotations);
    Rotate(shape, rotations, x.data());
    RotationsAt(turns, 0 - far, rotations);
    Rotate(shape, rotations, x.data());
    for (uint32_t c = 0; c < 64; ++c) {
      EXPECT_NEAR(x[c], before[c], 2e-6) << far;
    }
  }
}

}  // namespace
}  // namespace tokura::kernels
