#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"

namespace tokura::kernels {
namespace {

struct Visible {
  uint32_t begin;
  uint32_t end;
};

Visible VisibleTokens(const AttentionShape& shape, const AttentionQueries& queries, size_t query) {
  if (queries.positions.empty()) {
    return {0, shape.tokens};
  }
  const int64_t tokens = shape.tokens;
  const int64_t relative = queries.positions[query] - shape.first_position;
  const int64_t end = std::clamp<int64_t>(relative + 1, 0, tokens);
  const int64_t begin =
      shape.window == 0 ? 0 : std::clamp<int64_t>(relative - shape.window + 1, 0, end);
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

void OneOutput(const AttentionShape& shape, const AttentionKv& kv, const float* q, Visible visible,
               double* out) {
  std::vector<double> weight;
  double largest = -std::numeric_limits<double>::infinity();
  for (uint32_t t = visible.begin; t < visible.end; ++t) {
    double dot = 0;
    for (uint32_t c = 0; c < shape.k_dim; ++c) {
      dot += static_cast<double>(q[c]) * static_cast<double>(kv.k[size_t{t} * shape.k_dim + c]);
    }
    weight.push_back(dot * shape.scale);
    largest = std::max(largest, weight.back());
  }
  double sum = 0;
  for (double& w : weight) {
    w = std::exp(w - largest);
    sum += w;
  }
  for (size_t i = 0; i < weight.size(); ++i) {
    const size_t row = (visible.begin + i) * shape.v_dim;
    for (uint32_t c = 0; c < shape.v_dim; ++c) {
      out[c] += weight[i] / sum * static_cast<double>(kv.v[row + c]);
    }
  }
}

}  // namespace

AttentionSums& AttentionSums::operator+=(const AttentionSums& other) {
  error += other.error;
  size += other.size;
  return *this;
}

double AttentionSums::Relative() const {
  return error == 0 ? 0 : std::sqrt(error / size);
}

std::vector<double> AttentionOutput(const AttentionShape& shape, const AttentionKv& kv,
                                    const AttentionQueries& queries) {
  TOKURA_CHECK(shape.k_dim > 0 && queries.q.size() % shape.k_dim == 0);
  TOKURA_CHECK(kv.k.size() == size_t{shape.tokens} * shape.k_dim);
  TOKURA_CHECK(kv.v.size() == size_t{shape.tokens} * shape.v_dim);
  const size_t count = queries.q.size() / shape.k_dim;
  TOKURA_CHECK(queries.positions.empty() || queries.positions.size() == count);
  std::vector<double> out(count * shape.v_dim, 0.0);
  for (size_t i = 0; i < count; ++i) {
    OneOutput(shape, kv, queries.q.data() + i * shape.k_dim, VisibleTokens(shape, queries, i),
              out.data() + i * shape.v_dim);
  }
  return out;
}

AttentionSums AttentionError(const AttentionShape& shape, const AttentionKv& exact,
                             const AttentionKv& decoded, const AttentionQueries& queries) {
  const std::vector<double> o = AttentionOutput(shape, exact, queries);
  const std::vector<double> o_hat = AttentionOutput(shape, decoded, queries);
  AttentionSums sums;
  for (size_t i = 0; i < o.size(); ++i) {
    sums.error += (o_hat[i] - o[i]) * (o_hat[i] - o[i]);
    sums.size += o[i] * o[i];
  }
  return sums;
}

}  // namespace tokura::kernels
