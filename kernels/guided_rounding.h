#pragma once

// Guides for rounding with feedback; FORMAT.md, "Guided rounding". The arithmetic has the same bits
// on every machine. Internal to kernels/.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/side_profile.h"

namespace tokura::kernels {

// Tokens of one run of a guide by tokens: runs of coded tokens are rounded for themselves.
inline constexpr uint32_t kGuideTokens = 64;

// The arrays of guides, one behind the other.
struct GuideArrays {
  std::vector<uint16_t> order;
  std::vector<float> factors;
  RoundingGuide view() const { return {order, factors}; }
  void Clear();
};

// What is added to the diagonal of H, of its mean: how far errors matter that H says nothing about.
// H by channels is made of many queries. That by tokens is made of few, and tokens that none of
// them looks at would take the others' errors.
inline constexpr double kChannelDamping = 0.01;
inline constexpr double kTokenDamping = 0.2;

// Append the guide for errors e of n positions that cost eᵀHe, `hessian` [n, n], symmetric:
// `damping` of the mean diagonal is added to the diagonal, positions are ordered by falling
// diagonal (equal ones by rising index), and the factors are the rows of the Cholesky factor of the
// inverse, each over its diagonal element. Where that cannot be computed (H zero or not finite) the
// factors are 0, and rounding is to nearest. n ≤ 65,536.
void AppendGuide(uint32_t n, std::span<const double> hessian, double damping, GuideArrays* out);

// The guides by tokens of a slab's V side, one for each run of kGuideTokens coded tokens, one
// behind the other with orders from each run's first token: H = mean of p pᵀ over the queries,
// where p is a query's attention over all coded tokens. `queries` [count, k_dim] have the softmax
// scale in them, `k` is [tokens, k_dim]. No query: factors 0.
struct TokenGuideInput {
  const float* k = nullptr;
  uint32_t tokens = 0;
  uint32_t k_dim = 0;
  std::span<const float> queries;
};
void MakeTokenGuides(const TokenGuideInput& input, GuideArrays* out);

}  // namespace tokura::kernels
