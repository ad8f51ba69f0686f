#include "kernels/transform.h"

#include <algorithm>

namespace tokura::kernels {
namespace {

void FlipSigns(uint64_t seed, uint32_t dim, size_t count, float* rows) {
  for (uint32_t c = 0; c < dim; ++c) {
    if ((SignWord(seed, c / 64) >> (c % 64) & 1) != 0) {
      for (size_t r = 0; r < count; ++r) {
        rows[r * dim + c] = -rows[r * dim + c];
      }
    }
  }
}

void Scale(float factor, size_t elements, float* x) {
  for (size_t i = 0; i < elements; ++i) {
    x[i] *= factor;
  }
}

}  // namespace

float TransformGain(const CodecSide& side, const SideProfile& profile, uint32_t dim) {
  switch (side.transform) {
    case Transform::kSmooth:
      return dim == 0 ? 1.0f : *std::max_element(profile.smooth.begin(), profile.smooth.end());
    case Transform::kHadamard: {
      const uint32_t block = HadamardBlock(dim);
      return static_cast<float>(block) * HadamardScale(block, true);
    }
    default:
      return 1.0f;
  }
}

void ApplyTransform(const SideTask& task, const KernelSet& kernels, size_t count, float* rows) {
  const uint32_t dim = task.shape.dim;
  if (task.side.transform == Transform::kSmooth) {
    for (size_t r = 0; r < count; ++r) {
      for (uint32_t c = 0; c < dim; ++c) {
        rows[r * dim + c] /= task.profile.smooth[c];
      }
    }
  } else if (task.side.transform == Transform::kHadamard) {
    FlipSigns(task.profile.sign_seed, dim, count, rows);
    kernels.hadamard(rows, count, dim);
    Scale(HadamardScale(HadamardBlock(dim), false), count * dim, rows);
  }
}

void UndoTransform(const SideTask& task, const KernelSet& kernels, size_t count, float* rows) {
  const uint32_t dim = task.shape.dim;
  if (task.side.transform == Transform::kSmooth) {
    for (size_t r = 0; r < count; ++r) {
      for (uint32_t c = 0; c < dim; ++c) {
        rows[r * dim + c] *= task.profile.smooth[c];
      }
    }
  } else if (task.side.transform == Transform::kHadamard) {
    kernels.hadamard(rows, count, dim);
    Scale(HadamardScale(HadamardBlock(dim), true), count * dim, rows);
    FlipSigns(task.profile.sign_seed, dim, count, rows);
  }
}

void ScalarHadamard(float* rows, size_t count, uint32_t dim) {
  const uint32_t block = HadamardBlock(dim);
  for (size_t first = 0; first < count * dim; first += block) {
    float* x = rows + first;
    for (uint32_t half = 1; half < block; half *= 2) {
      for (uint32_t i = 0; i < block; i += 2 * half) {
        for (uint32_t j = i; j < i + half; ++j) {
          const float sum = x[j] + x[j + half];
          const float difference = x[j] - x[j + half];
          x[j] = sum;
          x[j + half] = difference;
        }
      }
    }
  }
}

}  // namespace tokura::kernels
