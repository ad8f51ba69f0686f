#include "cli/attention.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tokura::cli {
namespace {

TEST(AttentionTest, MatchesATinyCaseComputedByHand) {
  // Two tokens with scores 0 and ln 3 (scale 1/2): weights 1/4 and 3/4.
  const auto ln3 = static_cast<float>(std::log(3.0));
  const std::vector<float> k = {0, 5, 2 * ln3, 0};
  const std::vector<float> v = {4, 0, 0, 8};
  const std::vector<float> q = {1, 0};
  const HeadKv kv{k, v, 2};
  std::vector<double> scores;
  std::vector<double> out;
  Scores(kv, q, 0.5, {0, 2}, &scores);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_NEAR(scores[0], 0, 1e-12);
  EXPECT_NEAR(scores[1], std::log(3.0), 1e-7);
  SoftmaxAverage(kv, scores, 0, {0, 2}, &out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_NEAR(out[0], 1.0, 1e-6);
  EXPECT_NEAR(out[1], 6.0, 1e-6);
  // Over one token alone the output is its value, whatever the score.
  SoftmaxAverage(kv, scores, 0, {1, 2}, &out);
  EXPECT_EQ(out, (std::vector<double>{0, 8}));
}

TEST(AttentionTest, ScoresOfARangeStartAtItsFirstToken) {
  const std::vector<float> k = {1, 2, 3, 4, 5};
  const std::vector<float> v = {1, 1, 1, 1, 9};
  const HeadKv kv{k, v, 1};
  std::vector<double> scores;
  std::vector<double> out;
  Scores(kv, std::vector<float>{2}, 1, {3, 5}, &scores);
  EXPECT_EQ(scores, (std::vector<double>{8, 10}));
  SoftmaxAverage(kv, scores, 3, {4, 5}, &out);
  EXPECT_EQ(out, std::vector<double>{9});
}

TEST(AttentionTest, DotProductsOfAnyLengthAreWhole) {
  for (const size_t dim : {1u, 3u, 4u, 7u, 64u}) {
    const std::vector<float> ones(dim, 1);
    const HeadKv kv{ones, ones, static_cast<uint32_t>(dim)};
    std::vector<double> scores;
    Scores(kv, ones, 1, {0, 1}, &scores);
    EXPECT_EQ(scores[0], static_cast<double>(dim));
  }
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const std::vector<float> k = {60000, 59999};
  const std::vector<float> v = {1, 3};
  const HeadKv kv{k, v, 1};
  std::vector<double> scores;
  std::vector<double> out;
  Scores(kv, std::vector<float>{60000}, 1, {0, 2}, &scores);
  SoftmaxAverage(kv, scores, 0, {0, 2}, &out);
  EXPECT_EQ(out[0], 1);
}

TEST(AttentionTest, QueriesSeeThemselvesAndTheirWindow) {
  EXPECT_EQ(VisibleTokens(7, {.tokens = 100}), (TokenRange{0, 8}));
  EXPECT_EQ(VisibleTokens(7, {.tokens = 5}), (TokenRange{0, 5}));
  EXPECT_EQ(VisibleTokens(7, {.tokens = 100, .window = 3}), (TokenRange{5, 8}));
  EXPECT_EQ(VisibleTokens(7, {.tokens = 100, .window = 8}), (TokenRange{0, 8}));
  EXPECT_EQ(VisibleTokens(7, {.tokens = 100, .window = 9}), (TokenRange{0, 8}));
  EXPECT_EQ(VisibleTokens(7, {.tokens = 100, .window = 7}), (TokenRange{1, 8}));
  EXPECT_TRUE(Intersect({0, 4}, {4, 8}).empty());
  EXPECT_EQ(Intersect({2, 8}, {0, 5}), (TokenRange{2, 5}));
}

TEST(AttentionTest, RelativeErrorIsOverAllVectorsTogether) {
  ErrorSums sums;
  sums.Add(std::vector<double>{3, 4}, std::vector<double>{3, 5});
  sums.Add(std::vector<double>{0, 0}, std::vector<double>{2, 0});
  EXPECT_NEAR(sums.Relative(), std::sqrt(5.0 / 25.0), 1e-12);
  EXPECT_EQ(ErrorSums{}.Relative(), 0);
  ErrorSums lost;
  lost.Add(std::vector<double>{0}, std::vector<double>{1});
  EXPECT_EQ(lost.Relative(), std::numeric_limits<double>::infinity());
}

TEST(AttentionTest, HalfWidensExactly) {
  EXPECT_EQ(WidenHalf(std::vector<uint16_t>{0x3c00, 0xc000, 0x0001, 0x7bff}),
            (std::vector<float>{1, -2, 0x1p-24F, 65504}));
}

}  // namespace
}  // namespace tokura::cli
