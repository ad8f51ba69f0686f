#pragma once

// Which captured queries become exemplars.

#include <cstdint>
#include <span>
#include <vector>

namespace tokura::kernels {

// Queries that may be chosen, of one (layer, KV head). Borrows.
struct ExemplarPool {
  uint32_t count = 0;
  uint32_t k_dim = 0;
  uint32_t offsets = 0;  // how many positions behind a block each is tried at
  // [offsets, count, k_dim]: times the softmax scale, turned to stand at an offset behind
  // position 0.
  std::span<const float> queries;
};

// A block to try them on, turned so that its last token is at position 0. Borrows.
struct CalibrationBlock {
  uint32_t tokens = 0;
  uint32_t v_dim = 0;
  std::span<const float> k;  // [tokens, k_dim]
  std::span<const float> v;  // [tokens, v_dim]
};

// `count` indices into the pool, or all of it where it is smaller, each once. They are chosen one
// after the other such that, for every number of them, the size of their attention outputs and the
// error that quantization noise causes in them come close to the means over the whole pool, on
// every block: the first ones alone are a good choice, too. Ties go to the lower index. No blocks:
// spread evenly over the pool. Needs the default floating-point environment.
std::vector<uint32_t> ChooseExemplars(const ExemplarPool& pool,
                                      std::span<const CalibrationBlock> blocks, uint32_t count);

}  // namespace tokura::kernels
