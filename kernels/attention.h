#pragma once

// Attention in double precision: the reference by which codecs are judged. Slow and plain.

#include <cstdint>
#include <span>
#include <vector>

namespace tokura::kernels {

// Keys and values of one layer and KV head, fp32. Borrowed.
struct AttentionKv {
  std::span<const float> k;  // [tokens, k_dim]
  std::span<const float> v;  // [tokens, v_dim]
};

struct AttentionShape {
  uint32_t tokens = 0;
  uint32_t k_dim = 0;
  uint32_t v_dim = 0;
  double scale = 1;            // factor on q·k
  int64_t first_position = 0;  // of token 0
  int64_t window = 0;          // a query at p sees positions above p - window only; 0: no window
};

// Queries [n, k_dim], fp32, of the query heads that read this KV head. `positions` has one entry a
// query, which sees the tokens up to its own position; empty: every query sees every token.
struct AttentionQueries {
  std::span<const float> q;
  std::span<const int64_t> positions;
};

// Sums over queries of ‖ô − o‖² and ‖o‖²; sums of heads and of shards add.
struct AttentionSums {
  double error = 0;
  double size = 0;
  AttentionSums& operator+=(const AttentionSums& other);
  // sqrt(error / size): the relative attention-output error. 0 without error; +infinity when only
  // `size` is 0; NaN when a sum is NaN.
  double Relative() const;
};

// Outputs [n, v_dim]; a query that sees no token gives zeros. Checked: the spans have the sizes
// that `shape` says. Thread-safe.
std::vector<double> AttentionOutput(const AttentionShape& shape, const AttentionKv& kv,
                                    const AttentionQueries& queries);

// What `decoded` in place of `exact` changes. A layer's error is Relative() of the sum over its KV
// heads.
AttentionSums AttentionError(const AttentionShape& shape, const AttentionKv& exact,
                             const AttentionKv& decoded, const AttentionQueries& queries);

}  // namespace tokura::kernels
