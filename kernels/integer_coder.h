#pragma once

// Codes of 8, 4, 3 or 2 bits with a scale, or scale and minimum, per group of channels of a token
// or of tokens of a channel; FORMAT.md, "Integer coding" and "Guided rounding". Internal to
// kernels/.

#include "kernels/kernel_set.h"

namespace tokura::kernels {

// Bytes of codes and parameters; `exact` is 0.
SideBytes IntegerBytes(const CodecSide& side, const SideShape& shape);

SideResult IntegerEncode(const CoderTask& task, const float* y, const CoderArrays& out);
void IntegerDecode(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows, float* y);

}  // namespace tokura::kernels
