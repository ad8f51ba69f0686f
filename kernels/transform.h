#pragma once

// What happens to rows before they are coded and after they are decoded; FORMAT.md, "Transforms".
// Internal to kernels/.

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/kernel_set.h"
#include "kernels/side_profile.h"

namespace tokura::kernels {

// Size of the blocks of the Hadamard matrix: the largest power of two that divides `dim` (0 for 0).
TOKURA_HOST_DEVICE constexpr uint32_t HadamardBlock(uint32_t dim) {
  return dim & (0u - dim);
}

// Word `index` of the sequence of random bits that `seed` stands for (SplitMix64). Bit c mod 64 of
// word ⌊c / 64⌋ says whether channel c changes its sign before the Hadamard matrix.
TOKURA_HOST_DEVICE constexpr uint64_t SignWord(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The powers of two that rows are multiplied with behind the matrix: 2^-⌊k/2⌋ on the way to codes,
// 2^-⌈k/2⌉ on the way back, for blocks of 2^k.
TOKURA_HOST_DEVICE constexpr float HadamardScale(uint32_t block, bool back) {
  float scale = 1;
  for (uint32_t n = block; n > (back ? 1u : 2u); n /= 4) {
    scale *= 0.5f;
  }
  return scale;
}

// For CoderTask::gain.
float TransformGain(const CodecSide& side, const SideProfile& profile, uint32_t dim);

// In place, `count` rows of `dim` numbers; `kernels` has every function that it needs.
void ApplyTransform(const SideTask& task, const KernelSet& kernels, size_t count, float* rows);
void UndoTransform(const SideTask& task, const KernelSet& kernels, size_t count, float* rows);

// The scalar function of KernelSet::hadamard: stages 1, 2, 4, … of sums and differences.
void ScalarHadamard(float* rows, size_t count, uint32_t dim);

}  // namespace tokura::kernels
