#pragma once

// Attention in double precision, to judge what an error in K or V does to its output. A reference:
// clear before fast.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tokura::cli {

// Exact widening of IEEE float16 bits.
std::vector<float> WidenHalf(std::span<const uint16_t> values);

// One KV head of one layer: element (token t, channel c) at t · head_dim + c. Borrowed.
struct HeadKv {
  std::span<const float> k;
  std::span<const float> v;
  uint32_t head_dim = 0;
  size_t tokens() const { return k.size() / head_dim; }
};

// Tokens [begin, end) of a sequence; empty when begin >= end.
struct TokenRange {
  size_t begin = 0;
  size_t end = 0;
  bool empty() const { return begin >= end; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};
TokenRange Intersect(const TokenRange& a, const TokenRange& b);
// What a query at `position` sees of positions 0 … tokens - 1. `window` 0: everything up to itself.
struct Visibility {
  size_t tokens = 0;
  uint32_t window = 0;
};
TokenRange VisibleTokens(size_t position, const Visibility& visibility);

// scale · q·k[t] for t in `range`: scores[t - range.begin]. `query` has head_dim elements.
void Scores(const HeadKv& kv, std::span<const float> query, double scale, const TokenRange& range,
            std::vector<double>* scores);
// Softmax of scores[range - origin] times v[range]: the attention output over those tokens alone,
// head_dim elements. `origin` is the token that scores[0] is of. `range` must not be empty.
void SoftmaxAverage(const HeadKv& kv, std::span<const double> scores, size_t origin,
                    const TokenRange& range, std::vector<double>* out);

// Sums for the relative error of a set of vectors: ‖approximate − exact‖ / ‖exact‖ over all of
// them.
struct ErrorSums {
  double error = 0;
  double size = 0;
  void Add(std::span<const double> exact, std::span<const double> approximate);
  void Add(std::span<const float> exact, std::span<const float> approximate);
  // 0 when there is no error; infinity when there is one and the exact vectors are zero.
  double Relative() const;
};

}  // namespace tokura::cli
