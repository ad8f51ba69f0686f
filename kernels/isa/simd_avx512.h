#pragma once

// The operations of simd.h in AVX-512 F, BW, DQ and VL.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/isa/isa.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

inline constexpr uint32_t kLanes = 16;
// Vectors whose extremes the registers hold while a loop goes over tokens.
inline constexpr uint32_t kSliceVectors = 4;
// Tokens and tiles of queries whose scores the registers hold, tokens where there is one tile, and
// vectors of outputs.
inline constexpr uint32_t kScoreRows = 8;
inline constexpr uint32_t kScoreRowsAlone = 16;
inline constexpr uint32_t kScoreTiles = 2;
inline constexpr uint32_t kValueVectors = 4;

struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Bytes {
  __m128i v;
};

inline Floats Splat(float x) {
  return {_mm512_set1_ps(x)};
}
inline Ints SplatInt(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline Floats LoadFloats(const void* p) {
  return {_mm512_loadu_ps(p)};
}
inline void StoreFloats(void* p, Floats x) {
  _mm512_storeu_ps(p, x.v);
}
inline Ints LoadInts(const void* p) {
  return {_mm512_loadu_si512(p)};
}
inline void StoreInts(void* p, Ints x) {
  _mm512_storeu_si512(p, x.v);
}
inline Floats LoadHalves(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
inline void StoreHalves(void* p, Floats x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Floats RoundToHalf(Floats x) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
inline Ints LoadWords(const void* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
inline void StoreWords(void* p, Ints x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x.v));
}

inline Floats operator+(Floats a, Floats b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Floats operator-(Floats a, Floats b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Floats operator*(Floats a, Floats b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Floats operator/(Floats a, Floats b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline Floats Min(Floats a, Floats b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline Floats Max(Floats a, Floats b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline Floats Magnitude(Floats x) {
  return {_mm512_abs_ps(x.v)};
}
inline Floats RoundUp(Floats x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)};
}

inline Ints operator+(Ints a, Ints b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline Ints operator-(Ints a, Ints b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
inline Ints operator&(Ints a, Ints b) {
  return {_mm512_and_si512(a.v, b.v)};
}
inline Ints operator|(Ints a, Ints b) {
  return {_mm512_or_si512(a.v, b.v)};
}
inline Ints operator^(Ints a, Ints b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
template <int kBits>
inline Ints ShiftLeft(Ints x) {
  return {_mm512_slli_epi32(x.v, kBits)};
}
template <int kBits>
inline Ints ShiftRight(Ints x) {
  return {_mm512_srli_epi32(x.v, kBits)};
}
inline Ints MinInt(Ints a, Ints b) {
  return {_mm512_min_epi32(a.v, b.v)};
}
inline Ints MaxInt(Ints a, Ints b) {
  return {_mm512_max_epi32(a.v, b.v)};
}

inline Floats AsFloats(Ints x) {
  return {_mm512_castsi512_ps(x.v)};
}
inline Ints AsInts(Floats x) {
  return {_mm512_castps_si512(x.v)};
}
inline Floats ToFloats(Ints x) {
  return {_mm512_cvtepi32_ps(x.v)};
}
inline Ints Round(Floats x) {
  return {_mm512_cvtps_epi32(x.v)};
}

inline Floats SelectLess(Floats a, Floats b, Floats then, Floats otherwise) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), otherwise.v, then.v)};
}
inline Floats SelectEqual(Floats a, Floats b, Floats then, Floats otherwise) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ), otherwise.v, then.v)};
}
inline Ints SelectGreater(Ints a, Ints b, Ints then, Ints otherwise) {
  return {_mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(a.v, b.v), otherwise.v, then.v)};
}
inline bool AllAtMost(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ) == 0xffff;
}

inline float MinOf(Floats x) {
  return _mm512_reduce_min_ps(x.v);
}
inline float MaxOf(Floats x) {
  return _mm512_reduce_max_ps(x.v);
}
inline uint32_t OrOf(Ints x) {
  return static_cast<uint32_t>(_mm512_reduce_or_epi32(x.v));
}

