#pragma once

// Codes of a Lloyd–Max codebook with a scale per group of channels of a token that gives the group
// its length back; FORMAT.md, "Lloyd–Max coding". Internal to kernels/.

#include "kernels/kernel_set.h"

namespace tokura::kernels {

// Bytes of codes and parameters; `exact` is 0.
SideBytes LloydMaxBytes(const CodecSide& side, const SideShape& shape);

SideResult LloydMaxEncode(const CoderTask& task, const float* y, const CoderArrays& out);
void LloydMaxDecode(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows, float* y);

// Σ x² of `count` numbers: 16 sums, of every 16th number each, which are then added by halves
// (i and i + 8, i and i + 4, i and i + 2, the last two). All sets of kernels keep this order.
float SumOfSquares(const float* x, uint32_t count);

}  // namespace tokura::kernels
