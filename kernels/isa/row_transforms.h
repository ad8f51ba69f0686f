#pragma once

// What happens to rows of floats before they are coded and after they are decoded. Internal to
// kernels/isa.

#include <cstddef>
#include <cstdint>

#include "kernels/isa/rows.h"

namespace tokura::kernels {
namespace TOKURA_ISA {

// Sums of lanes kDistance apart in the lower ones, differences in the upper ones.
template <uint32_t kDistance>
inline Floats Butterfly(Floats x) {
  alignas(64) uint32_t signs[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    signs[i] = (i & kDistance) != 0 ? 0x80000000u : 0;
  }
  return Swap<kDistance>(x) + AsFloats(AsInts(x) ^ LoadInts(signs));
}

// One block of `block` ≥ 16 numbers, a power of two.
inline void HadamardVectors(float* x, uint32_t block) {
  for (uint32_t i = 0; i < block; i += kLanes) {
    StoreFloats(x + i, Butterfly<8>(Butterfly<4>(Butterfly<2>(Butterfly<1>(LoadFloats(x + i))))));
  }
  for (uint32_t half = kLanes; half < block; half *= 2) {
    for (uint32_t i = 0; i < block; i += 2 * half) {
      for (uint32_t j = i; j < i + half; j += kLanes) {
        const Floats a = LoadFloats(x + j);
        const Floats b = LoadFloats(x + j + half);
        StoreFloats(x + j, a + b);
        StoreFloats(x + j + half, a - b);
      }
    }
  }
}

inline void HadamardFew(float* x, uint32_t block) {
  for (uint32_t half = 1; half < block; half *= 2) {
    for (uint32_t i = 0; i < block; i += 2 * half) {
      for (uint32_t j = i; j < i + half; ++j) {
        const float sum = x[j] + x[j + half];
        x[j + half] = x[j] - x[j + half];
        x[j] = sum;
      }
    }
  }
}

// As KernelSet::hadamard.
inline void Hadamard(float* rows, size_t count, uint32_t dim) {
  const uint32_t block = dim & (0u - dim);
  for (size_t first = 0; first < count * dim; first += block) {
    if (block >= kLanes) {
      HadamardVectors(rows + first, block);
    } else {
      HadamardFew(rows + first, block);
    }
  }
}

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
