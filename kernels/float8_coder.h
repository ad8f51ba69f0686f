#pragma once

// float8 e4m3 codes with an fp32 scale, a power of two, per group; FORMAT.md, "Float8 coding".
// Internal to kernels/.

#include "kernels/kernel_set.h"

namespace tokura::kernels {

// Bytes of codes and parameters; `exact` is 0.
SideBytes Float8Bytes(const CodecSide& side, const SideShape& shape);

SideResult Float8Encode(const CoderTask& task, const float* y, const CoderArrays& out);
void Float8Decode(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows, float* y);

}  // namespace tokura::kernels
