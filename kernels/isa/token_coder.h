#pragma once

// Integer coding of sides whose groups are runs of channels of one token. Internal to kernels/isa.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/isa/integer.h"
#include "kernels/isa/rows.h"
#include "kernels/packing.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// How the channels of a token fall into groups.
struct ChannelGroups {
  uint32_t dim = 0;
  uint32_t group = 0;   // channels
  uint32_t groups = 0;  // of one token

  Channels At(uint32_t g) const { return {g * group, Lesser(group, dim - g * group)}; }
};

inline ChannelGroups ChannelGroupsOf(const CoderTask& task) {
  ChannelGroups shape;
  shape.dim = task.dim;
  shape.group = task.side.group_max == 0 || task.dim <= task.side.group_max ? task.dim
                                                                            : task.side.group_split;
  shape.groups = (task.dim + shape.group - 1) / shape.group;
  return shape;
}

// Where codes and parameters of one side are.
struct TokenArrays : ChannelGroups {
  DType stored = DType::kFloat16;
  float gain = 1;
  uint32_t row_bytes = 0;      // of the codes of a token
  uint32_t parameters_of = 0;  // of a group: 1 or 2
  uint32_t group_bytes = 0;    // of the parameters of a group

  size_t ParametersAt(uint32_t token, uint32_t g) const {
    return (size_t{token} * groups + g) * group_bytes;
  }
};

inline TokenArrays TokenArraysOf(const CoderTask& task, bool symmetric) {
  TokenArrays arrays;
  static_cast<ChannelGroups&>(arrays) = ChannelGroupsOf(task);
  arrays.stored = task.dtype;
  arrays.gain = task.gain;
  arrays.row_bytes = CodeRowBytes(task.side.bits, task.dim);
  arrays.parameters_of = symmetric ? 1 : 2;
  arrays.group_bytes = arrays.parameters_of * ElementBytes(task.dtype);
  return arrays;
}

// Parameters of group g of `count` tokens from `token` on, from or to groups->scale and minimum.
inline void StoreTokenParameters(const TokenArrays& arrays, const GroupParameters& groups,
                                 TokenRange tokens, uint32_t g, std::byte* parameters) {
  float pairs[2 * kLanes];
  std::byte stored[2 * kLanes * sizeof(float)];
  const uint32_t n = arrays.parameters_of;
  for (uint32_t i = 0; i < kLanes; ++i) {
    pairs[n * i] = groups.scale[i];
    pairs[n * i + n - 1] = n == 2 ? groups.minimum[i] : groups.scale[i];
  }
  const uint32_t half = kLanes * ElementBytes(arrays.stored);
  for (uint32_t i = 0; i < n; ++i) {
    StoreParameters(arrays.stored, stored + i * half, kLanes, LoadFloats(pairs + i * kLanes));
  }
  for (uint32_t i = 0; i < tokens.count; ++i) {
    std::memcpy(parameters + arrays.ParametersAt(tokens.first + i, g),
                stored + i * arrays.group_bytes, arrays.group_bytes);
  }
}
inline void LoadTokenParameters(const TokenArrays& arrays, const std::byte* parameters,
                                TokenRange tokens, uint32_t g, GroupParameters* groups) {
  float pairs[2 * kLanes];
  std::byte stored[2 * kLanes * sizeof(float)] = {};
  const uint32_t n = arrays.parameters_of;
  for (uint32_t i = 0; i < tokens.count; ++i) {
    std::memcpy(stored + i * arrays.group_bytes,
                parameters + arrays.ParametersAt(tokens.first + i, g), arrays.group_bytes);
  }
  const uint32_t half = kLanes * ElementBytes(arrays.stored);
  for (uint32_t i = 0; i < n; ++i) {
    StoreFloats(pairs + i * kLanes, LoadParameters(arrays.stored, stored + i * half, kLanes));
  }
  for (uint32_t i = 0; i < kLanes; ++i) {
    groups->scale[i] = pairs[n * i];
    groups->minimum[i] = n == 2 ? pairs[n * i + 1] : 0.0f;
  }
}

