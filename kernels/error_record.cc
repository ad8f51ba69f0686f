#include "kernels/error_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/part.h"

namespace tokura::kernels {
namespace {

// Eight independent sums, so that the loop is vectorised without reordering one sum.
float Dot(const float* a, const float* b, uint32_t count) {
  constexpr uint32_t kLanes = 8;
  float lane[kLanes] = {};
  uint32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (uint32_t j = 0; j < kLanes; ++j) {
      lane[j] += a[i + j] * b[i + j];
    }
  }
  for (; i < count; ++i) {
    lane[0] += a[i] * b[i];
  }
  float sum = 0;
  for (const float part : lane) {
    sum += part;
  }
  return sum;
}

// Token that proxy `index` of `count` is the key of.
uint32_t ProxyToken(uint32_t index, uint32_t count, uint32_t tokens) {
  return count == 1 ? tokens / 2
                    : static_cast<uint32_t>(uint64_t{index} * (tokens - 1) / (count - 1));
}

}  // namespace

void ProxyMeter::Output(const float* q, const float* k, const float* v, const ProxyInput& input,
                        std::vector<float>* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(input.k_dim));
  weight_.resize(input.tokens);
  float largest = -std::numeric_limits<float>::infinity();
  for (uint32_t t = 0; t < input.tokens; ++t) {
    weight_[t] = Dot(q, k + size_t{t} * input.k_dim, input.k_dim) * scale;
    largest = std::max(largest, weight_[t]);
  }
  float sum = 0;
  for (float& w : weight_) {
    w = std::exp(w - largest);
    sum += w;
  }
  out->assign(input.v_dim, 0.0f);
  float* o = out->data();
  for (uint32_t t = 0; t < input.tokens; ++t) {
    const float p = weight_[t] / sum;
    const float* row = v + size_t{t} * input.v_dim;
    for (uint32_t c = 0; c < input.v_dim; ++c) {
      o[c] += p * row[c];
    }
  }
}

AttentionSums ProxyMeter::Measure(const ProxyInput& input, uint32_t queries) {
  AttentionSums sums;
  const uint32_t count = std::min(queries, input.tokens);
  for (uint32_t i = 0; i < count; ++i) {
    const float* q = input.k + size_t{ProxyToken(i, count, input.tokens)} * input.k_dim;
    Output(q, input.k, input.v, input, &exact_);
    Output(q, input.k_decoded, input.v_decoded, input, &decoded_);
    for (uint32_t c = 0; c < input.v_dim; ++c) {
      const double difference = static_cast<double>(decoded_[c]) - static_cast<double>(exact_[c]);
      sums.error += difference * difference;
      sums.size += static_cast<double>(exact_[c]) * static_cast<double>(exact_[c]);
    }
  }
  return sums;
}

double ErrorRecord::LayerError(size_t layer) const {
  if (!measured) {
    return std::numeric_limits<double>::infinity();
  }
  return AttentionSums{layers[layer].error, layers[layer].size}.Relative();
}

double ErrorRecord::Mean() const {
  if (!measured) {
    return std::numeric_limits<double>::infinity();
  }
  double sum = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    sum += LayerError(layer);
  }
  return layers.empty() ? 0 : sum / static_cast<double>(layers.size());
}

double ErrorRecord::Max() const {
  if (!measured) {
    return std::numeric_limits<double>::infinity();
  }
  double largest = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    largest = std::max(largest, LayerError(layer));
  }
  return largest;
}

}  // namespace tokura::kernels
