#pragma once

// The products and the softmax of the error record, for sixteen queries at a time, with the plain
// code's sums in the plain code's order. Internal to kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/rows.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// kRows rows of a product from `row` on.
template <uint32_t kRows>
inline void ProductRows(const RecordProduct& p, uint32_t row, const float* b, float* out) {
  const float* a[kRows];
  Floats sum[kRows];
  for (uint32_t r = 0; r < kRows; ++r) {
    a[r] = p.a + (size_t{row} + r) * p.row_stride;
    sum[r] = Splat(0.0f);
  }
  for (size_t j = 0; j < p.terms; ++j) {
    const Floats x = LoadFloats(b + j * kLanes);
    for (uint32_t r = 0; r < kRows; ++r) {
      sum[r] = sum[r] + Splat(a[r][j * p.stride]) * x;
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    StoreFloats(out + (size_t{row} + r) * kLanes, sum[r]);
  }
}

// As KernelSet::record_product.
inline void Product(const RecordProduct& p, const float* b, float* out) {
  uint32_t row = 0;
  for (; row + kProductRows <= p.rows; row += kProductRows) {
    ProductRows<kProductRows>(p, row, b, out);
  }
  for (; row < p.rows; ++row) {
    ProductRows<1>(p, row, b, out);
  }
}

// e^x for x ≤ 0, as exponential.h has it for one number, but that NaN stays NaN: error_record.cc.
inline Floats ExponentialOfNegative(Floats x) {
  const Floats clamped = SelectLess(x, Splat(-87.0f), Splat(-87.0f), x);
  const Ints n = Round(clamped * Splat(1.44269504f));
  const Floats whole = ToFloats(n);
  const Floats r = clamped - whole * Splat(0.693359375f) + whole * Splat(2.12194440e-4f);
  Floats series = Splat(1 / 120.0f) + r * Splat(1 / 720.0f);
  series = Splat(1 / 24.0f) + r * series;
  series = Splat(1 / 6.0f) + r * series;
  series = Splat(1 / 2.0f) + r * series;
  series = Splat(1.0f) + r * series;
  series = Splat(1.0f) + r * series;
  return series * AsFloats(ShiftLeft<23>(n + SplatInt(127)));
}

// As KernelSet::record_softmax.
inline void Softmax(uint32_t tokens, float* weights) {
  Floats largest = LoadFloats(weights);
  for (uint32_t t = 0; t < tokens; ++t) {
    largest = Max(LoadFloats(weights + size_t{t} * kLanes), largest);
  }
  Floats sum = Splat(0.0f);
  for (uint32_t t = 0; t < tokens; ++t) {
    float* w = weights + size_t{t} * kLanes;
    const Floats e = ExponentialOfNegative(LoadFloats(w) - largest);
    StoreFloats(w, e);
    sum = sum + e;
  }
  for (uint32_t t = 0; t < tokens; ++t) {
    float* w = weights + size_t{t} * kLanes;
    StoreFloats(w, LoadFloats(w) / sum);
  }
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
