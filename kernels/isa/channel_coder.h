#pragma once

// Asymmetric integer coding of sides whose groups are runs of tokens of one channel. Internal to
// kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/integer.h"
#include "kernels/isa/rows.h"
#include "kernels/packing.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

struct ChannelArrays {
  DType stored = DType::kFloat16;
  uint32_t dim = 0;
  uint32_t group = 0;  // tokens
  float gain = 1;
  uint32_t row_bytes = 0;  // of the codes of a token
  size_t group_bytes = 0;  // of the parameters of a group of tokens
  size_t minima = 0;       // where in them the minima begin
};

inline ChannelArrays ChannelArraysOf(const CoderTask& task) {
  ChannelArrays arrays;
  arrays.stored = task.dtype;
  arrays.dim = task.dim;
  arrays.group = task.side.group_max == 0 || task.tokens <= task.side.group_max
                     ? task.tokens
                     : task.side.group_split;
  arrays.gain = task.gain;
  arrays.row_bytes = CodeRowBytes(task.side.bits, task.dim);
  arrays.minima = size_t{task.dim} * ElementBytes(task.dtype);
  arrays.group_bytes = 2 * arrays.minima;
  return arrays;
}

// Of one group of tokens: where its first row of codes and its parameters are.
struct GroupOut {
  std::byte* codes;
  std::byte* parameters;
};

// kVectors · 16 channels of all `tokens` rows, which begin at the first of them; the last vector
// has what is left of `channels`.
template <DType kType, uint32_t kVectors>
struct Slice {
  const Rows& rows;
  uint32_t tokens;
  Channels channels;

  uint32_t CountOf(uint32_t v) const {
    return v + 1 == kVectors ? channels.count - v * kLanes : kLanes;
  }
  Floats Load(uint32_t token, uint32_t v) const {
    return LoadUpTo<kType>(rows.row[token] + v * kLanes * kBytesOf<kType>, CountOf(v));
  }
};

// The stored parameters of a slice, to `parameters` of its group too. False: a value is not
// representable.
template <uint32_t kBits, DType kType, uint32_t kVectors>
inline bool SliceParameters(const ChannelArrays& arrays, const Slice<kType, kVectors>& slice,
                            std::byte* parameters, Floats* scale, Floats* minimum) {
  Floats low[kVectors];
  Floats high[kVectors];
  Ints magnitudes = SplatInt(0);
  for (uint32_t v = 0; v < kVectors; ++v) {
    low[v] = slice.Load(0, v);
    high[v] = low[v];
  }
  for (uint32_t t = 0; t < slice.tokens; ++t) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      const Floats x = slice.Load(t, v);
      low[v] = Min(x, low[v]);
      high[v] = Max(x, high[v]);
      magnitudes = LargerMagnitude(magnitudes, x);
    }
  }
  if (!AllFinite(magnitudes)) {
    return false;
  }
  for (uint32_t v = 0; v < kVectors; ++v) {
    GroupParameters groups;
    StoreFloats(groups.low, low[v]);
    StoreFloats(groups.high, high[v]);
    if (!MakeParameters(arrays.stored, false, CodeRange<kBits, false>::kHigh, arrays.gain,
                        &groups)) {
      return false;
    }
    scale[v] = LoadFloats(groups.scale);
    minimum[v] = LoadFloats(groups.minimum);
    std::byte* at =
        parameters + size_t{slice.channels.first + v * kLanes} * ElementBytes(arrays.stored);
    StoreParameters(arrays.stored, at, slice.CountOf(v), scale[v]);
    StoreParameters(arrays.stored, at + arrays.minima, slice.CountOf(v), minimum[v]);
  }
  return true;
}

