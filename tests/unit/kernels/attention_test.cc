#include "kernels/attention.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace tokura::kernels {
namespace {

using Floats = std::vector<float>;

// Keys of one channel, query 1, scale 1: logits are the keys.
AttentionShape Shape(uint32_t tokens) {
  return {tokens, 1, 1, 1.0, 0, 0};
}

TEST(Attention, WeighsBySoftmax) {
  const Floats k = {0, std::log(3.0f)};
  const Floats v = {1, 2};
  const Floats q = {1};
  EXPECT_NEAR(AttentionOutput(Shape(2), {k, v}, {q, {}})[0], 1.75, 1e-7);
}

TEST(Attention, AppliesScaleAndSurvivesLargeLogits) {
  AttentionShape shape = Shape(2);
  shape.scale = 1000;
  const Floats k = {0, 1};
  const Floats v = {1, 2};
  const Floats q = {5};
  EXPECT_NEAR(AttentionOutput(shape, {k, v}, {q, {}})[0], 2, 1e-12);
}

TEST(Attention, QueriesSeeTheirOwnPositionAndTheWindowBeforeIt) {
  AttentionShape shape = Shape(4);
  shape.first_position = 10;
  const Floats k = {0, 0, 0, 0};
  const Floats v = {1, 2, 4, 8};
  const Floats q = {1, 1, 1, 1, 1};
  const std::vector<int64_t> positions = {9, 10, 11, 13, 20};
  std::vector<double> out = AttentionOutput(shape, {k, v}, {q, positions});
  EXPECT_EQ(out, (std::vector<double>{0, 1, 1.5, 3.75, 3.75}));
  shape.window = 2;
  out = AttentionOutput(shape, {k, v}, {q, positions});
  EXPECT_EQ(out, (std::vector<double>{0, 1, 1.5, 6, 0}));
}

TEST(Attention, ErrorIsRelativeToTheOutput) {
  const Floats k = {0, std::log(3.0f)};
  const Floats v = {1, 2};
  const Floats v_decoded = {2, 3};
  const Floats q = {1, 1};
  AttentionSums sums = AttentionError(Shape(2), {k, v}, {k, v_decoded}, {q, {}});
  EXPECT_NEAR(sums.error, 2, 1e-6);
  EXPECT_NEAR(sums.size, 2 * 1.75 * 1.75, 1e-6);
  EXPECT_NEAR(sums.Relative(), 1 / 1.75, 1e-7);
  sums += AttentionSums{2, 2 * 1.75 * 1.75};
  EXPECT_NEAR(sums.Relative(), 1 / 1.75, 1e-7);
  EXPECT_EQ(AttentionError(Shape(2), {k, v}, {k, v}, {q, {}}).Relative(), 0);
  EXPECT_EQ(AttentionSums{}.Relative(), 0);
  EXPECT_TRUE(std::isinf((AttentionSums{1, 0}.Relative())));
}

}  // namespace
}  // namespace tokura::kernels
