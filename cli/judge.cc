#include "cli/judge.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/float_convert.h"

namespace tokura::cli {
namespace {

std::vector<float> Widen(std::span<const uint16_t> values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), kernels::HalfToFloat);
  return out;
}

}  // namespace

kernels::AttentionSums ValueDifference(std::span<const uint16_t> exact,
                                       std::span<const uint16_t> approximate) {
  TOKURA_CHECK(exact.size() == approximate.size());
  kernels::AttentionSums sums;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double value = kernels::HalfToFloat(exact[i]);
    const double difference = kernels::HalfToFloat(approximate[i]) - value;
    sums.error += difference * difference;
    sums.size += value * value;
  }
  return sums;
}

HeadComparison::HeadComparison(const Capture& capture, const SequenceMemory& approximation,
                               const Head& which)
    : head_dim_(capture.head_dim),
      window_(capture.layers[which.layer].window),
      scale_(static_cast<double>(capture.softmax_scale)),
      exact_{Widen(capture.K(which.layer, which.head)), Widen(capture.V(which.layer, which.head))},
      approximate_{Widen(approximation.K(which.layer, which.head)),
                   Widen(approximation.V(which.layer, which.head))} {
  TOKURA_CHECK(capture.first_position == 0);
  const size_t group = capture.queries_per_head();
  for (size_t head = which.head * group; head < (which.head + 1) * group; ++head) {
    const std::vector<float> queries = Widen(capture.Q(which.layer, head));
    queries_.insert(queries_.end(), queries.begin(), queries.end());
    for (uint32_t i = 0; i < capture.queries; ++i) {
      positions_.push_back(int64_t{capture.first_query_position} + i);
    }
  }
}

kernels::AttentionKv HeadComparison::Values::Part(size_t begin, size_t end, size_t head_dim) const {
  const size_t first = begin * head_dim;
  const size_t count = (end - begin) * head_dim;
  return {std::span(k).subspan(first, count), std::span(v).subspan(first, count)};
}

kernels::AttentionSums HeadComparison::Error(const Tokens& tokens) const {
  if (tokens.begin >= tokens.end) {
    return {};
  }
  kernels::AttentionShape shape;
  shape.tokens = static_cast<uint32_t>(tokens.end - tokens.begin);
  shape.k_dim = head_dim_;
  shape.v_dim = head_dim_;
  shape.scale = scale_;
  shape.first_position = static_cast<int64_t>(tokens.begin);
  shape.window = window_;
  return kernels::AttentionError(shape, exact_.Part(tokens.begin, tokens.end, head_dim_),
                                 approximate_.Part(tokens.begin, tokens.end, head_dim_),
                                 {queries_, positions_});
}

std::vector<double> AttentionErrors(const Capture& capture, const SequenceMemory& approximation) {
  std::vector<double> errors;
  for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
    kernels::AttentionSums sums;
    for (size_t head = 0; head < capture.kv_heads; ++head) {
      sums += HeadComparison(capture, approximation, {layer, head}).Error({0, capture.tokens});
    }
    errors.push_back(sums.Relative());
  }
  return errors;
}

}  // namespace tokura::cli
