#pragma once

// The operations of simd.h in AVX2, FMA and F16C, on pairs of registers.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "kernels/isa/isa.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

inline constexpr uint32_t kLanes = 16;
// Vectors whose extremes the registers hold while a loop goes over tokens.
inline constexpr uint32_t kSliceVectors = 2;
// Tokens and tiles of queries whose scores the registers hold, tokens where there is one tile, and
// vectors of outputs.
inline constexpr uint32_t kScoreRows = 4;
inline constexpr uint32_t kScoreRowsAlone = 4;
inline constexpr uint32_t kScoreTiles = 1;
inline constexpr uint32_t kValueVectors = 1;

struct Floats {
  __m256 a;
  __m256 b;
};
struct Ints {
  __m256i a;
  __m256i b;
};
struct Bytes {
  __m128i v;
};

inline Floats Splat(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline Ints SplatInt(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline Floats LoadFloats(const void* p) {
  const auto* f = static_cast<const float*>(p);
  return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
inline void StoreFloats(void* p, Floats x) {
  auto* f = static_cast<float*>(p);
  _mm256_storeu_ps(f, x.a);
  _mm256_storeu_ps(f + 8, x.b);
}
inline Ints LoadInts(const void* p) {
  return {_mm256_loadu_si256(static_cast<const __m256i*>(p)),
          _mm256_loadu_si256(static_cast<const __m256i*>(p) + 1)};
}
inline void StoreInts(void* p, Ints x) {
  auto* w = static_cast<__m256i*>(p);
  _mm256_storeu_si256(w, x.a);
  _mm256_storeu_si256(w + 1, x.b);
}
inline Floats LoadHalves(const void* p) {
  const auto* h = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline void StoreHalves(void* p, Floats x) {
  auto* h = static_cast<__m128i*>(p);
  _mm_storeu_si128(h, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(h + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats RoundToHalf(Floats x) {
  return {_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT)),
          _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT))};
}
inline Ints LoadWords(const void* p) {
  const auto* h = static_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(h)), _mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1))};
}
inline void StoreWords(void* p, Ints x) {
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i packed =
      _mm256_packus_epi32(_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low));
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

