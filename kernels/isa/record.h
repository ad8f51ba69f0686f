#pragma once

// The inner loops of the error record, with the plain code's sums in the plain code's order.
// Internal to kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/rows.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

static_assert(kRecordTile * kRecordQuad == kLanes);
static_assert(kRecordRows % kScoreRows == 0 && kRecordRows % kScoreRowsAlone == 0);

// The sums of the quads of a, b, c and d: of each quad, one of each.
inline Floats SumsOfQuads(Floats a, Floats b, Floats c, Floats d) {
  const Floats ab = Evens(a, b) + Odds(a, b);
  const Floats cd = Evens(c, d) + Odds(c, d);
  return Evens(ab, cd) + Odds(ab, cd);
}

// Scores of kRows tokens, whose keys begin at `k`, for kTiles tiles of queries.
template <uint32_t kTiles, uint32_t kRows>
inline void ScoreRows(const RecordKeys& keys, const float* k, const float* q, size_t score_stride,
                      float* scores) {
  const size_t stride = size_t{keys.quads} * kRecordQuad;
  Floats sum[kTiles][kRows];
  for (uint32_t i = 0; i < kTiles; ++i) {
    for (uint32_t r = 0; r < kRows; ++r) {
      sum[i][r] = Splat(0.0f);
    }
  }
  const float* query[kTiles];
  for (uint32_t i = 0; i < kTiles; ++i) {
    query[i] = q + i * stride * kRecordTile;
  }
  for (size_t quad = 0; quad < keys.quads; ++quad) {
    Floats x[kTiles];
    for (uint32_t i = 0; i < kTiles; ++i) {
      x[i] = LoadFloats(query[i] + quad * kLanes);
    }
    for (uint32_t r = 0; r < kRows; ++r) {
      const Floats key = LoadQuad(k + r * stride + quad * kRecordQuad);
      for (uint32_t i = 0; i < kTiles; ++i) {
        sum[i][r] = MultiplyAdd(key, x[i], sum[i][r]);
      }
    }
  }
  for (uint32_t i = 0; i < kTiles; ++i) {
    for (uint32_t r = 0; r < kRows; r += kRecordQuad) {
      const Floats* s = sum[i] + r;
      StoreFloats(scores + i * score_stride + r / kRecordQuad * kLanes,
                  SumsOfQuads(s[0], s[1], s[2], s[3]));
    }
  }
}

// Scores of all tokens for the tiles from `tile` on.
template <uint32_t kTiles, uint32_t kRows>
inline void ScoreTiles(const RecordKeys& keys, const RecordQueries& queries, uint32_t tile,
                       float* scores) {
  const size_t stride = size_t{keys.quads} * kRecordQuad;
  for (size_t t = 0; t < keys.tokens; t += kRows) {
    ScoreRows<kTiles, kRows>(keys, keys.k + t * stride, queries.q + tile * stride * kRecordTile,
                             queries.score_stride,
                             scores + tile * queries.score_stride + t * kRecordTile);
  }
}

// As KernelSet::record_scores.
inline void RecordScores(const RecordKeys& keys, const RecordQueries& queries, float* scores) {
  uint32_t tile = 0;
  for (; tile + kScoreTiles <= queries.tiles; tile += kScoreTiles) {
    ScoreTiles<kScoreTiles, kScoreRows>(keys, queries, tile, scores);
  }
  for (; tile < queries.tiles; ++tile) {
    ScoreTiles<1, kScoreRowsAlone>(keys, queries, tile, scores);
  }
}

// e^x for x ≤ 0, as exponential.h has it for one number, but that NaN stays NaN:
// record_kernels.cc.
inline Floats ExponentialOfNegative(Floats x) {
  const Floats clamped = SelectLess(x, Splat(-87.0f), Splat(-87.0f), x);
  const Ints n = Round(clamped * Splat(1.44269504f));
  const Floats whole = ToFloats(n);
  const Floats r = clamped - whole * Splat(0.693359375f) + whole * Splat(2.12194440e-4f);
  Floats series = Splat(1 / 120.0f) + r * Splat(1 / 720.0f);
  series = Splat(1 / 24.0f) + r * series;
  series = Splat(1 / 6.0f) + r * series;
  series = Splat(1 / 2.0f) + r * series;
  series = Splat(1.0f) + r * series;
  series = Splat(1.0f) + r * series;
  return series * AsFloats(ShiftLeft<23>(n + SplatInt(127)));
}

// The lanes of absent tokens of the last group: each quad's from lane `present` on to `value`, or
// to the quad's first lane.
enum class Absent : uint8_t { kAsFirst, kZero };
inline void FillAbsent(uint32_t present, Absent absent, float* group) {
  for (uint32_t m = 0; m < kRecordTile; ++m) {
    float* quad = group + m * kRecordQuad;
    for (uint32_t i = present; i < kRecordQuad; ++i) {
      quad[i] = absent == Absent::kZero ? 0.0f : quad[0];
    }
  }
}

