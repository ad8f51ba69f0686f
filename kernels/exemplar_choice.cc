#include "kernels/exemplar_choice.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "common/check.h"

namespace tokura::kernels {
namespace {

// What is known of a query on a block.
constexpr uint32_t kFeatures = 3;
struct Response {
  double size = 0;    // ‖o‖²
  double error4 = 0;  // of o, from noise as 4-bit codes by channel (K) and token (V) make it
  double error8 = 0;  // from noise as 8-bit codes by token make it
};

// A block with its axes swapped, so that loops over tokens vectorise, and the noise of its codes.
class Trial {
 public:
  Trial(uint32_t k_dim, const CalibrationBlock& block) : k_dim_(k_dim), block_(block) {
    k_columns_ = Columns(block.k.data(), k_dim);
    v_columns_ = Columns(block.v.data(), block.v_dim);
    weights_.resize(block.tokens);
    products_.resize(block.tokens);
    output_.resize(block.v_dim);
    NoiseOfChannels();
    NoiseOfTokens();
  }

  Response Respond(const float* q) {
    Attend(q);
    // Variance of the scores; that of 8-bit codes has the token's factor besides.
    double score4 = 0;
    double norm = 0;
    for (uint32_t c = 0; c < k_dim_; ++c) {
      const double square = static_cast<double>(q[c]) * static_cast<double>(q[c]);
      score4 += square * k_range_[c];
      norm += square;
    }
    Response response;
    for (const float o : output_) {
      response.size += static_cast<double>(o) * static_cast<double>(o);
    }
    std::fill(products_.begin(), products_.end(), 0.0f);
    AddProducts(v_columns_, output_.data(), block_.v_dim, &products_);
    for (uint32_t t = 0; t < block_.tokens; ++t) {
      const double p = weights_[t];
      const double distance =
          std::max(v_square_[t] - 2 * static_cast<double>(products_[t]) + response.size, 0.0);
      response.error4 += p * p * (v_range_[t] + score4 * distance);
      response.error8 += p * p * (v_peak_[t] + norm * k_peak_[t] * distance);
    }
    return response;
  }

 private:
  std::vector<float> Columns(const float* rows, uint32_t dim) const {
    std::vector<float> columns(size_t{block_.tokens} * dim);
    for (uint32_t t = 0; t < block_.tokens; ++t) {
      for (uint32_t c = 0; c < dim; ++c) {
        columns[size_t{c} * block_.tokens + t] = rows[size_t{t} * dim + c];
      }
    }
    return columns;
  }

  // (*sums)[t] += Σ_c factors[c] · columns[c][t].
  void AddProducts(const std::vector<float>& columns, const float* factors, uint32_t dim,
                   std::vector<float>* sums) const {
    for (uint32_t c = 0; c < dim; ++c) {
      const float factor = factors[c];
      const float* column = columns.data() + size_t{c} * block_.tokens;
      float* out = sums->data();
      for (uint32_t t = 0; t < block_.tokens; ++t) {
        out[t] += factor * column[t];
      }
    }
  }

  void Attend(const float* q) {
    std::fill(weights_.begin(), weights_.end(), 0.0f);
    AddProducts(k_columns_, q, k_dim_, &weights_);
    const float largest = *std::max_element(weights_.begin(), weights_.end());
    float sum = 0;
    for (float& w : weights_) {
      w = std::exp(w - largest);
      sum += w;
    }
    std::fill(output_.begin(), output_.end(), 0.0f);
    for (uint32_t t = 0; t < block_.tokens; ++t) {
      weights_[t] /= sum;
      const float* row = block_.v.data() + size_t{t} * block_.v_dim;
      for (uint32_t c = 0; c < block_.v_dim; ++c) {
        output_[c] += weights_[t] * row[c];
      }
    }
  }

  void NoiseOfChannels() {
    for (uint32_t c = 0; c < k_dim_; ++c) {
      const auto begin = k_columns_.begin() + static_cast<ptrdiff_t>(size_t{c} * block_.tokens);
      const auto [low, high] = std::minmax_element(begin, begin + block_.tokens);
      const double step = static_cast<double>(*high - *low) / 15;
      k_range_.push_back(step * step);
    }
  }

