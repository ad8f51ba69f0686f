#include "kernels/record_kernels.h"

#include <cmath>

#include "kernels/exponential.h"
#include "kernels/fused.h"

namespace tokura::kernels {
namespace {

constexpr uint32_t kTileFloats = kRecordTile * kRecordQuad;

// NaN stays NaN, and with it what cannot be measured remains to be seen; the codecs' exponential
// makes a number of it.
float WeightOf(float x) {
  return std::isnan(x) ? x : ExpOfNegative(x);
}

float Larger(float a, float b) {
  return a > b ? a : b;
}

// One query of a tile: its scores are quads of tokens, kTileFloats apart.
void SoftmaxOfQuery(uint32_t tokens, float* scores) {
  const uint32_t groups = (tokens + kRecordQuad - 1) / kRecordQuad;
  const auto at = [&](uint32_t token) -> float& {
    return scores[token / kRecordQuad * kTileFloats + token % kRecordQuad];
  };
  float largest[kRecordQuad];
  float sum[kRecordQuad] = {};
  for (uint32_t i = 0; i < kRecordQuad; ++i) {
    largest[i] = i < tokens ? at(i) : at(0);
    for (uint32_t t = kRecordQuad + i; t < tokens; t += kRecordQuad) {
      largest[i] = Larger(at(t), largest[i]);
    }
  }
  const float top = Larger(Larger(largest[0], largest[1]), Larger(largest[2], largest[3]));
  for (uint32_t t = 0; t < groups * kRecordQuad; ++t) {
    at(t) = t < tokens ? WeightOf(at(t) - top) : 0.0f;
    sum[t % kRecordQuad] += at(t);
  }
  const float inverse = 1.0f / ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (uint32_t t = 0; t < tokens; ++t) {
    at(t) *= inverse;
  }
}

// One query of a tile: its channels are quads, kTileFloats apart.
float ScoreOf(const float* key, const float* q, uint32_t quads) {
  float sum[kRecordQuad] = {};
  for (size_t quad = 0; quad < quads; ++quad) {
    for (uint32_t i = 0; i < kRecordQuad; ++i) {
      sum[i] = MultiplyAdd(key[quad * kRecordQuad + i], q[quad * kTileFloats + i], sum[i]);
    }
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace

void ScalarRecordScores(const RecordKeys& keys, const RecordQueries& queries, float* scores) {
  for (uint32_t tile = 0; tile < queries.tiles; ++tile) {
    const float* q = queries.q + size_t{tile} * keys.quads * kTileFloats;
    float* out = scores + tile * queries.score_stride;
    for (uint32_t t = 0; t < keys.tokens; ++t) {
      const float* key = keys.k + size_t{t} * keys.quads * kRecordQuad;
      float* at = out + t / kRecordQuad * kTileFloats + t % kRecordQuad;
      for (uint32_t m = 0; m < kRecordTile; ++m) {
        at[m * kRecordQuad] = ScoreOf(key, q + m * kRecordQuad, keys.quads);
      }
    }
  }
}

void ScalarRecordSoftmax(uint32_t tokens, float* scores) {
  for (uint32_t m = 0; m < kRecordTile; ++m) {
    SoftmaxOfQuery(tokens, scores + m * kRecordQuad);
  }
}

void ScalarRecordOutputs(const RecordValues& values, const float* weights, float* out) {
  for (uint32_t t = 0; t < values.tokens; ++t) {
    const float* row = values.v + t * values.stride;
    for (uint32_t m = 0; m < kRecordTile; ++m) {
      const float weight =
          weights[t / kRecordQuad * kTileFloats + m * kRecordQuad + t % kRecordQuad];
      float* sums = out + size_t{m} * values.dim;
      for (uint32_t c = 0; c < values.dim; ++c) {
        sums[c] = MultiplyAdd(weight, row[c], sums[c]);
      }
    }
  }
}

void ScalarRecordSums(const float* exact, const float* decoded, size_t count, RecordSums* sums) {
  constexpr size_t kParts = 16;
  double error[kParts] = {};
  double size[kParts] = {};
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(exact[i]);
    const double difference = static_cast<double>(decoded[i]) - value;
    error[i % kParts] += difference * difference;
    size[i % kParts] += value * value;
  }
  for (size_t half = kParts / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) {
      error[i] += error[i + half];
      size[i] += size[i + half];
    }
  }
  sums->error += error[0];
  sums->size += size[0];
}

}  // namespace tokura::kernels
