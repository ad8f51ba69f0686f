#include "kernels/guided_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "kernels/exponential.h"

namespace tokura::kernels {
namespace {

// W, upper triangular, with H = W Wᵀ, in place of the upper triangle of `h` [n, n]. False: H is not
// positive definite.
bool FactorFromBelow(uint32_t n, std::vector<double>* h) {
  double* a = h->data();
  for (size_t j = n; j-- > 0;) {
    double* row_j = a + j * n;
    double pivot = row_j[j];
    for (size_t k = j + 1; k < n; ++k) {
      pivot -= row_j[k] * row_j[k];
    }
    if (!(pivot > 0) || !std::isfinite(pivot)) {
      return false;
    }
    row_j[j] = std::sqrt(pivot);
    for (size_t i = 0; i < j; ++i) {
      double* row_i = a + i * n;
      double sum = row_i[j];
      for (size_t k = j + 1; k < n; ++k) {
        sum -= row_i[k] * row_j[k];
      }
      row_i[j] = sum / row_j[j];
    }
  }
  return true;
}

// The inverse U of W, each row over its diagonal element, above the diagonal, row by row. UᵀU is
// the inverse of H.
void AppendInverseRows(uint32_t n, const std::vector<double>& w, std::vector<float>* out) {
  // Column by column from the diagonal up: u[i] = U[i][j].
  std::vector<double> u(size_t{n} * n);
  for (size_t j = 0; j < n; ++j) {
    u[j * n + j] = 1 / w[j * n + j];
    for (size_t i = j; i-- > 0;) {
      double sum = 0;
      for (size_t k = i + 1; k <= j; ++k) {
        sum += w[i * n + k] * u[k * n + j];
      }
      u[i * n + j] = -sum / w[i * n + i];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      out->push_back(static_cast<float>(u[i * n + j] * w[i * n + i]));
    }
  }
}

// Attention of queries over tokens: p [count, tokens] for one tile of queries.
class Softmax {
 public:
  explicit Softmax(const TokenGuideInput& input)
      : input_(input), transposed_(size_t{input.tokens} * input.k_dim), p_(input.tokens) {
    for (size_t t = 0; t < input.tokens; ++t) {
      for (size_t c = 0; c < input.k_dim; ++c) {
        transposed_[c * input.tokens + t] = input.k[t * input.k_dim + c];
      }
    }
  }

  // Each token's sum runs over the channels in order, whatever the compiler does across tokens.
  const std::vector<float>& Of(const float* query) {
    std::fill(p_.begin(), p_.end(), 0.0f);
    for (size_t c = 0; c < input_.k_dim; ++c) {
      const float* row = transposed_.data() + c * input_.tokens;
      const float q = query[c];
      for (size_t t = 0; t < input_.tokens; ++t) {
        p_[t] += q * row[t];
      }
    }
    const float largest = *std::max_element(p_.begin(), p_.end());
    float sum = 0;
    for (float& p : p_) {
      p = ExpOfNegative(p - largest);
      sum += p;
    }
    for (float& p : p_) {
      p /= sum;
    }
    return p_;
  }

 private:
  const TokenGuideInput& input_;
  std::vector<float> transposed_;  // [k_dim, tokens]
  std::vector<float> p_;
};

}  // namespace

void GuideArrays::Clear() {
  order.clear();
  factors.clear();
}

void AppendGuide(uint32_t n, std::span<const double> hessian, double damping, GuideArrays* out) {
  std::vector<uint16_t> order(n);
  std::iota(order.begin(), order.end(), uint16_t{0});
  double trace = 0;
  for (size_t i = 0; i < n; ++i) {
    trace += hessian[i * n + i];
  }
  const bool usable = trace > 0 && std::isfinite(trace);
  if (usable) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return hessian[a * n + a] > hessian[b * n + b]; });
  }
  out->order.insert(out->order.end(), order.begin(), order.end());
  std::vector<double> h(size_t{n} * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      h[i * n + j] = hessian[size_t{order[i]} * n + order[j]];
    }
    h[i * n + i] += damping * trace / n;
  }
  if (usable && FactorFromBelow(n, &h)) {
    AppendInverseRows(n, h, &out->factors);
  } else {
    out->factors.insert(out->factors.end(), size_t{n} * (n - 1) / 2, 0.0f);
  }
}

void MakeTokenGuides(const TokenGuideInput& input, GuideArrays* out) {
  out->Clear();
  if (input.tokens == 0) {
    return;
  }
  const size_t count = input.k_dim == 0 ? 0 : input.queries.size() / input.k_dim;
  const size_t runs = (size_t{input.tokens} + kGuideTokens - 1) / kGuideTokens;
  std::vector<double> sums(runs * kGuideTokens * kGuideTokens);
  Softmax softmax(input);
  for (size_t m = 0; m < count; ++m) {
    const std::vector<float>& p = softmax.Of(input.queries.data() + m * input.k_dim);
    for (size_t i = 0; i < input.tokens; ++i) {
      const size_t first = i / kGuideTokens * kGuideTokens;
      const size_t tokens = std::min<size_t>(kGuideTokens, input.tokens - first);
      double* row = sums.data() + first * kGuideTokens + (i - first) * tokens;
      const auto weight = static_cast<double>(p[i]);
      for (size_t j = 0; j < tokens; ++j) {
        row[j] += weight * static_cast<double>(p[first + j]);
      }
    }
  }
  for (uint32_t first = 0; first < input.tokens; first += kGuideTokens) {
    const uint32_t tokens = std::min(kGuideTokens, input.tokens - first);
    AppendGuide(tokens,
                std::span<const double>(sums).subspan(size_t{first} * kGuideTokens,
                                                      size_t{tokens} * tokens),
                kTokenDamping, out);
  }
}

}  // namespace tokura::kernels
