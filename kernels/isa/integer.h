#pragma once

// The arithmetic of integer coding on sixteen lanes; FORMAT.md, "Integer coding". Internal to
// kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/codes.h"
#include "kernels/isa/elements.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// The codes of a side: whole numbers from low to high, stored plus bias.
template <uint32_t kBits, bool kSymmetric>
struct CodeRange {
  static constexpr float kHigh = kSymmetric ? static_cast<float>((1 << (kBits - 1)) - 1)
                                            : static_cast<float>((1 << kBits) - 1);
  static constexpr float kLow = kSymmetric ? -kHigh : 0.0f;
  static constexpr bool kSigned = kSymmetric && kBits == 8;
  static constexpr int32_t kBias = kSymmetric && kBits != 8 ? 1 << (kBits - 1) : 0;
};

template <uint32_t kBits, bool kSymmetric>
inline Ints Quantize(Floats x, Floats scale, Floats minimum) {
  using Range = CodeRange<kBits, kSymmetric>;
  Floats code = (kSymmetric ? x : x - minimum) / scale;
  code = Min(Max(code, Splat(Range::kLow)), Splat(Range::kHigh));
  const Ints rounded = Round(code);
  return Range::kBias == 0 ? rounded : rounded + SplatInt(Range::kBias);
}

template <uint32_t kBits, bool kSymmetric>
inline Floats Dequantize(Ints codes, Floats scale, Floats minimum) {
  using Range = CodeRange<kBits, kSymmetric>;
  const Floats code = ToFloats(Range::kBias == 0 ? codes : codes - SplatInt(Range::kBias));
  return Range::kSigned ? code * scale : code * scale + minimum;
}

template <DType kStored>
inline Floats StoredScale(Floats range, Floats steps) {
  const Floats scale = range / steps;
  Floats small = Splat(0x1p-126f);  // below the smallest normal number: rounded up
  Floats normal = Splat(0x1p-126f);
  if constexpr (kStored == DType::kFloat16) {
    small = RoundUp(scale * Splat(0x1p24f)) * Splat(0x1p-24f);
    normal = Splat(0x1p-14f);
  }
  const Floats stored = SelectLess(scale, normal, small, RoundTo<kStored>(scale));
  return SelectEqual(range, Splat(0.0f), Splat(1.0f), stored);
}

template <DType kStored>
inline Floats LargestFiniteOf() {
  return Splat(kStored == DType::kFloat16      ? 65504.0f
               : kStored == DType::kFloat8E4M3 ? 448.0f
               : kStored == DType::kBFloat16   ? 0x1.fep127f
                                               : 0x1.fffffep127f);
}

// Extremes of sixteen groups, then what is stored of them. Of symmetric sides `high` is the largest
// magnitude.
struct GroupParameters {
  alignas(64) float low[kLanes];
  alignas(64) float high[kLanes];
  alignas(64) float scale[kLanes];
  alignas(64) float minimum[kLanes];  // 0 where symmetric

  // Groups from `count` ≥ 1 on become like the first, so that they decide nothing.
  void FillUpFrom(uint32_t count) {
    for (uint32_t i = count; i < kLanes; ++i) {
      low[i] = low[0];
      high[i] = high[0];
    }
  }
};

template <DType kStored>
inline bool MakeParametersAs(bool symmetric, float steps, float gain, GroupParameters* groups) {
  const Floats high = LoadFloats(groups->high);
  Floats minimum = Splat(0.0f);
  Floats range = high;
  if (!symmetric) {
    // Adding +0 turns a minimum of -0 into +0, so that what is stored does not depend on the order.
    const Floats low = LoadFloats(groups->low);
    minimum = RoundTo<kStored>(low + Splat(0.0f));
    range = high - low;
  }
  const Floats scale = StoredScale<kStored>(range, Splat(steps));
  const Floats top = Magnitude(scale * Splat(steps) + minimum);
  // The comparisons are false for NaNs, which Max passes on from its second argument.
  const Floats largest = Max(Magnitude(minimum), top) * Splat(gain);
  StoreFloats(groups->scale, scale);
  StoreFloats(groups->minimum, minimum);
  return AllAtMost(RoundTo<kStored>(largest), LargestFiniteOf<kStored>());
}

// Stored parameters of sixteen groups. False: one of them is not representable.
inline bool MakeParameters(DType stored, bool symmetric, float steps, float gain,
                           GroupParameters* groups) {
  return WithType(stored, [&]<DType kStored>() {
    return MakeParametersAs<kStored>(symmetric, steps, gain, groups);
  });
}

// `count` ≤ 16 parameters to or from consecutive elements of `type`.
inline void StoreParameters(DType type, std::byte* p, uint32_t count, Floats x) {
  WithType(type, [&]<DType kStored>() { StoreUpTo<kStored>(p, count, x); });
}
inline Floats LoadParameters(DType type, const std::byte* p, uint32_t count) {
  return WithType(type, [&]<DType kStored>() { return LoadUpTo<kStored>(p, count); });
}

// What tells numbers that are not finite, kept in lanes: the largest magnitude so far, as integers,
// which order like the numbers and put infinity and NaN above them all.
inline Ints LargerMagnitude(Ints so_far, Floats x) {
  return MaxInt(so_far, AsInts(x) & SplatInt(0x7fffffff));
}
inline bool AllFinite(Ints magnitudes) {
  return OrOf(SelectGreater(magnitudes, SplatInt(0x7f7fffff), SplatInt(1), SplatInt(0))) == 0;
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