inline Floats SquareRoot(Floats x) {
  return {_mm512_sqrt_ps(x.v)};
}
// Lane i and lane i ^ kDistance change places.
template <uint32_t kDistance>
inline Floats Swap(Floats x) {
  if constexpr (kDistance >= 4) {
    constexpr int kOrder = kDistance == 8 ? 0x4e : 0xb1;
    return {_mm512_shuffle_f32x4(x.v, x.v, kOrder)};
  } else {
    constexpr int kOrder = kDistance == 2 ? 0x4e : 0xb1;
    return {_mm512_permute_ps(x.v, kOrder)};
  }
}
inline float SumOf(Floats x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
// a·b + c, rounded once.
inline Floats MultiplyAdd(Floats a, Floats b, Floats c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
// Four floats, in every quad of lanes.
inline Floats LoadQuad(const float* p) {
  return {_mm512_broadcast_f32x4(_mm_loadu_ps(p))};
}
// Of each quad the lanes 0 and 2 of `a`, then of `b`; lanes 1 and 3.
inline Floats Evens(Floats a, Floats b) {
  return {_mm512_shuffle_ps(a.v, b.v, 0x88)};
}
inline Floats Odds(Floats a, Floats b) {
  return {_mm512_shuffle_ps(a.v, b.v, 0xdd)};
}

// Sixteen lanes in double.
struct Doubles {
  __m512d a;
  __m512d b;
};
inline Doubles ToDoubles(Floats x) {
  return {_mm512_cvtps_pd(_mm512_castps512_ps256(x.v)),
          _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1))};
}
inline Doubles operator+(Doubles x, Doubles y) {
  return {_mm512_add_pd(x.a, y.a), _mm512_add_pd(x.b, y.b)};
}
inline Doubles operator-(Doubles x, Doubles y) {
  return {_mm512_sub_pd(x.a, y.a), _mm512_sub_pd(x.b, y.b)};
}
inline Doubles operator*(Doubles x, Doubles y) {
  return {_mm512_mul_pd(x.a, y.a), _mm512_mul_pd(x.b, y.b)};
}
// By halves, as SumOf(Floats).
inline double SumOf(Doubles x) {
  const __m512d eight = _mm512_add_pd(x.a, x.b);
  const __m256d four =
      _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

inline Floats Lookup(Floats table, Ints index) {
  return {_mm512_permutexvar_ps(index.v, table.v)};
}
// `count` plus one where x ≥ y.
inline Ints CountAtLeast(Ints count, Floats x, Floats y) {
  const __mmask16 mask = _mm512_cmp_ps_mask(x.v, y.v, _CMP_GE_OQ);
  return {_mm512_mask_add_epi32(count.v, mask, count.v, _mm512_set1_epi32(1))};
}

inline Bytes LoadBytes(const void* p) {
  return {_mm_loadu_si128(static_cast<const __m128i*>(p))};
}
inline void StoreBytes(void* p, Bytes x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), x.v);
}
inline Bytes LowBytes(Ints x) {
  return {_mm512_cvtepi32_epi8(x.v)};
}
inline Ints WidenUnsigned(Bytes x) {
  return {_mm512_cvtepu8_epi32(x.v)};
}
inline Ints WidenSigned(Bytes x) {
  return {_mm512_cvtepi8_epi32(x.v)};
}

inline void StoreNibbles(void* p, Ints codes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m128i bytes = _mm_shuffle_epi8(LowBytes(codes).v, order);
  const __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x1001));
  _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packus_epi16(pairs, pairs));
}
inline void StoreCrumbs(void* p, Ints codes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m128i low = _mm_and_si128(LowBytes(codes).v, _mm_set1_epi8(3));
  const __m128i pairs = _mm_maddubs_epi16(_mm_shuffle_epi8(low, order), _mm_set1_epi16(0x0401));
  const __m128i fours = _mm_madd_epi16(pairs, _mm_set1_epi32(0x00100001));
  const __m128i word =
      _mm_shuffle_epi8(fours, _mm_setr_epi8(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12));
  const int32_t out = _mm_cvtsi128_si32(word);
  std::memcpy(p, &out, sizeof(out));
}
inline uint32_t ThirdBits(Ints codes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m128i bytes = _mm_shuffle_epi8(LowBytes(codes).v, order);
  return static_cast<uint32_t>(_mm_movemask_epi8(_mm_slli_epi16(bytes, 5)));
}
inline Ints LoadNibbles(const void* p) {
  const __m512i words = _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      _mm512_castsi128_si512(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
  const __m512i shifts =
      _mm512_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28, 0, 16, 4, 20, 8, 24, 12, 28);
  return {_mm512_and_si512(_mm512_srlv_epi32(words, shifts), _mm512_set1_epi32(15))};
}
inline Ints LoadCrumbs(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  const __m512i shifts =
      _mm512_setr_epi32(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
  return {
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_set1_epi32(word), shifts), _mm512_set1_epi32(3))};
}
inline Ints SpreadThirdBits(uint32_t bits) {
  const __m512i shifts = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  const __m512i word = _mm512_set1_epi32(static_cast<int32_t>(bits << 2));
  return {_mm512_and_si512(_mm512_srlv_epi32(word, shifts), _mm512_set1_epi32(4))};
}

// Squares of 16-bit elements that TransposeWords turns.
inline constexpr uint32_t kSquareSide = 8;

inline void TransposeWords(const std::byte* in, int64_t in_stride, std::byte* out,
                           int64_t out_stride) {
  __m128i r[8];
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * in_stride));
  }
  __m128i pairs[8];
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    pairs[i + 4] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int half = 0; half < 2; ++half) {
    const __m128i* p = pairs + 4 * half;
    const __m128i a = _mm_unpacklo_epi32(p[0], p[1]);
    const __m128i b = _mm_unpacklo_epi32(p[2], p[3]);
    const __m128i c = _mm_unpackhi_epi32(p[0], p[1]);
    const __m128i d = _mm_unpackhi_epi32(p[2], p[3]);
    const __m128i columns[4] = {_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b),
                                _mm_unpacklo_epi64(c, d), _mm_unpackhi_epi64(c, d)};
    for (int i = 0; i < 4; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + (4 * half + i) * out_stride), columns[i]);
    }
  }
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