  void NoiseOfTokens() {
    for (uint32_t t = 0; t < block_.tokens; ++t) {
      const float* v = block_.v.data() + size_t{t} * block_.v_dim;
      const auto [low, high] = std::minmax_element(v, v + block_.v_dim);
      const double step4 = static_cast<double>(*high - *low) / 15;
      const double step8 = static_cast<double>(std::max(-*low, *high)) / 127;
      v_range_.push_back(block_.v_dim * step4 * step4);
      v_peak_.push_back(block_.v_dim * step8 * step8);
      double square = 0;
      for (uint32_t c = 0; c < block_.v_dim; ++c) {
        square += static_cast<double>(v[c]) * static_cast<double>(v[c]);
      }
      v_square_.push_back(square);
      double peak = 0;
      const float* k = block_.k.data() + size_t{t} * k_dim_;
      for (uint32_t c = 0; c < k_dim_; ++c) {
        peak = std::max(peak, std::abs(static_cast<double>(k[c])));
      }
      k_peak_.push_back(peak * peak / (127.0 * 127.0));
    }
  }

  const uint32_t k_dim_;
  const CalibrationBlock block_;
  std::vector<float> k_columns_;  // [k_dim, tokens]
  std::vector<float> v_columns_;  // [v_dim, tokens]
  std::vector<double> k_range_;   // [k_dim], squared step of 4-bit codes
  std::vector<double> v_range_;   // [tokens], the same, over all channels
  std::vector<double> k_peak_;    // [tokens], squared step of 8-bit codes
  std::vector<double> v_peak_;
  std::vector<double> v_square_;  // [tokens], ‖v‖²
  std::vector<float> weights_;    // of the last query
  std::vector<float> products_;
  std::vector<float> output_;
};

// One row of `features` [rows, count]: mean 0 after division by its mean. A row that is 0, as where
// nothing has noise, says nothing and stays 0.
void Centre(std::span<double> row) {
  double mean = 0;
  for (const double x : row) {
    mean += x;
  }
  mean /= static_cast<double>(row.size());
  const bool usable = mean > 0 && std::isfinite(mean);
  for (double& x : row) {
    x = usable ? x / mean - 1 : 0;
  }
}

std::vector<double> Features(const ExemplarPool& pool, std::span<const CalibrationBlock> blocks) {
  std::vector<double> features(blocks.size() * kFeatures * pool.count);
  for (size_t b = 0; b < blocks.size(); ++b) {
    Trial trial(pool.k_dim, blocks[b]);
    double* rows = features.data() + b * kFeatures * pool.count;
    for (size_t i = 0; i < size_t{pool.offsets} * pool.count; ++i) {
      const Response response = trial.Respond(pool.queries.data() + i * pool.k_dim);
      double* at = rows + i % pool.count;
      at[0] += response.size;
      at[pool.count] += response.error4;
      at[size_t{2} * pool.count] += response.error8;
    }
    for (uint32_t f = 0; f < kFeatures; ++f) {
      Centre({rows + size_t{f} * pool.count, pool.count});
    }
  }
  return features;
}

std::vector<uint32_t> EvenlySpread(uint32_t pool, uint32_t count) {
  std::vector<uint32_t> chosen(count);
  for (uint32_t i = 0; i < count; ++i) {
    chosen[i] = static_cast<uint32_t>(uint64_t{i} * pool / count);
  }
  return chosen;
}

}  // namespace

std::vector<uint32_t> ChooseExemplars(const ExemplarPool& pool,
                                      std::span<const CalibrationBlock> blocks, uint32_t count) {
  TOKURA_CHECK(pool.queries.size() == size_t{pool.offsets} * pool.count * pool.k_dim);
  count = std::min(count, pool.count);
  if (blocks.empty()) {
    return EvenlySpread(pool.count, count);
  }
  const std::vector<double> features = Features(pool, blocks);
  const size_t rows = features.size() / pool.count;
  std::vector<double> sums(rows);
  std::vector<bool> used(pool.count);
  std::vector<uint32_t> chosen;
  while (chosen.size() < count) {
    std::vector<double> costs(pool.count);
    for (size_t r = 0; r < rows; ++r) {
      const double* row = features.data() + r * pool.count;
      for (uint32_t i = 0; i < pool.count; ++i) {
        const double off = sums[r] + row[i];
        costs[i] += off * off;
      }
    }
    uint32_t best = pool.count;
    double lowest = std::numeric_limits<double>::infinity();
    for (uint32_t i = 0; i < pool.count; ++i) {
      if (!used[i] && (best == pool.count || costs[i] < lowest)) {
        best = i;
        lowest = costs[i];
      }
    }
    used[best] = true;
    chosen.push_back(best);
    for (size_t r = 0; r < rows; ++r) {
      sums[r] += features[r * pool.count + best];
    }
  }
  return chosen;
}

}  // namespace tokura::kernels
