#pragma once

// Integer coding of whole sides, from and to an engine's pages. Internal to kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/channel_coder.h"
#include "kernels/isa/sides.h"
#include "kernels/isa/token_coder.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

template <uint32_t kBits, bool kSymmetric>
SideResult EncodePerToken(const CoderTask& task, const SideAccess& access, TokenRange range,
                          const CoderArrays& out) {
  const TokenArrays arrays = TokenArraysOf(task, kSymmetric);
  const bool ok = WithType(access.dtype, [&]<DType kType>() {
    return GatherTokens(access, range, [&](const Rows& rows, uint32_t tokens, uint32_t before) {
      return EncodeTokens<kType, kBits, kSymmetric>(arrays, rows, {before, tokens}, out);
    });
  });
  return ok ? SideResult::kOk : SideResult::kNotRepresentable;
}

template <uint32_t kBits, bool kSymmetric>
void DecodePerToken(const CoderTask& task, const ConstCoderArrays& in, TokenRange coded,
                    const SideAccess& access, uint32_t first_token) {
  const TokenArrays arrays = TokenArraysOf(task, kSymmetric);
  WithType(access.dtype, [&]<DType kType>() {
    ScatterTokens(
        access, {first_token, coded.count},
        [&](const Rows& rows, uint32_t tokens, uint32_t before) {
          DecodeTokens<kType, kBits, kSymmetric>(arrays, in, {coded.first + before, tokens}, rows);
        });
  });
}

// One group of tokens, those of `range`.
template <DType kType, uint32_t kBits>
bool EncodeGroupOfTokens(const ChannelArrays& arrays, const SideAccess& access, TokenRange range,
                         const GroupOut& out) {
  Rows rows;
  if (HasContiguousRows(access)) {
    PointToRows(access, range, {0, arrays.dim}, &rows);
    return EncodeChannels<kType, kBits>(arrays, rows, range.count, {0, arrays.dim}, out);
  }
  alignas(64) std::byte dense[kTileBytes];
  for (uint32_t c = 0; c < arrays.dim; c += kPatchChannels) {
    const Channels channels{c, Lesser(kPatchChannels, arrays.dim - c)};
    MoveTile<Direction::kGather>(access, range, channels, dense);
    PointToDense(dense, channels.count * kBytesOf<kType>, range.count, &rows);
    if (!EncodeChannels<kType, kBits>(arrays, rows, range.count, channels, out)) {
      return false;
    }
  }
  return true;
}

template <uint32_t kBits>
SideResult EncodePerChannel(const CoderTask& task, const SideAccess& access, TokenRange range,
                            const CoderArrays& out) {
  const ChannelArrays arrays = ChannelArraysOf(task);
  const bool ok = WithType(access.dtype, [&]<DType kType>() {
    GroupOut group{out.codes, out.parameters};
    for (uint32_t t = 0; t < range.count; t += arrays.group) {
      const TokenRange tokens{range.first + t, Lesser(arrays.group, range.count - t)};
      if (!EncodeGroupOfTokens<kType, kBits>(arrays, access, tokens, group)) {
        return false;
      }
      group.codes += size_t{tokens.count} * arrays.row_bytes;
      group.parameters += arrays.group_bytes;
    }
    return true;
  });
  return ok ? SideResult::kOk : SideResult::kNotRepresentable;
}

// Coded tokens of one group to the tokens `range` of the view. `codes` is the first one's row.
template <DType kType, uint32_t kBits>
void DecodeGroupOfTokens(const ChannelArrays& arrays, const ConstCoderArrays& in,
                         const SideAccess& access, TokenRange range) {
  alignas(64) std::byte dense[kTileBytes];
  const bool contiguous = HasContiguousRows(access);
  const uint32_t step = contiguous ? kChannelsMax : kPatchChannels;
  ChannelParameters parameters;
  Rows rows;
  for (uint32_t c = 0; c < arrays.dim; c += step) {
    const Channels channels{c, Lesser(step, arrays.dim - c)};
    parameters.Load(arrays, in.parameters, channels);
    if (contiguous) {
      PointToRows(access, range, channels, &rows);
      DecodeChannels<kType, kBits>(arrays, in.codes, parameters, rows, range.count, channels);
    } else {
      PointToDense(dense, channels.count * kBytesOf<kType>, range.count, &rows);
      DecodeChannels<kType, kBits>(arrays, in.codes, parameters, rows, range.count, channels);
      MoveTile<Direction::kScatter>(access, range, channels, dense);
    }
  }
}

template <uint32_t kBits>
void DecodePerChannel(const CoderTask& task, const ConstCoderArrays& in, TokenRange coded,
                      const SideAccess& access, uint32_t first_token) {
  const ChannelArrays arrays = ChannelArraysOf(task);
  WithType(access.dtype, [&]<DType kType>() {
    for (uint32_t done = 0; done < coded.count;) {
      const uint32_t token = coded.first + done;
      const uint32_t count = Lesser(arrays.group - token % arrays.group, coded.count - done);
      const ConstCoderArrays group{in.codes + size_t{token} * arrays.row_bytes,
                                   in.parameters + token / arrays.group * arrays.group_bytes};
      DecodeGroupOfTokens<kType, kBits>(arrays, group, access, {first_token + done, count});
      done += count;
    }
  });
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