inline Floats operator+(Floats x, Floats y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline Floats operator-(Floats x, Floats y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline Floats operator*(Floats x, Floats y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline Floats operator/(Floats x, Floats y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline Floats Min(Floats x, Floats y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
inline Floats Max(Floats x, Floats y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline Floats Magnitude(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline Floats RoundUp(Floats x) {
  return {_mm256_ceil_ps(x.a), _mm256_ceil_ps(x.b)};
}

inline Ints operator+(Ints x, Ints y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline Ints operator-(Ints x, Ints y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
inline Ints operator&(Ints x, Ints y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
inline Ints operator|(Ints x, Ints y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
inline Ints operator^(Ints x, Ints y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
template <int kBits>
inline Ints ShiftLeft(Ints x) {
  return {_mm256_slli_epi32(x.a, kBits), _mm256_slli_epi32(x.b, kBits)};
}
template <int kBits>
inline Ints ShiftRight(Ints x) {
  return {_mm256_srli_epi32(x.a, kBits), _mm256_srli_epi32(x.b, kBits)};
}
inline Ints MinInt(Ints x, Ints y) {
  return {_mm256_min_epi32(x.a, y.a), _mm256_min_epi32(x.b, y.b)};
}
inline Ints MaxInt(Ints x, Ints y) {
  return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}

inline Floats AsFloats(Ints x) {
  return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
inline Ints AsInts(Floats x) {
  return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
inline Floats ToFloats(Ints x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
inline Ints Round(Floats x) {
  return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}

inline Floats SelectLess(Floats x, Floats y, Floats then, Floats otherwise) {
  return {_mm256_blendv_ps(otherwise.a, then.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(otherwise.b, then.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
inline Floats SelectEqual(Floats x, Floats y, Floats then, Floats otherwise) {
  return {_mm256_blendv_ps(otherwise.a, then.a, _mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ)),
          _mm256_blendv_ps(otherwise.b, then.b, _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ))};
}
inline Ints SelectGreater(Ints x, Ints y, Ints then, Ints otherwise) {
  return {_mm256_blendv_epi8(otherwise.a, then.a, _mm256_cmpgt_epi32(x.a, y.a)),
          _mm256_blendv_epi8(otherwise.b, then.b, _mm256_cmpgt_epi32(x.b, y.b))};
}
inline bool AllAtMost(Floats x, Floats y) {
  const __m256 both =
      _mm256_and_ps(_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ));
  return _mm256_movemask_ps(both) == 0xff;
}

inline float MinOf(Floats x) {
  const __m256 eight = _mm256_min_ps(x.a, x.b);
  __m128 four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_min_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_min_ss(four, _mm_movehdup_ps(four)));
}
inline float MaxOf(Floats x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
inline uint32_t OrOf(Ints x) {
  const __m256i eight = _mm256_or_si256(x.a, x.b);
  __m128i four = _mm_or_si128(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_or_si128(four, _mm_unpackhi_epi64(four, four));
  return static_cast<uint32_t>(_mm_extract_epi32(four, 0) | _mm_extract_epi32(four, 1));
}

inline Floats SquareRoot(Floats x) {
  return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}
// Lane i and lane i ^ kDistance change places.
template <uint32_t kDistance>
inline Floats Swap(Floats x) {
  if constexpr (kDistance == 8) {
    return {x.b, x.a};
  } else if constexpr (kDistance == 4) {
    return {_mm256_permute2f128_ps(x.a, x.a, 1), _mm256_permute2f128_ps(x.b, x.b, 1)};
  } else {
    constexpr int kOrder = kDistance == 2 ? 0x4e : 0xb1;
    return {_mm256_permute_ps(x.a, kOrder), _mm256_permute_ps(x.b, kOrder)};
  }
}
inline float SumOf(Floats x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
// a·b + c, rounded once.
inline Floats MultiplyAdd(Floats x, Floats y, Floats z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
// Four floats, in every quad of lanes.
inline Floats LoadQuad(const float* p) {
  const __m256 two = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
  return {two, two};
}
// Of each quad the lanes 0 and 2 of `x`, then of `y`; lanes 1 and 3.
inline Floats Evens(Floats x, Floats y) {
  return {_mm256_shuffle_ps(x.a, y.a, 0x88), _mm256_shuffle_ps(x.b, y.b, 0x88)};
}
inline Floats Odds(Floats x, Floats y) {
  return {_mm256_shuffle_ps(x.a, y.a, 0xdd), _mm256_shuffle_ps(x.b, y.b, 0xdd)};
}

// Sixteen lanes in double.
struct Doubles {
  __m256d a;
  __m256d b;
  __m256d c;
  __m256d d;
};
inline Doubles ToDoubles(Floats x) {
  return {
      _mm256_cvtps_pd(_mm256_castps256_ps128(x.a)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.a, 1)),
      _mm256_cvtps_pd(_mm256_castps256_ps128(x.b)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.b, 1))};
}
inline Doubles operator+(Doubles x, Doubles y) {
  return {_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b), _mm256_add_pd(x.c, y.c),
          _mm256_add_pd(x.d, y.d)};
}
inline Doubles operator-(Doubles x, Doubles y) {
  return {_mm256_sub_pd(x.a, y.a), _mm256_sub_pd(x.b, y.b), _mm256_sub_pd(x.c, y.c),
          _mm256_sub_pd(x.d, y.d)};
}
inline Doubles operator*(Doubles x, Doubles y) {
  return {_mm256_mul_pd(x.a, y.a), _mm256_mul_pd(x.b, y.b), _mm256_mul_pd(x.c, y.c),
          _mm256_mul_pd(x.d, y.d)};
}
// By halves, as SumOf(Floats).
inline double SumOf(Doubles x) {
  const __m256d four = _mm256_add_pd(_mm256_add_pd(x.a, x.c), _mm256_add_pd(x.b, x.d));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

inline Floats Lookup(Floats table, Ints index) {
  const auto one = [&](__m256i i) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.a, i),
                            _mm256_permutevar8x32_ps(table.b, i),
                            _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
  };
  return {one(index.a), one(index.b)};
}
// `count` plus one where x ≥ y.
inline Ints CountAtLeast(Ints count, Floats x, Floats y) {
  const auto mask = [](__m256 p, __m256 q) {
    return _mm256_castps_si256(_mm256_cmp_ps(p, q, _CMP_GE_OQ));
  };
  return {_mm256_sub_epi32(count.a, mask(x.a, y.a)), _mm256_sub_epi32(count.b, mask(x.b, y.b))};
}

inline Bytes LoadBytes(const void* p) {
  return {_mm_loadu_si128(static_cast<const __m128i*>(p))};
}
inline void StoreBytes(void* p, Bytes x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), x.v);
}
inline Bytes LowBytes(Ints x) {
  // Per 128-bit lane: the low bytes of its four numbers, in each four bytes.
  const __m256i low = _mm256_setr_epi8(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8,
                                       12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  const __m256i a = _mm256_shuffle_epi8(x.a, low);
  const __m256i b = _mm256_shuffle_epi8(x.b, low);
  const __m256i ab = _mm256_blend_epi32(a, b, 0xcc);  // a0 a0 b0 b0 | a1 a1 b1 b1, four bytes each
  const __m256i ordered =
      _mm256_permutevar8x32_epi32(ab, _mm256_setr_epi32(0, 4, 2, 6, 0, 4, 2, 6));
  return {_mm256_castsi256_si128(ordered)};
}
inline Ints WidenUnsigned(Bytes x) {
  return {_mm256_cvtepu8_epi32(x.v), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(x.v, x.v))};
}
inline Ints WidenSigned(Bytes x) {
  return {_mm256_cvtepi8_epi32(x.v), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x.v, x.v))};
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
// Each word of `first` and `second` in eight lanes, shifted right lane by lane, masked.
inline Ints SpreadBits(int32_t first, int32_t second, __m256i first_shifts, __m256i second_shifts,
                       int32_t mask) {
  const __m256i m = _mm256_set1_epi32(mask);
  return {_mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(first), first_shifts), m),
          _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(second), second_shifts), m)};
}
inline Ints LoadNibbles(const void* p) {
  int32_t words[2];
  std::memcpy(words, p, sizeof(words));
  const __m256i shifts = _mm256_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28);
  return SpreadBits(words[0], words[1], shifts, shifts, 15);
}
inline Ints LoadCrumbs(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return SpreadBits(word, word, _mm256_setr_epi32(0, 16, 2, 18, 4, 20, 6, 22),
                    _mm256_setr_epi32(8, 24, 10, 26, 12, 28, 14, 30), 3);
}
inline Ints SpreadThirdBits(uint32_t bits) {
  const auto word = static_cast<int32_t>(bits << 2);
  return SpreadBits(word, word, _mm256_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11),
                    _mm256_setr_epi32(4, 12, 5, 13, 6, 14, 7, 15), 4);
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
