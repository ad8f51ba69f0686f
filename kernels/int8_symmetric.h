#pragma once

// 8-bit symmetric codes per token: int8 [tokens, dim], then one scale per token and channel group,
// [tokens, groups]. FORMAT.md, "Integer coding". Internal to kernels/.

#include "kernels/side_codec.h"

namespace tokura::kernels {

SideBytes Int8SymmetricBytes(const CodecSide& side, const SideShape& shape);
SideResult Int8SymmetricEncode(const CodecSide& side, const SideShape& shape, const float* x,
                               std::byte* out);
void Int8SymmetricDecode(const CodecSide& side, const SideShape& shape, const std::byte* in,
                         float* x);

}  // namespace tokura::kernels
