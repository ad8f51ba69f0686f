// The plain form of the record's loops, against their definitions.

#include "kernels/record_kernels.h"

#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/fused.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

void ExpectFused(float a, float b, float c) {
  const float expected = std::fma(a, b, c);
  const float found = MultiplyAddInDouble(a, b, c);
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << a << " " << b << " " << c;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected))
        << std::hexfloat << a << " " << b << " " << c;
  }
}

TEST(MultiplyAdd, RoundsOnce) {
  // The exact result is a hair off the middle of two floats; double rounds that hair away.
  ExpectFused(1.0f + 0x1p-23f, 1.0f + 0x1p-23f, 0x1p-60f);
  ExpectFused(0x1p-30f, 0x1p-30f, 1.0f + 0x1p-23f);
  ExpectFused(0x1.000002p0f, 0x1p-24f, 1.0f);
  ExpectFused(0x1p-40f, -0x1p-40f, 1.0f);
  ExpectFused(0x1.8p-24f + 0x1p-47f, 1.0f, 1.0f);
  ExpectFused(0x1.8p-24f, 1.0f, 1.0f + 0x1p-23f);
  for (const float special : {HUGE_VALF, -HUGE_VALF, NAN, 0.0f, -0.0f, 3.4e38f, 1e-45f}) {
    for (const float other : {HUGE_VALF, -1.0f, 0.0f, 1e-40f, 3e38f}) {
      ExpectFused(special, other, 1.0f);
      ExpectFused(special, other, special);
      ExpectFused(1.0f, other, special);
    }
  }
}

TEST(MultiplyAdd, IsTheMachinesForAnyBits) {
  TestRandom random(3);
  for (int i = 0; i < 200000; ++i) {
    // Neighbouring magnitudes, where rounding is hard, and any bits.
    const auto near = [&] {
      return std::ldexp(1.0f + static_cast<float>(random() % (1u << 23)) * 0x1p-23f,
                        static_cast<int>(random() % 60) - 30) *
             (random() % 2 == 0 ? 1.0f : -1.0f);
    };
    ExpectFused(near(), near(), near());
    const auto any = [&] { return std::bit_cast<float>(static_cast<uint32_t>(random())); };
    ExpectFused(any(), any(), any());
  }
}

TEST(RecordKernels, AttendByHand) {
  // Query 1 of a tile of two channels: scores are 1·k0 + 2·k1.
  const float k[] = {1, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0,
                     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<float> q(16);
  q[4] = 1;
  q[5] = 2;
  std::vector<float> scores(32, 7.0f);
  ScalarRecordScores({k, 3, 1}, {q.data(), 1, 32}, scores.data());
  EXPECT_EQ(scores[4], 1);
  EXPECT_EQ(scores[5], 2);
  EXPECT_EQ(scores[6], 3);
  EXPECT_EQ(scores[0], 0);  // query 0 is absent: all zero
  ScalarRecordSoftmax(3, scores.data());
  const double sum = std::exp(-2.0) + std::exp(-1.0) + 1;
  EXPECT_NEAR(scores[4], std::exp(-2.0) / sum, 1e-6);
  EXPECT_NEAR(scores[5], std::exp(-1.0) / sum, 1e-6);
  EXPECT_NEAR(scores[6], 1 / sum, 1e-6);
  EXPECT_EQ(scores[7], 0);
  const float v[] = {1, 10, 2, 20, 3, 30};
  std::vector<float> out(8, 1.0f);
  ScalarRecordOutputs({v, 2, 3, 2}, scores.data(), out.data());
  const double mean = (std::exp(-2.0) + 2 * std::exp(-1.0) + 3) / sum;
  EXPECT_NEAR(out[2], 1 + mean, 1e-5);
  EXPECT_NEAR(out[3], 1 + 10 * mean, 1e-4);
  RecordSums sums;
  ScalarRecordSums(v, v + 2, 2, &sums);
  EXPECT_EQ(sums.error, 1 + 100);
  EXPECT_EQ(sums.size, 1 + 100);
}

}  // namespace
}  // namespace tokura::kernels
