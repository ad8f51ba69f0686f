#pragma once

// Rounding with feedback from channel to channel, sixteen tokens at a time; FORMAT.md, "Guided
// rounding". Internal to kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/channel_coder.h"
#include "kernels/isa/sides.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// Channels in the guide's order, whose factors are a triangle, row by row.
struct Feedback {
  const uint16_t* order;
  const float* factors;
  uint32_t dim;

  // Factors of position i for the positions from i + 1 on.
  const float* RowOf(uint32_t i) const {
    return factors + size_t{i} * (2 * size_t{dim} - i - 1) / 2;
  }
};

// The parameters of a group, and what the numbers of each channel are divided by: its scale, or
// infinity where the group's are equal, whose codes are 0 whatever the feedback.
struct GuidedParameters {
  ChannelParameters stored;
  alignas(64) float divisor[kChannelsMax];

  // `y` is the group's [tokens, dim]; `stored` is loaded.
  void SetDivisors(const float* y, uint32_t tokens, uint32_t dim) {
    for (uint32_t c = 0; c < dim; ++c) {
      divisor[c] = __builtin_huge_valf();
    }
    for (uint32_t t = 1; t < tokens; ++t) {
      for (uint32_t c = 0; c < dim; ++c) {
        divisor[c] = y[size_t{t} * dim + c] != y[c] ? stored.scale[c] : divisor[c];
      }
    }
  }
};

// Sixteen tokens, one in each lane, while their channels are rounded.
struct GuidedTokens {
  alignas(64) float work[size_t{kChannelsMax} * kLanes];     // [position, lane]
  alignas(64) uint8_t codes[size_t{kLanes} * kChannelsMax];  // [lane, channel]

  // Tokens of `rows`, [dim] floats; lanes from `count` on repeat the first.
  void Load(const Feedback& feedback, const Rows& rows, uint32_t count) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const auto* row = reinterpret_cast<const float*>(rows.row[lane < count ? lane : 0]);
      for (uint32_t i = 0; i < feedback.dim; ++i) {
        work[size_t{i} * kLanes + lane] = row[feedback.order[i]];
      }
    }
  }

  // Rounds the channel at position i; its error.
  template <uint32_t kBits>
  Floats Round(const Feedback& feedback, const GuidedParameters& parameters, uint32_t i) {
    const uint32_t channel = feedback.order[i];
    const Floats scale = Splat(parameters.stored.scale[channel]);
    const Floats minimum = Splat(parameters.stored.minimum[channel]);
    const Floats x = LoadFloats(work + size_t{i} * kLanes);
    const Ints rounded = Quantize<kBits, false>(x, Splat(parameters.divisor[channel]), minimum);
    uint8_t bytes[kLanes];
    StoreBytes(bytes, LowBytes(rounded));
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      codes[size_t{lane} * kChannelsMax + channel] = bytes[lane];
    }
    return x - Dequantize<kBits, false>(rounded, scale, minimum);
  }
};

// Four positions at a time: what they lose is taken from all later ones in one go, in the order in
// which one after the other would take it.
template <uint32_t kBits>
void RoundWithFeedback(const Feedback& feedback, const GuidedParameters& parameters,
                       GuidedTokens* tokens) {
  constexpr uint32_t kBlock = 4;
  for (uint32_t first = 0; first < feedback.dim; first += kBlock) {
    const uint32_t count = Lesser(kBlock, feedback.dim - first);
    Floats errors[kBlock];
    const float* rows[kBlock];  // factors of the positions from the block's end on
    for (uint32_t k = 0; k < count; ++k) {
      const float* row = feedback.RowOf(first + k);
      errors[k] = tokens->Round<kBits>(feedback, parameters, first + k);
      for (uint32_t later = k + 1; later < count; ++later) {
        float* w = tokens->work + size_t{first + later} * kLanes;
        StoreFloats(w, LoadFloats(w) - errors[k] * Splat(row[later - k - 1]));
      }
      rows[k] = row + (count - k - 1);
    }
    const uint32_t left = feedback.dim - first - count;  // none behind an incomplete block
    float* w = tokens->work + size_t{first + count} * kLanes;
    for (uint32_t j = 0; j < left; ++j, w += kLanes) {
      Floats x = LoadFloats(w);
      for (uint32_t k = 0; k < kBlock; ++k) {
        x = x - errors[k] * Splat(rows[k][j]);
      }
      StoreFloats(w, x);
    }
  }
}

// At most sixteen tokens of one group to their rows of codes.
template <uint32_t kBits>
void EncodeGuidedTokens(const ChannelArrays& arrays, const Feedback& feedback,
                        const GuidedParameters& parameters, const Rows& rows, uint32_t count,
                        std::byte* codes) {
  GuidedTokens tokens;
  tokens.Load(feedback, rows, count);
  RoundWithFeedback<kBits>(feedback, parameters, &tokens);
  for (uint32_t lane = 0; lane < count; ++lane) {
    const uint8_t* chosen = tokens.codes + size_t{lane} * kChannelsMax;
    std::byte* row = codes + size_t{lane} * arrays.row_bytes;
    for (uint32_t c = 0; c < arrays.dim; c += kLanes) {
      const Ints lanes = WidenUnsigned(LoadBytes(chosen + c));
      if (arrays.dim - c < kLanes) {
        StoreFewCodes<kBits>(row, arrays.dim, c, arrays.dim - c, lanes);
      } else {
        StoreCodes<kBits>(row, arrays.dim, c, lanes);
      }
    }
  }
}

// Groups of tokens of one channel, rounding guided by channel. `y` is [tokens, dim].
template <uint32_t kBits>
SideResult EncodeGuided(const CoderTask& task, const float* y, const CoderArrays& out) {
  if (task.dim > kChannelsMax) {
    return ScalarKernels().coder(task.side, task.dtype).encode(task, y, out);
  }
  const ChannelArrays arrays = ChannelArraysOf(task);
  const Feedback feedback{task.guide.order.data(), task.guide.factors.data(), task.dim};
  const SideAccess access = DenseAccess(y, task.tokens, task.dim);
  GroupOut group{out.codes, out.parameters};
  for (uint32_t first = 0; first < task.tokens; first += arrays.group) {
    const uint32_t count = Lesser(arrays.group, task.tokens - first);
    for (uint32_t c = 0; c < task.dim; c += kLanes) {
      const Channels channels{c, Lesser(kLanes, task.dim - c)};
      Rows rows;
      Floats scale;
      Floats minimum;
      PointToRows(access, {first, count}, channels, &rows);
      const Slice<DType::kFloat32, 1> slice{rows, count, channels};
      if (!SliceParameters<kBits>(arrays, slice, group.parameters, &scale, &minimum)) {
        return SideResult::kNotRepresentable;
      }
    }
    GuidedParameters parameters;
    parameters.stored.Load(arrays, group.parameters, {0, task.dim});
    parameters.SetDivisors(y + size_t{first} * task.dim, count, task.dim);
    for (uint32_t t = 0; t < count; t += kLanes) {
      const uint32_t tile = Lesser(kLanes, count - t);
      Rows rows;
      PointToRows(access, {first + t, tile}, {0, task.dim}, &rows);
      EncodeGuidedTokens<kBits>(arrays, feedback, parameters, rows, tile,
                                group.codes + size_t{t} * arrays.row_bytes);
    }
    group.codes += size_t{count} * arrays.row_bytes;
    group.parameters += arrays.group_bytes;
  }
  return SideResult::kOk;
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
