// Which captured queries become exemplars.

#include "kernels/exemplar_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace tokura::kernels {
namespace {

constexpr uint32_t kDim = 4;

struct Block {
  uint32_t tokens = 0;
  std::vector<float> k;
  std::vector<float> v;
  CalibrationBlock View() const { return {tokens, kDim, k, v}; }
};

Block RandomBlock(uint32_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Block block{tokens, std::vector<float>(size_t{tokens} * kDim),
              std::vector<float>(size_t{tokens} * kDim)};
  for (float& x : block.k) {
    x = normal(random);
  }
  for (float& x : block.v) {
    x = normal(random);
  }
  return block;
}

std::vector<float> RandomQueries(uint32_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> queries(size_t{count} * kDim);
  for (float& x : queries) {
    x = 2 * normal(random);
  }
  return queries;
}

// ‖o‖² of a query on a block.
double OutputSize(const Block& block, const float* q) {
  std::vector<double> weights;
  double sum = 0;
  for (uint32_t t = 0; t < block.tokens; ++t) {
    double score = 0;
    for (uint32_t c = 0; c < kDim; ++c) {
      score += static_cast<double>(q[c] * block.k[size_t{t} * kDim + c]);
    }
    weights.push_back(std::exp(score));
    sum += weights.back();
  }
  double size = 0;
  for (uint32_t c = 0; c < kDim; ++c) {
    double o = 0;
    for (uint32_t t = 0; t < block.tokens; ++t) {
      o += weights[t] / sum * static_cast<double>(block.v[size_t{t} * kDim + c]);
    }
    size += o * o;
  }
  return size;
}

double MeanSize(const Block& block, const std::vector<float>& queries,
                const std::vector<uint32_t>& chosen) {
  double sum = 0;
  for (const uint32_t i : chosen) {
    sum += OutputSize(block, queries.data() + size_t{i} * kDim);
  }
  return sum / static_cast<double>(chosen.size());
}

std::vector<uint32_t> First(uint32_t count) {
  std::vector<uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0u);
  return indices;
}

TEST(ExemplarChoice, WithoutBlocksSpreadsOverThePool) {
  const std::vector<float> queries = RandomQueries(10, 1);
  const ExemplarPool pool{10, kDim, 1, queries};
  EXPECT_EQ(ChooseExemplars(pool, {}, 5), (std::vector<uint32_t>{0, 2, 4, 6, 8}));
  EXPECT_EQ(ChooseExemplars(pool, {}, 3), (std::vector<uint32_t>{0, 3, 6}));
  EXPECT_EQ(ChooseExemplars(pool, {}, 99), First(10));
}

TEST(ExemplarChoice, TakesEachOnceAndAllOfASmallPool) {
  const std::vector<float> queries = RandomQueries(7, 2);
  const Block block = RandomBlock(16, 3);
  const CalibrationBlock views[] = {block.View()};
  std::vector<uint32_t> all = ChooseExemplars({7, kDim, 1, queries}, views, 99);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, First(7));
}

TEST(ExemplarChoice, FewerAreTheFirstOfMore) {
  const std::vector<float> queries = RandomQueries(40, 4);
  const Block blocks[] = {RandomBlock(16, 5), RandomBlock(33, 6)};
  const CalibrationBlock views[] = {blocks[0].View(), blocks[1].View()};
  const ExemplarPool pool{40, kDim, 1, queries};
  const std::vector<uint32_t> many = ChooseExemplars(pool, views, 20);
  for (const uint32_t count : {1u, 2u, 7u, 19u}) {
    const std::vector<uint32_t> few = ChooseExemplars(pool, views, count);
    ASSERT_EQ(few.size(), count);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  }
}

TEST(ExemplarChoice, TakesBothKindsInTurn) {
  // A query along e0 sees the first token, one against it the second, whose value is larger.
  Block block{2, {10, 0, 0, 0, -10, 0, 0, 0}, {1, 0, 0, 0, 3, 0, 0, 0}};
  std::vector<float> queries(size_t{12} * kDim);
  for (uint32_t i = 0; i < 12; ++i) {
    queries[size_t{i} * kDim] = i < 6 ? 1.0f : -1.0f;
  }
  const CalibrationBlock views[] = {block.View()};
  const std::vector<uint32_t> chosen = ChooseExemplars({12, kDim, 1, queries}, views, 6);
  for (size_t i = 0; i < chosen.size(); i += 2) {
    EXPECT_NE(chosen[i] < 6, chosen[i + 1] < 6) << i;
  }
}

TEST(ExemplarChoice, MeansComeCloserThanThoseOfTheFirst) {
  std::vector<Block> blocks;
  std::vector<CalibrationBlock> views;
  for (uint32_t b = 0; b < 4; ++b) {
    blocks.push_back(RandomBlock(32, 10 + b));
  }
  for (const Block& block : blocks) {
    views.push_back(block.View());
  }
  constexpr uint32_t kPool = 128;
  const std::vector<float> queries = RandomQueries(kPool, 20);
  for (const uint32_t count : {4u, 8u, 16u, 32u}) {
    const std::vector<uint32_t> chosen = ChooseExemplars({kPool, kDim, 1, queries}, views, count);
    double off_chosen = 0;
    double off_first = 0;
    for (const Block& block : blocks) {
      const double truth = MeanSize(block, queries, First(kPool));
      off_chosen += std::pow(MeanSize(block, queries, chosen) / truth - 1, 2);
      off_first += std::pow(MeanSize(block, queries, First(count)) / truth - 1, 2);
    }
    EXPECT_LT(off_chosen, off_first) << count;
  }
}

TEST(ExemplarChoice, TiesGoToTheLowerIndex) {
  const std::vector<float> queries(size_t{5} * kDim, 0.5f);
  const Block block = RandomBlock(16, 7);
  const CalibrationBlock views[] = {block.View()};
  EXPECT_EQ(ChooseExemplars({5, kDim, 1, queries}, views, 3), First(3));
}

TEST(ExemplarChoice, BlocksThatSayNothingChooseTheFirst) {
  const std::vector<float> queries = RandomQueries(6, 8);
  const Block zero{8, std::vector<float>(8 * kDim), std::vector<float>(8 * kDim)};
  const CalibrationBlock views[] = {zero.View()};
  EXPECT_EQ(ChooseExemplars({6, kDim, 1, queries}, views, 4), First(4));
}

TEST(ExemplarChoice, OffsetsCountTogether) {
  // At the first offset all queries are alike; only the second tells them apart.
  Block block{2, {10, 0, 0, 0, -10, 0, 0, 0}, {1, 0, 0, 0, 3, 0, 0, 0}};
  std::vector<float> queries(size_t{2} * 8 * kDim);
  for (uint32_t i = 0; i < 8; ++i) {
    queries[size_t{i} * kDim] = 1;
    queries[(8 + size_t{i}) * kDim] = i < 4 ? 1.0f : -1.0f;
  }
  const CalibrationBlock views[] = {block.View()};
  const std::vector<uint32_t> chosen = ChooseExemplars({8, kDim, 2, queries}, views, 2);
  EXPECT_NE(chosen[0] < 4, chosen[1] < 4);
}

}  // namespace
}  // namespace tokura::kernels
