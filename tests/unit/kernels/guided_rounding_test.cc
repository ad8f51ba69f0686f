#include "kernels/guided_rounding.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "coded_side.h"
#include "kernels/codec.h"
#include "kernels/quantize.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

using Floats = std::vector<float>;

// Σ q qᵀ of queries that lie near a few directions.
std::vector<double> Hessian(const Floats& queries, uint32_t dim) {
  std::vector<double> h(size_t{dim} * dim);
  for (size_t m = 0; m < queries.size(); m += dim) {
    for (uint32_t i = 0; i < dim; ++i) {
      for (uint32_t j = 0; j < dim; ++j) {
        h[size_t{i} * dim + j] += static_cast<double>(queries[m + i]) * queries[m + j];
      }
    }
  }
  return h;
}

Floats Queries(uint32_t count, uint32_t dim) {
  TestRandom random(17);
  Floats basis;
  for (uint32_t i = 0; i < 4 * dim; ++i) {
    basis.push_back(Normal(random));
  }
  Floats out;
  for (uint32_t m = 0; m < count; ++m) {
    float weights[4];
    for (float& weight : weights) {
      weight = Normal(random);
    }
    for (uint32_t c = 0; c < dim; ++c) {
      float value = 0.2f * Normal(random);
      for (uint32_t b = 0; b < 4; ++b) {
        value += weights[b] * basis[b * dim + c];
      }
      out.push_back(value);
    }
  }
  return out;
}

// Σ over rows of eᵀHe.
double Cost(const Floats& x, const Floats& decoded, const std::vector<double>& h, uint32_t dim) {
  double cost = 0;
  for (size_t row = 0; row < x.size(); row += dim) {
    for (uint32_t i = 0; i < dim; ++i) {
      for (uint32_t j = 0; j < dim; ++j) {
        cost += h[size_t{i} * dim + j] * (static_cast<double>(decoded[row + i]) - x[row + i]) *
                (static_cast<double>(decoded[row + j]) - x[row + j]);
      }
    }
  }
  return cost;
}

TEST(Guide, SolvesTwoPositionsByHand) {
  // H = [4 2; 2 3]: position 0 first. With e on it, the best answer of position 1 is -2/3.03 · e.
  GuideArrays guide;
  AppendGuide(2, std::vector<double>{4, 2, 2, 3}, 0.01, &guide);
  EXPECT_EQ(guide.order, (std::vector<uint16_t>{0, 1}));
  ASSERT_EQ(guide.factors.size(), 1u);
  EXPECT_NEAR(guide.factors[0], -2 / (3 + 0.035), 1e-6);
  guide.Clear();
  AppendGuide(2, std::vector<double>{4, 2, 2, 3}, 0.2, &guide);
  ASSERT_EQ(guide.factors.size(), 1u);
  EXPECT_NEAR(guide.factors[0], -2 / (3 + 0.7), 1e-6);
  guide.Clear();
  AppendGuide(2, std::vector<double>{3, 2, 2, 4}, 0.01, &guide);
  EXPECT_EQ(guide.order, (std::vector<uint16_t>{1, 0}));
}

TEST(Guide, WithoutInformationIsRoundingToNearest) {
  GuideArrays guide;
  AppendGuide(3, std::vector<double>(9, 0.0), 0.01, &guide);
  AppendGuide(2, std::vector<double>{1, NAN, NAN, 1}, 0.01, &guide);
  AppendGuide(2, std::vector<double>{HUGE_VAL, 0, 0, 1}, 0.01, &guide);
  EXPECT_EQ(guide.order, (std::vector<uint16_t>{0, 1, 2, 0, 1, 0, 1}));
  EXPECT_EQ(guide.factors, Floats(5, 0.0f));
}

TEST(Guide, LowersTheErrorOfScores) {
  constexpr uint32_t kDim = 64;
  const Floats queries = Queries(100, kDim);
  const std::vector<double> h = Hessian(queries, kDim);
  GuideArrays guide;
  AppendGuide(kDim, h, kChannelDamping, &guide);
  TestRandom random(3);
  Floats keys;
  for (uint32_t i = 0; i < 64 * kDim; ++i) {
    keys.push_back(RoundToType(DType::kFloat16, Normal(random)));
  }
  for (const char* name : {"kivi4r", "kivi3r"}) {
    CodecSide side = FindCodec(name)->k;
    SideTask task{side, {64, kDim, DType::kFloat16}, {}};
    task.profile.guide = guide.view();
    const CodedSide guided = CodeSide(task, keys);
    task.side.rounding = Rounding::kNearest;
    const CodedSide nearest = CodeSide(task, keys);
    EXPECT_EQ(guided.parameters, nearest.parameters);
    EXPECT_LT(Cost(keys, guided.decoded, h, kDim), 0.35 * Cost(keys, nearest.decoded, h, kDim));
    // The plain decoder reads guided codes.
    SideScratch scratch;
    Floats decoded(keys.size());
    DecodeSide(task, guided.bytes.data(), {0, 64}, &scratch, decoded.data());
    EXPECT_EQ(decoded, guided.decoded);
  }
}

