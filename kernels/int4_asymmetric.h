#pragma once

// 4-bit codes with scale and minimum, per channel over tokens or per token over channels: one
// uint32_t per eight channels of a token, then the parameters. FORMAT.md, "Integer coding".
// Internal to kernels/.

#include "kernels/side_codec.h"

namespace tokura::kernels {

SideBytes Int4AsymmetricBytes(const CodecSide& side, const SideShape& shape);
SideResult Int4AsymmetricEncode(const CodecSide& side, const SideShape& shape, const float* x,
                                std::byte* out);
void Int4AsymmetricDecode(const CodecSide& side, const SideShape& shape, const std::byte* in,
                          float* x);

}  // namespace tokura::kernels
