#pragma once

// Sixteen elements of an engine's type, or fewer at the end of a row, to and from floats. Internal
// to kernels/isa.

#include "common/dtype.h"
#include "kernels/isa/simd.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

template <DType kType>
inline constexpr uint32_t kBytesOf = kType == DType::kFloat32      ? 4
                                     : kType == DType::kFloat8E4M3 ? 1
                                                                   : 2;

// float8 e4m3; float8.h has the same for one number.
inline Floats FromFloat8(Ints codes) {
  const Ints magnitude = codes & SplatInt(0x7f);
  const Ints sign = ShiftLeft<24>(codes & SplatInt(0x80));
  const Ints shifted = ShiftLeft<20>(magnitude);
  const Ints normal = shifted + SplatInt(120 << 23);
  const Floats subnormal = AsFloats(shifted + SplatInt(121 << 23)) - Splat(0x1p-6f);
  Ints bits = SelectGreater(SplatInt(8), magnitude, AsInts(subnormal), normal);
  bits = SelectGreater(magnitude, SplatInt(0x7e), SplatInt(0x7fc00000), bits);
  return AsFloats(bits | sign);
}
inline Ints ToFloat8(Floats x) {
  const Ints bits = AsInts(x);
  const Ints sign = ShiftRight<24>(bits) & SplatInt(0x80);
  const Ints magnitude = bits & SplatInt(0x7fffffff);
  const Ints odd = ShiftRight<20>(magnitude) & SplatInt(1);
  const Ints normal = ShiftRight<20>(magnitude + SplatInt(0x7ffff - (120 << 23)) + odd);
  // Adding 2^14 aligns the 2^-9 digit with the mantissa's last one and rounds to nearest even.
  const Ints aligned = AsInts(AsFloats(magnitude) + Splat(0x1p14f)) - SplatInt(141 << 23);
  Ints result = SelectGreater(SplatInt(121 << 23), magnitude, aligned, normal);
  result = SelectGreater(magnitude, SplatInt(0x43dfffff), SplatInt(0x7e), result);
  result = SelectGreater(magnitude, SplatInt(0x7f800000), SplatInt(0x7f), result);
  return result | sign;
}

template <DType kType>
inline Floats LoadAs(const std::byte* p) {
  if constexpr (kType == DType::kFloat32) {
    return LoadFloats(p);
  } else if constexpr (kType == DType::kFloat16) {
    return LoadHalves(p);
  } else if constexpr (kType == DType::kFloat8E4M3) {
    return FromFloat8(WidenUnsigned(LoadBytes(p)));
  } else {
    return AsFloats(ShiftLeft<16>(LoadWords(p)));
  }
}

// To the nearest value of kType, ties to even; a NaN stays one, quiet, with the rest of its bits.
inline Ints BFloat16Bits(Floats x) {
  const Ints bits = AsInts(x);
  const Ints high = ShiftRight<16>(bits);
  const Ints rounded = ShiftRight<16>(bits + SplatInt(0x7fff) + (high & SplatInt(1)));
  return SelectGreater(bits & SplatInt(0x7fffffff), SplatInt(0x7f800000), high | SplatInt(0x40),
                       rounded);
}

template <DType kType>
inline void StoreAs(std::byte* p, Floats x) {
  if constexpr (kType == DType::kFloat32) {
    StoreFloats(p, x);
  } else if constexpr (kType == DType::kFloat16) {
    StoreHalves(p, x);
  } else if constexpr (kType == DType::kFloat8E4M3) {
    StoreBytes(p, LowBytes(ToFloat8(x)));
  } else {
    StoreWords(p, BFloat16Bits(x));
  }
}

template <DType kType>
inline Floats RoundTo(Floats x) {
  if constexpr (kType == DType::kFloat32) {
    return x;
  } else if constexpr (kType == DType::kFloat16) {
    return RoundToHalf(x);
  } else if constexpr (kType == DType::kFloat8E4M3) {
    return FromFloat8(ToFloat8(x));
  } else {
    return AsFloats(ShiftLeft<16>(BFloat16Bits(x)));
  }
}

// The first `count` lanes, 1 … 15, from memory, the others equal to the first: neutral for
// extremes.
template <DType kType>
inline Floats LoadFewAs(const std::byte* p, uint32_t count) {
  std::byte buffer[kLanes * kBytesOf<kType>];
  for (uint32_t i = 0; i < kLanes; ++i) {
    std::memcpy(buffer + i * kBytesOf<kType>, p + (i < count ? i : 0) * kBytesOf<kType>,
                kBytesOf<kType>);
  }
  return LoadAs<kType>(buffer);
}
template <DType kType>
inline void StoreFewAs(std::byte* p, uint32_t count, Floats x) {
  std::byte buffer[kLanes * kBytesOf<kType>];
  StoreAs<kType>(buffer, x);
  std::memcpy(p, buffer, count * kBytesOf<kType>);
}

// `count` ≤ 16 lanes.
template <DType kType>
inline Floats LoadUpTo(const std::byte* p, uint32_t count) {
  return count == kLanes ? LoadAs<kType>(p) : LoadFewAs<kType>(p, count);
}
template <DType kType>
inline void StoreUpTo(std::byte* p, uint32_t count, Floats x) {
  if (count == kLanes) {
    StoreAs<kType>(p, x);
  } else {
    StoreFewAs<kType>(p, count, x);
  }
}

// Calls visit.template operator()<kType>() for `type`.
template <typename Visit>
inline auto WithType(DType type, const Visit& visit) {
  switch (type) {
    case DType::kFloat32:
      return visit.template operator()<DType::kFloat32>();
    case DType::kFloat16:
      return visit.template operator()<DType::kFloat16>();
    case DType::kFloat8E4M3:
      return visit.template operator()<DType::kFloat8E4M3>();
    default:
      return visit.template operator()<DType::kBFloat16>();
  }
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