// What attention over the block loses in V: Σ over queries of ‖Σ p (decoded − v)‖².
double OutputError(const Floats& queries, const Floats& keys, const Floats& error, uint32_t tokens,
                   uint32_t dim) {
  double total = 0;
  for (size_t m = 0; m < queries.size(); m += dim) {
    std::vector<double> p(tokens);
    double sum = 0;
    for (uint32_t t = 0; t < tokens; ++t) {
      double logit = 0;
      for (uint32_t c = 0; c < dim; ++c) {
        logit += static_cast<double>(queries[m + c]) * keys[t * dim + c];
      }
      p[t] = std::exp(logit);
      sum += p[t];
    }
    for (uint32_t c = 0; c < dim; ++c) {
      double output = 0;
      for (uint32_t t = 0; t < tokens; ++t) {
        output += p[t] / sum * error[t * dim + c];
      }
      total += output * output;
    }
  }
  return total;
}

TEST(TokenGuides, LowerTheErrorOfOutputs) {
  constexpr uint32_t kDim = 64;
  constexpr uint32_t kTokens = 100;  // two runs
  Floats queries = Queries(64, kDim);
  for (float& value : queries) {
    value *= 0.05f;
  }
  TestRandom random(5);
  Floats keys;
  Floats values;
  for (uint32_t i = 0; i < kTokens * kDim; ++i) {
    keys.push_back(RoundToType(DType::kFloat16, Normal(random)));
    values.push_back(RoundToType(DType::kFloat16, Normal(random)));
  }
  GuideArrays guide;
  MakeTokenGuides({keys.data(), kTokens, kDim, queries}, &guide);
  ASSERT_EQ(guide.order.size(), kTokens);
  ASSERT_EQ(guide.factors.size(), 64u * 63 / 2 + 36 * 35 / 2);
  SideTask task{FindCodec("kivi4rv")->v, {kTokens, kDim, DType::kFloat16}, {}};
  task.profile.guide = guide.view();
  const auto error_of = [&](Rounding rounding) {
    task.side.rounding = rounding;
    const CodedSide coded = CodeSide(task, values);
    Floats error(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      error[i] = coded.decoded[i] - values[i];
    }
    return OutputError(queries, keys, error, kTokens, kDim);
  };
  EXPECT_LT(error_of(Rounding::kGuidedByToken), 0.6 * error_of(Rounding::kNearest));
}

// Of two tokens, each query looks at one more than at the other: by hand, with the damping that
// FORMAT.md gives.
TEST(TokenGuides, DampTokensThatAreSeldomLookedAt) {
  const Floats keys = {1, 0};
  const Floats queries = {0, 2};
  GuideArrays guide;
  MakeTokenGuides({keys.data(), 2, 1, queries}, &guide);
  const double p = 1 / (1 + std::exp(-2.0));  // of token 0 by query 1
  const double h00 = 0.25 + p * p;
  const double h01 = 0.25 + p * (1 - p);
  const double h11 = 0.25 + (1 - p) * (1 - p);
  EXPECT_EQ(guide.order, (std::vector<uint16_t>{0, 1}));
  ASSERT_EQ(guide.factors.size(), 1u);
  EXPECT_NEAR(guide.factors[0], -h01 / (h11 + 0.2 * (h00 + h11) / 2), 1e-6);
}

TEST(TokenGuides, OfNoTokensAreEmpty) {
  GuideArrays guide;
  MakeTokenGuides({nullptr, 0, 8, Queries(2, 8)}, &guide);
  EXPECT_TRUE(guide.order.empty());
  EXPECT_TRUE(guide.factors.empty());
}

TEST(TokenGuides, WithoutQueriesRoundToNearest) {
  const Floats keys(10 * 8, 1.0f);
  GuideArrays guide;
  MakeTokenGuides({keys.data(), 10, 8, {}}, &guide);
  EXPECT_EQ(guide.factors, Floats(45, 0.0f));
  EXPECT_EQ(guide.order.size(), 10u);
}

}  // namespace
}  // namespace tokura::kernels
