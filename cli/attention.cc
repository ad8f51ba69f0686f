#include "cli/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "kernels/float_convert.h"

namespace tokura::cli {
namespace {

// Four sums, so that the additions do not wait for one another.
double Dot(const float* a, const float* b, size_t count) {
  double sum[4] = {};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) {
      sum[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  for (; i < count; ++i) {
    sum[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <typename T>
void AddSquares(std::span<const T> exact, std::span<const T> approximate, ErrorSums* sums) {
  TOKURA_CHECK(exact.size() == approximate.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double e = exact[i];
    const double difference = static_cast<double>(approximate[i]) - e;
    sums->error += difference * difference;
    sums->size += e * e;
  }
}

}  // namespace

std::vector<float> WidenHalf(std::span<const uint16_t> values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), kernels::HalfToFloat);
  return out;
}

TokenRange Intersect(const TokenRange& a, const TokenRange& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

TokenRange VisibleTokens(size_t position, const Visibility& visibility) {
  const size_t end = std::min(position + 1, visibility.tokens);
  const size_t hidden = visibility.window == 0 || position + 1 < visibility.window
                            ? 0
                            : position + 1 - visibility.window;
  return {hidden, end};
}

void Scores(const HeadKv& kv, std::span<const float> query, double scale, const TokenRange& range,
            std::vector<double>* scores) {
  TOKURA_CHECK(query.size() == kv.head_dim && range.end <= kv.tokens());
  scores->resize(range.empty() ? 0 : range.end - range.begin);
  for (size_t i = 0; i < scores->size(); ++i) {
    const float* key = kv.k.data() + (range.begin + i) * kv.head_dim;
    (*scores)[i] = scale * Dot(query.data(), key, kv.head_dim);
  }
}

void SoftmaxAverage(const HeadKv& kv, std::span<const double> scores, size_t origin,
                    const TokenRange& range, std::vector<double>* out) {
  TOKURA_CHECK(!range.empty() && range.begin >= origin && range.end - origin <= scores.size());
  const auto used = scores.subspan(range.begin - origin, range.end - range.begin);
  const double highest = *std::max_element(used.begin(), used.end());
  out->assign(kv.head_dim, 0.0);
  double total = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    const double weight = std::exp(used[i] - highest);
    const float* value = kv.v.data() + (range.begin + i) * kv.head_dim;
    total += weight;
    for (size_t c = 0; c < kv.head_dim; ++c) {
      (*out)[c] += weight * static_cast<double>(value[c]);
    }
  }
  for (double& element : *out) {
    element /= total;
  }
}

void ErrorSums::Add(std::span<const double> exact, std::span<const double> approximate) {
  AddSquares(exact, approximate, this);
}

void ErrorSums::Add(std::span<const float> exact, std::span<const float> approximate) {
  AddSquares(exact, approximate, this);
}

double ErrorSums::Relative() const {
  if (error == 0) {
    return 0;
  }
  return size > 0 ? std::sqrt(error / size) : std::numeric_limits<double>::infinity();
}

}  // namespace tokura::cli