// Extremes of `count` elements of one row; `magnitudes` gets those that say whether all are finite.
template <DType kType, bool kSymmetric>
inline void RowExtremes(const std::byte* x, uint32_t count, float* low, float* high,
                        Ints* magnitudes) {
  constexpr uint32_t kBytes = kBytesOf<kType>;
  Floats least = LoadUpTo<kType>(x, Lesser(count, kLanes));
  Floats most = least;
  Ints largest = LargerMagnitude(SplatInt(0), least);
  for (uint32_t c = kLanes; c < count; c += kLanes) {
    const Floats v = LoadUpTo<kType>(x + c * kBytes, Lesser(count - c, kLanes));
    if constexpr (!kSymmetric) {
      least = Min(v, least);
      most = Max(v, most);
    }
    largest = LargerMagnitude(largest, v);
  }
  *magnitudes = MaxInt(*magnitudes, largest);
  *low = kSymmetric ? 0.0f : MinOf(least);
  *high = MaxOf(kSymmetric ? AsFloats(largest) : most);
}

// `count` channels of one row from `channel` on.
template <DType kType, uint32_t kBits, bool kSymmetric>
inline void QuantizeRow(const std::byte* x, Channels channels, uint32_t dim, Floats scale,
                        Floats minimum, std::byte* row) {
  constexpr uint32_t kBytes = kBytesOf<kType>;
  uint32_t c = 0;
  for (; c + kLanes <= channels.count; c += kLanes) {
    StoreCodes<kBits>(row, dim, channels.first + c,
                      Quantize<kBits, kSymmetric>(LoadAs<kType>(x + c * kBytes), scale, minimum));
  }
  if (c < channels.count) {
    const uint32_t left = channels.count - c;
    const Floats v = LoadFewAs<kType>(x + c * kBytes, left);
    StoreFewCodes<kBits>(row, dim, channels.first + c, left,
                         Quantize<kBits, kSymmetric>(v, scale, minimum));
  }
}

// At most sixteen tokens, those of `rows`. False: a value is not representable.
template <DType kType, uint32_t kBits, bool kSymmetric>
bool EncodeTokens(const TokenArrays& arrays, const Rows& rows, TokenRange tokens,
                  const CoderArrays& out) {
  using Range = CodeRange<kBits, kSymmetric>;
  for (uint32_t g = 0; g < arrays.groups; ++g) {
    const Channels channels = arrays.At(g);
    const uint32_t skip = channels.first * kBytesOf<kType>;
    GroupParameters groups;
    Ints magnitudes = SplatInt(0);
    for (uint32_t i = 0; i < tokens.count; ++i) {
      RowExtremes<kType, kSymmetric>(rows.row[i] + skip, channels.count, groups.low + i,
                                     groups.high + i, &magnitudes);
    }
    groups.FillUpFrom(tokens.count);
    if (!AllFinite(magnitudes) ||
        !MakeParameters(arrays.stored, kSymmetric, Range::kHigh, arrays.gain, &groups)) {
      return false;
    }
    StoreTokenParameters(arrays, groups, tokens, g, out.parameters);
    for (uint32_t i = 0; i < tokens.count; ++i) {
      QuantizeRow<kType, kBits, kSymmetric>(
          rows.row[i] + skip, channels, arrays.dim, Splat(groups.scale[i]),
          Splat(groups.minimum[i]), out.codes + size_t{tokens.first + i} * arrays.row_bytes);
    }
  }
  return true;
}

// At most sixteen coded tokens to `rows`.
template <DType kType, uint32_t kBits, bool kSymmetric>
void DecodeTokens(const TokenArrays& arrays, const ConstCoderArrays& in, TokenRange tokens,
                  const Rows& rows) {
  constexpr bool kSigned = CodeRange<kBits, kSymmetric>::kSigned;
  constexpr uint32_t kBytes = kBytesOf<kType>;
  for (uint32_t g = 0; g < arrays.groups; ++g) {
    const Channels channels = arrays.At(g);
    const uint32_t end = channels.first + channels.count;
    GroupParameters groups;
    LoadTokenParameters(arrays, in.parameters, tokens, g, &groups);
    for (uint32_t i = 0; i < tokens.count; ++i) {
      const std::byte* row = in.codes + size_t{tokens.first + i} * arrays.row_bytes;
      const Floats scale = Splat(groups.scale[i]);
      const Floats minimum = Splat(groups.minimum[i]);
      uint32_t c = channels.first;
      for (; c + kLanes <= end; c += kLanes) {
        StoreAs<kType>(rows.row[i] + c * kBytes,
                       Dequantize<kBits, kSymmetric>(LoadCodes<kBits, kSigned>(row, arrays.dim, c),
                                                     scale, minimum));
      }
      if (c < end) {
        const Ints codes = LoadFewCodes<kBits, kSigned>(row, arrays.dim, c, end - c);
        StoreFewAs<kType>(rows.row[i] + c * kBytes, end - c,
                          Dequantize<kBits, kSymmetric>(codes, scale, minimum));
      }
    }
  }
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
