#pragma once

// float8 e4m3 coding of sides with scales that are powers of two; FORMAT.md, "Float8 coding".
// Internal to kernels/isa.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/isa/sides.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// Scales of sixteen groups whose largest magnitudes are groups->high. False: one of them is not
// representable.
inline bool MakeFloat8Scales(DType dtype, float gain, GroupParameters* groups) {
  if (dtype == DType::kFloat8E4M3) {
    StoreFloats(groups->scale, Splat(1.0f));  // codes are the elements themselves
    return true;
  }
  const Floats largest = LoadFloats(groups->high);
  const Floats quotient = largest / Splat(448.0f);
  const Floats power = AsFloats((AsInts(quotient) + SplatInt(0x007fffff)) & SplatInt(0x7f800000));
  Floats scale = SelectLess(Splat(0x1p-126f), quotient, power, Splat(0x1p-126f));
  scale = SelectEqual(largest, Splat(0.0f), Splat(1.0f), scale);
  StoreFloats(groups->scale, scale);
  const Floats top = FromFloat8(ToFloat8(largest / scale)) * scale * Splat(gain);
  return WithType(dtype, [&]<DType kType>() {
    return AllAtMost(RoundTo<kType>(top), LargestFiniteOf<kType>());
  });
}

// `channels` channels of one row; `inverse` is a power of two.
template <DType kType>
inline void EncodeFloat8Row(const std::byte* x, uint32_t channels, Floats inverse,
                            std::byte* codes) {
  uint32_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    StoreBytes(codes + c, LowBytes(ToFloat8(LoadAs<kType>(x + c * kBytesOf<kType>) * inverse)));
  }
  if (c < channels) {
    std::byte few[kLanes];
    const Floats v = LoadFewAs<kType>(x + c * kBytesOf<kType>, channels - c);
    StoreBytes(few, LowBytes(ToFloat8(v * inverse)));
    std::memcpy(codes + c, few, channels - c);
  }
}

template <DType kType>
inline void DecodeFloat8Row(const std::byte* codes, uint32_t channels, Floats scale,
                            std::byte* out) {
  uint32_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    StoreAs<kType>(out + c * kBytesOf<kType>,
                   FromFloat8(WidenUnsigned(LoadBytes(codes + c))) * scale);
  }
  if (c < channels) {
    std::byte few[kLanes] = {};
    std::memcpy(few, codes + c, channels - c);
    StoreFewAs<kType>(out + c * kBytesOf<kType>, channels - c,
                      FromFloat8(WidenUnsigned(LoadBytes(few))) * scale);
  }
}

// One scale for the whole side.
template <DType kType>
bool EncodeFloat8Side(const CoderTask& task, const SideAccess& access, TokenRange range,
                      const CoderArrays& out) {
  Ints magnitudes = SplatInt(0);
  GroupParameters groups;
  GatherTokens(access, range, [&](const Rows& rows, uint32_t tokens, uint32_t) {
    for (uint32_t i = 0; i < tokens; ++i) {
      float low;
      RowExtremes<kType, true>(rows.row[i], task.dim, &low, groups.high, &magnitudes);
    }
    return true;
  });
  groups.high[0] = MaxOf(AsFloats(magnitudes));
  groups.FillUpFrom(1);
  if (!AllFinite(magnitudes) || !MakeFloat8Scales(task.dtype, task.gain, &groups)) {
    return false;
  }
  std::memcpy(out.parameters, groups.scale, sizeof(float));
  const Floats inverse = Splat(1.0f / groups.scale[0]);
  return GatherTokens(access, range, [&](const Rows& rows, uint32_t tokens, uint32_t before) {
    for (uint32_t i = 0; i < tokens; ++i) {
      EncodeFloat8Row<kType>(rows.row[i], task.dim, inverse,
                             out.codes + size_t{before + i} * task.dim);
    }
    return true;
  });
}

// Scales of groups of channels of one token. At most sixteen tokens.
template <DType kType>
bool EncodeFloat8Tokens(const CoderTask& task, const Rows& rows, TokenRange tokens,
                        const CoderArrays& out) {
  const ChannelGroups shape = ChannelGroupsOf(task);
  for (uint32_t g = 0; g < shape.groups; ++g) {
    const Channels channels = shape.At(g);
    const uint32_t skip = channels.first * kBytesOf<kType>;
    GroupParameters groups;
    Ints magnitudes = SplatInt(0);
    for (uint32_t i = 0; i < tokens.count; ++i) {
      RowExtremes<kType, true>(rows.row[i] + skip, channels.count, groups.low + i, groups.high + i,
                               &magnitudes);
    }
    groups.FillUpFrom(tokens.count);
    if (!AllFinite(magnitudes) || !MakeFloat8Scales(task.dtype, task.gain, &groups)) {
      return false;
    }
    for (uint32_t i = 0; i < tokens.count; ++i) {
      const size_t token = size_t{tokens.first} + i;
      std::memcpy(out.parameters + (token * shape.groups + g) * sizeof(float), groups.scale + i,
                  sizeof(float));
      EncodeFloat8Row<kType>(rows.row[i] + skip, channels.count, Splat(1.0f / groups.scale[i]),
                             out.codes + token * task.dim + channels.first);
    }
  }
  return true;
}

inline SideResult EncodeFloat8(const CoderTask& task, const SideAccess& access, TokenRange range,
                               const CoderArrays& out) {
  const bool ok = WithType(access.dtype, [&]<DType kType>() {
    if (task.side.grouping == Grouping::kNone) {
      return EncodeFloat8Side<kType>(task, access, range, out);
    }
    return GatherTokens(access, range, [&](const Rows& rows, uint32_t tokens, uint32_t before) {
      return EncodeFloat8Tokens<kType>(task, rows, {before, tokens}, out);
    });
  });
  return ok ? SideResult::kOk : SideResult::kNotRepresentable;
}

inline void DecodeFloat8(const CoderTask& task, const ConstCoderArrays& in, TokenRange coded,
                         const SideAccess& access, uint32_t first_token) {
  const ChannelGroups shape = ChannelGroupsOf(task);
  const bool one = task.side.grouping == Grouping::kNone;
  WithType(access.dtype, [&]<DType kType>() {
    ScatterTokens(
        access, {first_token, coded.count},
        [&](const Rows& rows, uint32_t tokens, uint32_t before) {
          for (uint32_t i = 0; i < tokens; ++i) {
            const size_t token = size_t{coded.first} + before + i;
            for (uint32_t g = 0; g < shape.groups; ++g) {
              const Channels channels = shape.At(g);
              float scale;
              std::memcpy(&scale,
                          in.parameters + (one ? g : token * shape.groups + g) * sizeof(float),
                          sizeof(scale));
              DecodeFloat8Row<kType>(in.codes + token * task.dim + channels.first, channels.count,
                                     Splat(scale), rows.row[i] + channels.first * kBytesOf<kType>);
            }
          }
        });
  });
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
