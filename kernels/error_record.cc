#include "kernels/error_record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/exponential.h"
#include "kernels/kernel_set.h"
#include "kernels/part.h"

namespace tokura::kernels {
namespace {

constexpr uint32_t kLanes = 16;
// Four floats, which every machine of this architecture has registers for. Wider ones are spilled.
using Quad = float __attribute__((vector_size(16)));
constexpr uint32_t kQuads = kLanes / 4;

void Multiply(const RecordProduct& p, const float* b, float* out) {
  if (const auto product = ActiveKernels().record_product) {
    return product(p, b, out);
  }
  for (uint32_t r = 0; r < p.rows; ++r) {
    const float* a = p.a + r * p.row_stride;
    Quad sum[kQuads] = {};
    for (uint32_t j = 0; j < p.terms; ++j) {
      Quad row[kQuads];
      std::memcpy(row, b + size_t{j} * kLanes, sizeof(row));
      for (uint32_t i = 0; i < kQuads; ++i) {
        sum[i] += a[j * p.stride] * row[i];
      }
    }
    std::memcpy(out + size_t{r} * kLanes, sum, sizeof(sum));
  }
}

// NaN stays NaN, and with it what cannot be measured remains to be seen; the codecs' exponential
// makes a number of it.
inline float WeightOf(float x) {
  return std::isnan(x) ? x : ExpOfNegative(x);
}

// Softmax over `tokens` rows, each lane for itself.
void Softmax(uint32_t tokens, float* weights) {
  if (const auto softmax = ActiveKernels().record_softmax) {
    return softmax(tokens, weights);
  }
  float largest[kLanes];
  std::memcpy(largest, weights, sizeof(largest));
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t m = 0; m < kLanes; ++m) {
      const float w = weights[size_t{t} * kLanes + m];
      largest[m] = w > largest[m] ? w : largest[m];
    }
  }
  float sum[kLanes] = {};
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t m = 0; m < kLanes; ++m) {
      float* w = weights + size_t{t} * kLanes + m;
      *w = WeightOf(*w - largest[m]);
      sum[m] += *w;
    }
  }
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t m = 0; m < kLanes; ++m) {
      weights[size_t{t} * kLanes + m] /= sum[m];
    }
  }
}

// Token that proxy `index` of `count` is the key of.
uint32_t ProxyToken(uint32_t index, uint32_t count, uint32_t tokens) {
  return count == 1 ? tokens / 2
                    : static_cast<uint32_t>(uint64_t{index} * (tokens - 1) / (count - 1));
}

// Attention over huge values overflows fp32. What cannot be measured is declared as infinite.
AttentionSums Measurable(const AttentionSums& sums) {
  return std::isfinite(sums.error) && std::isfinite(sums.size)
             ? sums
             : AttentionSums{std::numeric_limits<double>::infinity(), 0};
}

}  // namespace

void RecordMeter::LoadProxies(const RecordInput& input, uint32_t first, uint32_t count) {
  static_assert(kTile == kLanes);
  const float scale = 1.0f / std::sqrt(static_cast<float>(input.k_dim));
  queries_.assign(size_t{input.k_dim} * kTile, 0.0f);
  for (uint32_t m = 0; m < kTile && first + m < count; ++m) {
    const float* q = input.k + size_t{ProxyToken(first + m, count, input.tokens)} * input.k_dim;
    for (uint32_t c = 0; c < input.k_dim; ++c) {
      queries_[size_t{c} * kTile + m] = q[c] * scale;
    }
  }
}

void RecordMeter::FindRotations(const Exemplars& exemplars, uint64_t last_position) {
  if (last_position == last_position_ &&
      std::equal(turns_.begin(), turns_.end(), exemplars.turns.begin(), exemplars.turns.end())) {
    return;
  }
  turns_.assign(exemplars.turns.begin(), exemplars.turns.end());
  last_position_ = last_position;
  rotations_.resize(turns_.size());
  RotationsAt(turns_, last_position, rotations_);
}

void RecordMeter::LoadExemplars(const Exemplars& exemplars, uint32_t tile) {
  const size_t floats = size_t{exemplars.k_dim} * kTile;
  const float* stored = exemplars.tiles + tile * floats;
  queries_.assign(stored, stored + floats);
  for (uint32_t i = 0; i < exemplars.rope.pairs(); ++i) {
    const RopeShape::Pair pair = exemplars.rope.PairAt(i);
    const Rotation turn = rotations_[i];
    float* a = queries_.data() + size_t{pair.a} * kTile;
    float* b = queries_.data() + size_t{pair.b} * kTile;
    for (uint32_t m = 0; m < kTile; ++m) {
      const float x = a[m];
      const float y = b[m];
      a[m] = x * turn.cosine - y * turn.sine;
      b[m] = y * turn.cosine + x * turn.sine;
    }
  }
}

void RecordMeter::Output(const float* k, const float* v, const RecordInput& input,
                         std::vector<float>* out) {
  weights_.resize(size_t{input.tokens} * kTile);
  out->resize(size_t{input.v_dim} * kTile);
  Multiply({k, input.k_dim, 1, input.tokens, input.k_dim}, queries_.data(), weights_.data());
  Softmax(input.tokens, weights_.data());
  Multiply({v, 1, input.v_stride, input.v_dim, input.tokens}, weights_.data(), out->data());
}

// The first `used` queries of the tile that is loaded.
void RecordMeter::AddTile(const RecordInput& input, uint32_t used, AttentionSums* sums) {
  Output(input.k, input.v, input, &exact_);
  Output(input.k_decoded, input.v_decoded, input, &decoded_);
  for (uint32_t c = 0; c < input.v_dim; ++c) {
    for (uint32_t m = 0; m < used; ++m) {
      const double exact = exact_[size_t{c} * kTile + m];
      const double difference = static_cast<double>(decoded_[size_t{c} * kTile + m]) - exact;
      sums->error += difference * difference;
      sums->size += exact * exact;
    }
  }
}

AttentionSums RecordMeter::MeasureExemplars(const RecordInput& input, const Exemplars& exemplars,
                                            uint64_t last_position) {
  AttentionSums sums;
  if (input.tokens == 0) {
    return sums;
  }
  FindRotations(exemplars, last_position);
  for (uint32_t tile = 0; tile < exemplars.tile_count(); ++tile) {
    LoadExemplars(exemplars, tile);
    AddTile(input, std::min(kTile, exemplars.count - tile * kTile), &sums);
  }
  return Measurable(sums);
}

AttentionSums RecordMeter::MeasureProxies(const RecordInput& input, uint32_t queries) {
  AttentionSums sums;
  const uint32_t count = std::min(queries, input.tokens);
  for (uint32_t first = 0; first < count; first += kTile) {
    LoadProxies(input, first, count);
    AddTile(input, std::min(kTile, count - first), &sums);
  }
  return Measurable(sums);
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