template <DType kType, uint32_t kBits, uint32_t kVectors>
bool EncodeSlice(const ChannelArrays& arrays, const Slice<kType, kVectors>& slice,
                 const GroupOut& out) {
  Floats scale[kVectors];
  Floats minimum[kVectors];
  if (!SliceParameters<kBits>(arrays, slice, out.parameters, scale, minimum)) {
    return false;
  }
  for (uint32_t t = 0; t < slice.tokens; ++t) {
    std::byte* row = out.codes + size_t{t} * arrays.row_bytes;
    for (uint32_t v = 0; v < kVectors; ++v) {
      const Ints codes = Quantize<kBits, false>(slice.Load(t, v), scale[v], minimum[v]);
      const uint32_t channel = slice.channels.first + v * kLanes;
      if (slice.CountOf(v) < kLanes) {
        StoreFewCodes<kBits>(row, arrays.dim, channel, slice.CountOf(v), codes);
      } else {
        StoreCodes<kBits>(row, arrays.dim, channel, codes);
      }
    }
  }
  return true;
}

// `channels` of one group of at most kRowsMax tokens, whose rows begin at the first of them.
template <DType kType, uint32_t kBits>
bool EncodeChannels(const ChannelArrays& arrays, const Rows& rows, uint32_t tokens,
                    Channels channels, const GroupOut& out) {
  constexpr uint32_t kSlice = kSliceVectors * kLanes;
  Rows at = rows;
  const auto skip = [&](uint32_t count) {
    for (uint32_t t = 0; t < tokens; ++t) {
      at.row[t] += count * kBytesOf<kType>;
    }
  };
  const uint32_t end = channels.first + channels.count;
  uint32_t c = channels.first;
  for (; c + kSlice <= end; c += kSlice) {
    if (!EncodeSlice<kType, kBits, kSliceVectors>(arrays, {at, tokens, {c, kSlice}}, out)) {
      return false;
    }
    skip(kSlice);
  }
  for (; c < end; c += kLanes) {
    const Channels slice{c, Lesser(kLanes, end - c)};
    if (!EncodeSlice<kType, kBits, 1>(arrays, {at, tokens, slice}, out)) {
      return false;
    }
    skip(slice.count);
  }
  return true;
}

// Parameters of some channels of the group being decoded.
inline constexpr uint32_t kChannelsMax = 1024;
struct ChannelParameters {
  alignas(64) float scale[kChannelsMax];
  alignas(64) float minimum[kChannelsMax];

  // Of `channels`, at most kChannelsMax; `stored` are those of the group.
  void Load(const ChannelArrays& arrays, const std::byte* stored, Channels channels) {
    const uint32_t bytes = ElementBytes(arrays.stored);
    for (uint32_t c = 0; c < channels.count; c += kLanes) {
      const uint32_t count = Lesser(kLanes, channels.count - c);
      const std::byte* at = stored + size_t{channels.first + c} * bytes;
      StoreFloats(scale + c, LoadParameters(arrays.stored, at, count));
      StoreFloats(minimum + c, LoadParameters(arrays.stored, at + arrays.minima, count));
    }
  }
};

// `channels`, their first a multiple of 16, of the rows of `tokens` tokens, which begin at that
// channel; `codes` is the first one's row of codes.
template <DType kType, uint32_t kBits>
void DecodeChannels(const ChannelArrays& arrays, const std::byte* codes,
                    const ChannelParameters& parameters, const Rows& rows, uint32_t tokens,
                    Channels channels) {
  constexpr uint32_t kBytes = kBytesOf<kType>;
  for (uint32_t t = 0; t < tokens; ++t) {
    const std::byte* row = codes + size_t{t} * arrays.row_bytes;
    std::byte* out = rows.row[t];
    uint32_t c = 0;
    for (; c + kLanes <= channels.count; c += kLanes) {
      StoreAs<kType>(out + c * kBytes,
                     Dequantize<kBits, false>(
                         LoadCodes<kBits, false>(row, arrays.dim, channels.first + c),
                         LoadFloats(parameters.scale + c), LoadFloats(parameters.minimum + c)));
    }
    if (c < channels.count) {
      const uint32_t left = channels.count - c;
      const Ints few = LoadFewCodes<kBits, false>(row, arrays.dim, channels.first + c, left);
      StoreFewAs<kType>(out + c * kBytes, left,
                        Dequantize<kBits, false>(few, LoadFloats(parameters.scale + c),
                                                 LoadFloats(parameters.minimum + c)));
    }
  }
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
