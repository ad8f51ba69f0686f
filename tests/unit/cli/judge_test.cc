#include "cli/judge.h"

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/float_convert.h"
#include "tests/unit/cli/small_capture.h"

namespace tokura::cli {
namespace {

uint16_t Half(double value) {
  return kernels::FloatToHalf(static_cast<float>(value));
}

// One layer, one head of one channel: three tokens with keys 0 (equal weights) and values 3, 6, 9;
// queries at positions 1 and 2.
Capture TinyCapture() {
  Capture capture;
  capture.model = "tiny";
  capture.model_layers = 1;
  capture.kv_heads = 1;
  capture.q_heads = 1;
  capture.head_dim = 1;
  capture.tokens = 3;
  capture.queries = 2;
  capture.first_query_position = 1;
  capture.context_tokens = 2;
  capture.softmax_scale = 1;
  capture.layers = {{0, CaptureLayer::Kind::kFull, 0, 10000}};
  capture.token_ids = {1, 2, 3};
  capture.k = {0, 0, 0};
  capture.v = {Half(3), Half(6), Half(9)};
  capture.q = {Half(1), Half(1)};
  return capture;
}

TEST(JudgeTest, MatchesATinyCaseComputedByHand) {
  const Capture exact = TinyCapture();
  Capture changed = exact;
  changed.v[1] = Half(9);
  const SequenceMemory memory = SequenceMemory::CopyOf(changed);
  const HeadComparison comparison(exact, memory, {.layer = 0, .head = 0});
  // Outputs: the query at 1 sees (3 + 6) / 2 = 4.5, now 6; the one at 2 sees 6, now 7.
  const auto whole = comparison.Error({0, 3});
  EXPECT_NEAR(whole.error, 1.5 * 1.5 + 1, 1e-9);
  EXPECT_NEAR(whole.size, 4.5 * 4.5 + 6 * 6, 1e-9);
  // Token 1 alone: both see it, 6, now 9.
  const auto alone = comparison.Error({1, 2});
  EXPECT_NEAR(alone.Relative(), 0.5, 1e-9);
  // Token 2 alone: only the query at 2 sees it, unchanged.
  EXPECT_EQ(comparison.Error({2, 3}).error, 0);
  EXPECT_NEAR(comparison.Error({2, 3}).size, 81, 1e-9);
  EXPECT_EQ(comparison.Error({2, 2}).size, 0);
  const auto errors = AttentionErrors(exact, memory);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NEAR(errors[0], std::sqrt(3.25 / 56.25), 1e-9);
}

TEST(JudgeTest, TheWindowHidesWhatASlidingLayerDoesNotSee) {
  Capture exact = TinyCapture();
  exact.layers[0].kind = CaptureLayer::Kind::kSliding;
  exact.layers[0].window = 2;
  Capture changed = exact;
  changed.v[0] = Half(5);
  // Only the query at 1 still sees token 0: 4.5, now 5.5; the query at 2 sees 7.5.
  const auto sums =
      HeadComparison(exact, SequenceMemory::CopyOf(changed), {.layer = 0, .head = 0}).Error({0, 3});
  EXPECT_NEAR(sums.error, 1, 1e-9);
  EXPECT_NEAR(sums.size, 4.5 * 4.5 + 7.5 * 7.5, 1e-9);
}

TEST(JudgeTest, QueryHeadsReadTheirOwnKvHead) {
  const Capture exact = SmallCapture();
  Capture changed = exact;
  // Damage the second KV head of the first layer only.
  const size_t head_elements = exact.HeadElements();
  for (size_t i = 0; i < head_elements; ++i) {
    changed.v[head_elements + i] = Half(1);
  }
  const SequenceMemory memory = SequenceMemory::CopyOf(changed);
  EXPECT_EQ(HeadComparison(exact, memory, {.layer = 0, .head = 0}).Error({0, 12}).error, 0);
  EXPECT_GT(HeadComparison(exact, memory, {.layer = 0, .head = 1}).Error({0, 12}).error, 0);
  EXPECT_EQ(HeadComparison(exact, memory, {.layer = 1, .head = 1}).Error({0, 12}).error, 0);
  const auto errors = AttentionErrors(exact, memory);
  EXPECT_GT(errors[0], 0);
  EXPECT_EQ(errors[1], 0);
  EXPECT_EQ(errors[2], 0);
}

TEST(JudgeTest, ValueDifferenceIsRelative) {
  const std::vector<uint16_t> exact = {Half(3), Half(4)};
  const std::vector<uint16_t> other = {Half(3), Half(5)};
  EXPECT_NEAR(ValueDifference(exact, other).Relative(), 0.2, 1e-9);
  EXPECT_EQ(ValueDifference(exact, exact).Relative(), 0);
}

}  // namespace
}  // namespace tokura::cli