// As KernelSet::record_softmax.
inline void RecordSoftmax(uint32_t tokens, float* scores) {
  const uint32_t groups = (tokens + kRecordQuad - 1) / kRecordQuad;
  float* last = scores + size_t{groups - 1} * kLanes;
  const uint32_t present = tokens - (groups - 1) * kRecordQuad;
  FillAbsent(present, Absent::kAsFirst, last);
  Floats largest = LoadFloats(scores);
  for (uint32_t g = 1; g < groups; ++g) {
    largest = Max(LoadFloats(scores + size_t{g} * kLanes), largest);
  }
  largest = Max(largest, Swap<1>(largest));
  largest = Max(largest, Swap<2>(largest));
  for (uint32_t g = 0; g < groups; ++g) {
    float* w = scores + size_t{g} * kLanes;
    StoreFloats(w, ExponentialOfNegative(LoadFloats(w) - largest));
  }
  FillAbsent(present, Absent::kZero, last);
  Floats sum = Splat(0.0f);
  for (uint32_t g = 0; g < groups; ++g) {
    sum = sum + LoadFloats(scores + size_t{g} * kLanes);
  }
  sum = sum + Swap<1>(sum);
  sum = sum + Swap<2>(sum);
  const Floats inverse = Splat(1.0f) / sum;
  for (uint32_t g = 0; g < groups; ++g) {
    float* w = scores + size_t{g} * kLanes;
    StoreFloats(w, LoadFloats(w) * inverse);
  }
}

// kVectors · 16 channels from `channel` on.
template <uint32_t kVectors>
inline void AddValues(const RecordValues& values, uint32_t channel, const float* weights,
                      float* out) {
  Floats sum[kRecordTile][kVectors];
  for (uint32_t m = 0; m < kRecordTile; ++m) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      sum[m][v] = LoadFloats(out + size_t{m} * values.dim + channel + v * kLanes);
    }
  }
  for (uint32_t t = 0; t < values.tokens; ++t) {
    const float* row = values.v + t * values.stride + channel;
    const float* weight = weights + t / kRecordQuad * kLanes + t % kRecordQuad;
    Floats x[kVectors];
    for (uint32_t v = 0; v < kVectors; ++v) {
      x[v] = LoadFloats(row + v * kLanes);
    }
    for (uint32_t m = 0; m < kRecordTile; ++m) {
      const Floats w = Splat(weight[m * kRecordQuad]);
      for (uint32_t v = 0; v < kVectors; ++v) {
        sum[m][v] = MultiplyAdd(w, x[v], sum[m][v]);
      }
    }
  }
  for (uint32_t m = 0; m < kRecordTile; ++m) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      StoreFloats(out + size_t{m} * values.dim + channel + v * kLanes, sum[m][v]);
    }
  }
}

// As KernelSet::record_outputs.
inline void RecordOutputs(const RecordValues& values, const float* weights, float* out) {
  uint32_t c = 0;
  for (; c + kValueVectors * kLanes <= values.dim; c += kValueVectors * kLanes) {
    AddValues<kValueVectors>(values, c, weights, out);
  }
  for (; c + kLanes <= values.dim; c += kLanes) {
    AddValues<1>(values, c, weights, out);
  }
  for (uint32_t m = 0; m < kRecordTile; ++m) {
    for (uint32_t rest = c; rest < values.dim; ++rest) {
      float* sum = out + size_t{m} * values.dim + rest;
      for (uint32_t t = 0; t < values.tokens; ++t) {
        const float* w = weights + t / kRecordQuad * kLanes + m * kRecordQuad + t % kRecordQuad;
        *sum = __builtin_fmaf(*w, values.v[t * values.stride + rest], *sum);
      }
    }
  }
}

// As KernelSet::record_sums.
inline void AddSquares(const float* exact, const float* decoded, size_t count, RecordSums* sums) {
  Doubles error = ToDoubles(Splat(0.0f));
  Doubles size = error;
  const auto add = [&](const float* one, const float* other) {
    const Doubles value = ToDoubles(LoadFloats(one));
    const Doubles difference = ToDoubles(LoadFloats(other)) - value;
    error = error + difference * difference;
    size = size + value * value;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    add(exact + i, decoded + i);
  }
  if (i < count) {
    float one[kLanes] = {};
    float other[kLanes] = {};
    std::memcpy(one, exact + i, (count - i) * sizeof(float));
    std::memcpy(other, decoded + i, (count - i) * sizeof(float));
    add(one, other);
  }
  sums->error += SumOf(error);
  sums->size += SumOf(size);
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
