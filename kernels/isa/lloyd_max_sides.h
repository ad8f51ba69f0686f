#pragma once

// Coding by codebooks; FORMAT.md, "Lloyd–Max coding". Internal to kernels/isa.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/codebook.h"
#include "kernels/isa/sides.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// Codes that a codebook lacks have thresholds which nothing reaches.
struct Codebook {
  alignas(64) float value[kLanes] = {};
  float threshold[kLanes] = {};
  uint32_t codes = 0;

  explicit Codebook(uint32_t bits) : codes(1u << bits) {
    for (uint32_t i = 0; i < codes; ++i) {
      value[i] = CodebookValue(bits, i);
      threshold[i] = i == 0 ? 0.0f : CodebookThreshold(bits, i);
    }
  }
};

template <DType kType>
inline Floats LoadOrZero(const std::byte* p, uint32_t count) {
  return count >= kLanes ? LoadAs<kType>(p)
                         : AsFloats(ZeroFrom(count, AsInts(LoadFewAs<kType>(p, count))));
}

// Lanes are added in pairs, those farthest apart first.
template <DType kType>
inline float RowSquares(const std::byte* x, uint32_t count) {
  Floats sum = Splat(0.0f);
  for (uint32_t c = 0; c < count; c += kLanes) {
    const Floats v = LoadOrZero<kType>(x + c * kBytesOf<kType>, count - c);
    sum = sum + v * v;
  }
  return SumOf(sum);
}

// Codes one group of one row; the sum of the squares of what the codes stand for.
template <DType kType, uint32_t kBits>
inline float EncodeBookRow(const Codebook& book, const std::byte* x, Channels channels,
                           uint32_t dim, Floats factor, std::byte* row) {
  const Floats values = LoadFloats(book.value);
  Floats sum = Splat(0.0f);
  for (uint32_t c = 0; c < channels.count; c += kLanes) {
    const uint32_t left = channels.count - c;
    const Floats z = LoadOrZero<kType>(x + c * kBytesOf<kType>, left) * factor;
    Ints codes = SplatInt(0);
    for (uint32_t i = 1; i < (1u << kBits); ++i) {
      codes = CountAtLeast(codes, z, Splat(book.threshold[i]));
    }
    Floats chosen = Lookup(values, codes);
    if (left >= kLanes) {
      StoreCodes<kBits>(row, dim, channels.first + c, codes);
    } else {
      StoreFewCodes<kBits>(row, dim, channels.first + c, left, codes);
      chosen = AsFloats(ZeroFrom(left, AsInts(chosen)));
    }
    sum = sum + chosen * chosen;
  }
  return SumOf(sum);
}

// From the squares of sixteen groups and, in `chosen`, of their codes to what is stored; false: not
// representable.
inline bool MakeBookScales(const CoderTask& task, const Codebook& book, Floats squares,
                           Floats chosen, float* stored) {
  const Floats scale =
      SelectLess(squares, Splat(0x1p-100f), Splat(0.0f), SquareRoot(squares) / SquareRoot(chosen));
  return WithType(task.dtype, [&]<DType kType>() {
    const Floats rounded = RoundTo<kType>(scale);
    StoreFloats(stored, rounded);
    const Floats top = rounded * Splat(book.value[book.codes - 1]) * Splat(task.gain);
    return AllAtMost(RoundTo<kType>(top), LargestFiniteOf<kType>());
  });
}

// At most sixteen tokens.
template <DType kType, uint32_t kBits>
bool EncodeBookTokens(const CoderTask& task, const Codebook& book, const Rows& rows,
                      TokenRange tokens, const CoderArrays& out) {
  const ChannelGroups shape = ChannelGroupsOf(task);
  const TokenArrays arrays = TokenArraysOf(task, true);
  for (uint32_t g = 0; g < shape.groups; ++g) {
    const Channels channels = shape.At(g);
    const uint32_t skip = channels.first * kBytesOf<kType>;
    GroupParameters groups;
    alignas(64) float squares[kLanes];
    alignas(64) float chosen[kLanes];
    alignas(64) float factor[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) {
      squares[i] =
          i < tokens.count ? RowSquares<kType>(rows.row[i] + skip, channels.count) : squares[0];
    }
    const Floats all = LoadFloats(squares);
    if (!AllFinite(AsInts(all) & SplatInt(0x7fffffff))) {
      return false;
    }
    const Floats root = SquareRoot(Splat(static_cast<float>(channels.count)));
    StoreFloats(factor, SelectLess(all, Splat(0x1p-100f), Splat(0.0f), root / SquareRoot(all)));
    for (uint32_t i = 0; i < kLanes; ++i) {
      chosen[i] = i < tokens.count
                      ? EncodeBookRow<kType, kBits>(
                            book, rows.row[i] + skip, channels, arrays.dim, Splat(factor[i]),
                            out.codes + size_t{tokens.first + i} * arrays.row_bytes)
                      : chosen[0];
    }
    if (!MakeBookScales(task, book, all, LoadFloats(chosen), groups.scale)) {
      return false;
    }
    StoreTokenParameters(arrays, groups, tokens, g, out.parameters);
  }
  return true;
}

template <uint32_t kBits>
SideResult EncodeBook(const CoderTask& task, const SideAccess& access, TokenRange range,
                      const CoderArrays& out) {
  const Codebook book(kBits);
  const bool ok = WithType(access.dtype, [&]<DType kType>() {
    return GatherTokens(access, range, [&](const Rows& rows, uint32_t tokens, uint32_t before) {
      return EncodeBookTokens<kType, kBits>(task, book, rows, {before, tokens}, out);
    });
  });
  return ok ? SideResult::kOk : SideResult::kNotRepresentable;
}

// At most sixteen tokens.
template <DType kType, uint32_t kBits>
void DecodeBookTokens(const CoderTask& task, Floats values, const ConstCoderArrays& in,
                      TokenRange tokens, const Rows& rows) {
  const ChannelGroups shape = ChannelGroupsOf(task);
  const TokenArrays arrays = TokenArraysOf(task, true);
  for (uint32_t g = 0; g < shape.groups; ++g) {
    const Channels channels = shape.At(g);
    const uint32_t end = channels.first + channels.count;
    GroupParameters groups;
    LoadTokenParameters(arrays, in.parameters, tokens, g, &groups);
    for (uint32_t i = 0; i < tokens.count; ++i) {
      const std::byte* row = in.codes + size_t{tokens.first + i} * arrays.row_bytes;
      const Floats scale = Splat(groups.scale[i]);
      uint32_t c = channels.first;
      for (; c + kLanes <= end; c += kLanes) {
        StoreAs<kType>(rows.row[i] + c * kBytesOf<kType>,
                       Lookup(values, LoadCodes<kBits, false>(row, arrays.dim, c)) * scale);
      }
      if (c < end) {
        const Ints codes = LoadFewCodes<kBits, false>(row, arrays.dim, c, end - c);
        StoreFewAs<kType>(rows.row[i] + c * kBytesOf<kType>, end - c,
                          Lookup(values, codes) * scale);
      }
    }
  }
}

template <uint32_t kBits>
void DecodeBook(const CoderTask& task, const ConstCoderArrays& in, TokenRange coded,
                const SideAccess& access, uint32_t first_token) {
  const Codebook book(kBits);
  WithType(access.dtype, [&]<DType kType>() {
    ScatterTokens(access, {first_token, coded.count},
                  [&](const Rows& rows, uint32_t tokens, uint32_t before) {
                    DecodeBookTokens<kType, kBits>(task, LoadFloats(book.value), in,
                                                   {coded.first + before, tokens}, rows);
                  });
  });
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
