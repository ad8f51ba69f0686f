// The error record on AMX, with AVX-512 and its bfloat16 conversions around it.

#include "kernels/tile_record.h"

#include <cmath>

#include <immintrin.h>

#include "kernels/isa/elements.h"
#include "kernels/isa/isa.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {
namespace TOKURA_ISA {
namespace {

static_assert(kRecordTile * kRecordTile == kTileRows && kRecordTile == kRecordQuad);

// The tile registers are this thread's while one of these lives. All eight have sixteen rows of 64
// bytes.
class TileScope {
 public:
  TileScope() {
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    const Config config;
    _tile_loadconfig(&config);
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

inline __m512i Rounded(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}
inline __mmask16 FirstLanes(uint32_t count) {
  return count >= kLanes ? static_cast<__mmask16>(0xffff)
                         : static_cast<__mmask16>((1u << count) - 1);
}
// Sixteen floats from `p`, those beyond `count` zero and not read.
inline __m512 LoadUpTo(const float* p, uint32_t count) {
  return _mm512_maskz_loadu_ps(FirstLanes(count), p);
}

// (a0, b0, a1, b1, …) of sixteen lanes each, rounded.
inline __m512i Pairs(__m512 a, __m512 b) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), Rounded(a, b));
}

// Lane i of out[j] is lane j of in[i].
inline void Transpose(const __m512 in[kTileRows], __m512 out[kTileRows]) {
  __m512 a[kTileRows];
  for (uint32_t i = 0; i < kTileRows; i += 2) {
    a[i] = _mm512_unpacklo_ps(in[i], in[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(in[i], in[i + 1]);
  }
  __m512 b[kTileRows];
  for (uint32_t i = 0; i < kTileRows; i += 4) {
    for (uint32_t half = 0; half < 2; ++half) {
      const __m512d low = _mm512_castps_pd(a[i + half]);
      const __m512d high = _mm512_castps_pd(a[i + 2 + half]);
      b[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      b[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
  // Lane group g of b[4 r + c] has rows 4 r … 4 r + 3 of column 4 g + c.
  for (uint32_t c = 0; c < kRecordQuad; ++c) {
    const __m512 even01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
    const __m512 odd01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
    const __m512 even23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
    const __m512 odd23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
    out[c] = _mm512_shuffle_f32x4(even01, even23, 0x88);
    out[8 + c] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
    out[4 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    out[12 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
  }
}

// ---- operands ----

// The quads of channels of four queries, [4 queries][4 channels] each, of four tiles of queries, to
// [4 channels][16 queries].
inline void TurnQuad(const float* const tiles[kRecordTile], size_t quad, __m512 out[kRecordQuad]) {
  __m512 rows[kRecordQuad];
  for (uint32_t t = 0; t < kRecordQuad; ++t) {
    rows[t] =
        tiles[t] == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(tiles[t] + quad * kTileRows);
  }
  // Lane 4 q + c of rows[t] is channel c of query 4 t + q.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (__m512& row : rows) {
    row = _mm512_permutexvar_ps(order, row);  // [channel][query]
  }
  const __m512 low01 = _mm512_shuffle_f32x4(rows[0], rows[1], 0x44);
  const __m512 high01 = _mm512_shuffle_f32x4(rows[0], rows[1], 0xee);
  const __m512 low23 = _mm512_shuffle_f32x4(rows[2], rows[3], 0x44);
  const __m512 high23 = _mm512_shuffle_f32x4(rows[2], rows[3], 0xee);
  out[0] = _mm512_shuffle_f32x4(low01, low23, 0x88);
  out[1] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
  out[2] = _mm512_shuffle_f32x4(high01, high23, 0x88);
  out[3] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
}

// Turns the pairs (a[j], b[j]) by rotations[j].
inline void RotateQuads(const Rotation* rotations, __m512 a[kRecordQuad], __m512 b[kRecordQuad]) {
  for (uint32_t j = 0; j < kRecordQuad; ++j) {
    const __m512 cosine = _mm512_set1_ps(rotations[j].cosine);
    const __m512 sine = _mm512_set1_ps(rotations[j].sine);
    const __m512 x = a[j];
    a[j] = _mm512_fmsub_ps(x, cosine, _mm512_mul_ps(b[j], sine));
    b[j] = _mm512_fmadd_ps(b[j], cosine, _mm512_mul_ps(x, sine));
  }
}

inline void StoreQuad(const __m512 x[kRecordQuad], size_t quad, uint16_t* packed) {
  _mm512_store_si512(packed + quad * 2 * kTileDepth, Pairs(x[0], x[1]));
  _mm512_store_si512(packed + (quad * 2 + 1) * kTileDepth, Pairs(x[2], x[3]));
}

// Sixteen queries, in four tiles of which the last ones may be absent.
void PackTile(const TileQueries& queries, const float* const tiles[kRecordTile], uint16_t* packed) {
  const uint32_t turned_end = queries.first_turned + 2 * queries.half_turned;
  for (uint32_t quad = 0; quad < queries.quads; ++quad) {
    if (quad >= queries.first_turned && quad < turned_end) {
      continue;
    }
    __m512 x[kRecordQuad];
    TurnQuad(tiles, quad, x);
    StoreQuad(x, quad, packed);
  }
  for (uint32_t i = 0; i < queries.half_turned; ++i) {
    const uint32_t quad = queries.first_turned + i;
    __m512 a[kRecordQuad];
    __m512 b[kRecordQuad];
    TurnQuad(tiles, quad, a);
    TurnQuad(tiles, quad + queries.half_turned, b);
    RotateQuads(queries.rotations + size_t{i} * kRecordQuad, a, b);
    StoreQuad(a, quad, packed);
    StoreQuad(b, quad + queries.half_turned, packed);
  }
}

void PackQueries(const TileOperands& operands, const TileQueries& queries) {
  const uint32_t tiles = (operands.queries + kRecordTile - 1) / kRecordTile;
  const size_t tile_floats = size_t{queries.quads} * kTileRows;
  for (uint32_t m = 0; m < operands.query_tiles; ++m) {
    const float* from[kRecordTile];
    for (uint32_t t = 0; t < kRecordTile; ++t) {
      const uint32_t tile = m * kRecordTile + t;
      from[t] = tile < tiles ? queries.tiles + tile * tile_floats : nullptr;
    }
    PackTile(queries, from, operands.packed_queries + size_t{m} * operands.k_columns * kTileRows);
  }
}

// Channels [c, c + 16) of a row of `dim`, those beyond it zero.
template <DType kType>
inline __m512 LoadChannels(const std::byte* row, uint32_t c, uint32_t dim) {
  if (c + kLanes <= dim) {
    return LoadAs<kType>(row + size_t{c} * kBytesOf<kType>).v;
  }
  if (c >= dim) {
    return _mm512_setzero_ps();
  }
  return _mm512_maskz_mov_ps(FirstLanes(dim - c),
                             LoadFewAs<kType>(row + size_t{c} * kBytesOf<kType>, dim - c).v);
}
// Null where nothing is decoded.
inline const float* DecodedRow(const TileRows& rows, uint32_t t) {
  return rows.maybe_decoded == nullptr ? nullptr : rows.maybe_decoded + size_t{t} * rows.dim;
}
inline __m512 LoadDecoded(const float* row, uint32_t c, uint32_t dim) {
  return c >= dim ? _mm512_setzero_ps() : LoadUpTo(row + c, dim - c);
}

template <DType kType>
void PackKeysAs(const TileOperands& operands, const TileRows& rows) {
  for (uint32_t t = 0; t < rows.count; ++t) {
    const std::byte* exact = rows.exact + static_cast<int64_t>(t) * rows.stride;
    const float* maybe_decoded = DecodedRow(rows, t);
    const size_t row = size_t{rows.first + t} * operands.k_columns;
    for (uint32_t c = 0; c < rows.dim; c += kTileDepth) {
      const __m512 a = LoadChannels<kType>(exact, c, rows.dim);
      const __m512 b = LoadChannels<kType>(exact, c + kLanes, rows.dim);
      _mm512_store_si512(operands.keys + row + c, Rounded(a, b));
      if (!operands.k_exact) {
        const __m512 a_error = _mm512_sub_ps(LoadDecoded(maybe_decoded, c, rows.dim), a);
        const __m512 b_error = _mm512_sub_ps(LoadDecoded(maybe_decoded, c + kLanes, rows.dim), b);
        _mm512_store_si512(operands.key_errors + row + c, Rounded(a_error, b_error));
      }
    }
  }
}

template <DType kType>
void PackValuesAs(const TileOperands& operands, const TileRows& rows) {
  const uint32_t dim = operands.v_dim;
  for (uint32_t t = 0; t < rows.count; t += 2) {
    // A last token without a second one beside it has no channels there.
    const uint32_t next_dim = t + 1 < rows.count ? dim : 0;
    const uint32_t t_next = next_dim == 0 ? t : t + 1;
    const std::byte* exact = rows.exact + static_cast<int64_t>(t) * rows.stride;
    const std::byte* next = rows.exact + static_cast<int64_t>(t_next) * rows.stride;
    const float* maybe_decoded = DecodedRow(rows, t);
    const float* maybe_next_decoded = DecodedRow(rows, t_next);
    const size_t row = size_t{rows.first + t} * operands.v_columns;
    for (uint32_t c = 0; c < dim; c += kLanes) {
      const size_t at = row + size_t{c} * 2;
      const __m512 a = LoadChannels<kType>(exact, c, dim);
      const __m512 b = LoadChannels<kType>(next, c, next_dim);
      _mm512_store_si512(operands.values + at, Pairs(a, b));
      if (!operands.v_exact) {
        const __m512 a_error = _mm512_sub_ps(LoadDecoded(maybe_decoded, c, dim), a);
        const __m512 b_error = _mm512_sub_ps(LoadDecoded(maybe_next_decoded, c, next_dim), b);
        _mm512_store_si512(operands.value_errors + at, Pairs(a_error, b_error));
      }
    }
  }
}

void PackValues(const TileOperands& operands, const TileRows& rows) {
  WithType(rows.dtype, [&]<DType kType>() { PackValuesAs<kType>(operands, rows); });
}

// ---- scores ----

// Scores of sixteen tokens in tile 0, what decoding adds in tile 2; for two tiles of queries the
// second one's in 1 and 3. Sums take turns: the result of an instruction is there only after some
// others have begun.
template <bool kBoth>
inline void ScoreTile(const TileOperands& operands, uint32_t token, uint32_t m) {
  const size_t key_bytes = size_t{operands.k_columns} * 2;
  const uint16_t* keys = operands.keys + size_t{token} * operands.k_columns;
  const uint16_t* errors = operands.key_errors + size_t{token} * operands.k_columns;
  const uint16_t* first = operands.packed_queries + size_t{m} * operands.k_columns * kTileRows;
  const uint16_t* second = first + size_t{operands.k_columns} * kTileRows;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint32_t k = 0; k < operands.k_columns; k += kTileDepth) {
    _tile_loadd(4, keys + k, key_bytes);
    _tile_loadd(6, first + size_t{k} * kTileRows, kTileRows * 4);
    _tile_dpbf16ps(0, 4, 6);
    if (kBoth) {
      _tile_loadd(7, second + size_t{k} * kTileRows, kTileRows * 4);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (!operands.k_exact) {
      _tile_loadd(5, errors + k, key_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if (kBoth) {
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
}

void Score(const TileOperands& operands, const TileRows& rows) {
  WithType(rows.dtype, [&]<DType kType>() { PackKeysAs<kType>(operands, rows); });
  const TileScope tiles;
  const size_t of_queries = size_t{operands.token_rows} * kTileRows;
  for (uint32_t t = rows.first; t < rows.first + rows.count; t += kTileRows) {
    for (uint32_t m = 0; m < operands.query_tiles; m += 2) {
      const size_t at = m * of_queries + size_t{t} * kTileRows;
      const bool both = m + 1 < operands.query_tiles;
      both ? ScoreTile<true>(operands, t, m) : ScoreTile<false>(operands, t, m);
      _tile_stored(0, operands.scores + at, kTileRows * 4);
      _tile_stored(2, operands.score_errors + at, kTileRows * 4);
      if (both) {
        _tile_stored(1, operands.scores + at + of_queries, kTileRows * 4);
        _tile_stored(3, operands.score_errors + at + of_queries, kTileRows * 4);
      }
    }
  }
}

// ---- weights ----

// e^x for −87 ≤ x ≤ 0, to 3e-6 of itself; NaN stays NaN. 2^n · 2^f with |f| ≤ 1/2, the second one
// by its Taylor series.
inline __m512 ExpOfNegative(__m512 x) {
  const __m512 y = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(y, n);
  __m512 series = _mm512_set1_ps(1.33335581e-3f);
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(9.61812911e-3f));
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(5.55041087e-2f));
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(2.40226507e-1f));
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(6.93147181e-1f));
  series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(series, n);
}

// Sixteen queries, one a lane: exponentials in place of `scores` [tokens][16], none of which is
// above `top`. Returns what they have to be multiplied with.
inline __m512 Exponentials(uint32_t tokens, __m512 top, float* scores) {
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (uint32_t t = 0; t < tokens; ++t) {
    const __m512 x = ExpOfNegative(_mm512_sub_ps(_mm512_load_ps(scores + t * kTileRows), top));
    _mm512_store_ps(scores + t * kTileRows, x);
    sum[t % 2] = _mm512_add_ps(sum[t % 2], x);
  }
  return _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_add_ps(sum[0], sum[1]));
}

// Thirty-two tokens' vectors as sixteen queries' rows of `out`, `stride` apart.
inline void StoreTurned(const __m512 rows[2 * kTileRows], size_t stride, uint16_t* out) {
  __m512 first[kTileRows];
  __m512 second[kTileRows];
  Transpose(rows, first);
  Transpose(rows + kTileRows, second);
#pragma GCC unroll 16
  for (uint32_t q = 0; q < kTileRows; ++q) {
    _mm512_store_si512(out + q * stride, Rounded(first[q], second[q]));
  }
}

void FindWeightsOf(const TileOperands& operands, uint32_t m) {
  const size_t stride = operands.token_rows;
  float* exact = operands.scores + m * stride * kTileRows;
  float* decoded = operands.score_errors + m * stride * kTileRows;
  uint16_t* weights = operands.weights + m * stride * kTileRows;
  uint16_t* errors = operands.weight_errors + m * stride * kTileRows;
  __m512 top = _mm512_load_ps(exact);
  __m512 decoded_top = _mm512_set1_ps(-INFINITY);
  for (uint32_t t = 0; t < operands.tokens; ++t) {
    const __m512 score = _mm512_load_ps(exact + t * kTileRows);
    top = _mm512_max_ps(score, top);
    if (!operands.k_exact) {
      const __m512 with_error = _mm512_add_ps(score, _mm512_load_ps(decoded + t * kTileRows));
      _mm512_store_ps(decoded + t * kTileRows, with_error);
      decoded_top = _mm512_max_ps(with_error, decoded_top);
    }
  }
  const __m512 scale = Exponentials(operands.tokens, top, exact);
  const __m512 decoded_scale =
      operands.k_exact ? scale : Exponentials(operands.tokens, decoded_top, decoded);
  for (uint32_t first = 0; first < operands.token_rows; first += 2 * kTileRows) {
    __m512 p[2 * kTileRows];
    __m512 d[2 * kTileRows];
#pragma GCC unroll 32
    for (uint32_t i = 0; i < 2 * kTileRows; ++i) {
      const size_t at = size_t{first + i} * kTileRows;
      const __mmask16 present = first + i < operands.tokens ? 0xffff : 0;
      p[i] = _mm512_maskz_mul_ps(present, _mm512_load_ps(exact + at), scale);
      d[i] = _mm512_maskz_fmsub_ps(present, _mm512_load_ps(decoded + at), decoded_scale, p[i]);
    }
    StoreTurned(p, stride, weights + first);
    if (!operands.k_exact) {
      StoreTurned(d, stride, errors + first);
    }
  }
}

// ---- outputs ----

// Sums of squares, in several parts that do not wait for each other.
struct Squares {
  __m512 parts[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                     _mm512_setzero_ps()};
  // Those of the first `rows` rows of `tile`.
  inline void Add(const float* tile, uint32_t rows) {
    for (uint32_t r = 0; r < rows; ++r) {
      const __m512 x = _mm512_load_ps(tile + r * kTileRows);
      parts[r % 4] = _mm512_fmadd_ps(x, x, parts[r % 4]);
    }
  }
  inline double sum() const {
    const __m512 all =
        _mm512_add_ps(_mm512_add_ps(parts[0], parts[1]), _mm512_add_ps(parts[2], parts[3]));
    return _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(all))) +
           _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(all, 1)));
  }
};

struct OutputTask {
  const uint16_t* weights = nullptr;  // of the tile of queries
  const uint16_t* weight_errors = nullptr;
  const uint16_t* values = nullptr;  // of the first of the channels
  const uint16_t* value_errors = nullptr;
};

// Of two tiles of channels the outputs P·V in tiles 0 and 1, and in 2 and 3 their errors
// ΔP·V + (P + ΔP)·ΔV; of one, for kBoth false, in 0 and 2.
template <bool kBoth>
inline void FindOutputs(const TileOperands& operands, const OutputTask& task) {
  const size_t weight_bytes = size_t{operands.token_rows} * 2;
  const size_t pair_bytes = size_t{operands.v_columns} * 4;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint32_t t = 0; t < operands.token_rows; t += kTileDepth) {
    const size_t at = size_t{t} * operands.v_columns;
    _tile_loadd(4, task.weights + t, weight_bytes);
    _tile_loadd(6, task.values + at, pair_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if (kBoth) {
      _tile_loadd(7, task.values + at + kTileDepth, pair_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (!operands.k_exact) {
      _tile_loadd(5, task.weight_errors + t, weight_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if (kBoth) {
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    if (operands.v_exact) {
      continue;
    }
    _tile_loadd(6, task.value_errors + at, pair_bytes);
    _tile_dpbf16ps(2, 4, 6);
    if (kBoth) {
      _tile_loadd(7, task.value_errors + at + kTileDepth, pair_bytes);
      _tile_dpbf16ps(3, 4, 7);
    }
    if (!operands.k_exact) {
      _tile_dpbf16ps(2, 5, 6);
      if (kBoth) {
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
}

RecordSums OutputsOf(const TileOperands& operands, uint32_t m) {
  const size_t of_tile = size_t{m} * operands.token_rows * kTileRows;
  const uint32_t left = operands.queries - m * kTileRows;
  const uint32_t queries = left < kTileRows ? left : kTileRows;
  alignas(64) float outputs[2][kTileRows * kTileRows];
  alignas(64) float errors[2][kTileRows * kTileRows];
  Squares size;
  Squares error;
  for (uint32_t c = 0; c < operands.v_columns; c += 2 * kTileRows) {
    const size_t at = size_t{c} * 2;
    const OutputTask task{operands.weights + of_tile, operands.weight_errors + of_tile,
                          operands.values + at, operands.value_errors + at};
    const bool both = c + kTileRows < operands.v_columns;
    both ? FindOutputs<true>(operands, task) : FindOutputs<false>(operands, task);
    _tile_stored(0, outputs[0], kTileRows * 4);
    _tile_stored(2, errors[0], kTileRows * 4);
    _tile_stored(1, outputs[1], kTileRows * 4);
    _tile_stored(3, errors[1], kTileRows * 4);
    for (uint32_t i = 0; i < (both ? 2u : 1u); ++i) {
      size.Add(outputs[i], queries);
      error.Add(errors[i], queries);
    }
  }
  return {error.sum(), size.sum()};
}

void Weigh(const TileOperands& operands) {
  for (uint32_t m = 0; m < operands.query_tiles; ++m) {
    FindWeightsOf(operands, m);
  }
}

RecordSums Measure(const TileOperands& operands) {
  const TileScope tiles;
  RecordSums sums;
  for (uint32_t m = 0; m < operands.query_tiles; ++m) {
    const RecordSums of_tile = OutputsOf(operands, m);
    sums.error += of_tile.error;
    sums.size += of_tile.size;
  }
  return sums;
}

}  // namespace

extern const TileRecordKernels kTileRecord;
constexpr TileRecordKernels kTileRecord = {PackQueries, Score, Weigh, PackValues, Measure};

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
