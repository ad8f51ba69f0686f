#pragma once

// Exemplar queries in the form in which error records are measured with them.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rope.h"

namespace tokura::kernels {

inline constexpr uint32_t kExemplarsMax = 64;
// Exemplars stand this many positions behind a block at most.
inline constexpr uint32_t kExemplarSpan = 512;

// How far behind the block's last token exemplar `index` of `count` stands: round(1 + (s − 1) ·
// index / (count − 1)), halves up. s is kExemplarSpan, in a sliding layer at most half its window
// (window 0: none), so that the query still sees every token of a block of the other half.
uint32_t ExemplarOffset(uint32_t index, uint32_t count, uint32_t window);

// The exemplars of one (layer, KV head), times the softmax scale and turned to stand at their
// offsets behind position 0. Borrows.
struct Exemplars {
  uint32_t count = 0;
  uint32_t k_dim = 0;
  // [⌈count / 4⌉][⌈k_dim / 4⌉][4 exemplars][4 channels], absent ones zero: what RecordQueries of
  // kernel_set.h are.
  const float* tiles = nullptr;
  RopeShape rope;
  std::span<const uint64_t> turns;  // [rope.pairs()]

  uint32_t tile_count() const { return (count + 3) / 4; }
};

// Floats of Exemplars::tiles, and where in them a channel of an exemplar is.
size_t ExemplarTileFloats(uint32_t count, uint32_t k_dim);
size_t ExemplarTileIndex(uint32_t exemplar, uint32_t channel, uint32_t k_dim);

// Append the exemplars to `out` as rows [count, k_dim], standing behind `last_position`, the
// position of a block's last token. The same bits on every machine. Needs the default
// floating-point environment.
void AppendExemplarRows(const Exemplars& exemplars, uint64_t last_position,
                        std::vector<float>* out);

}  // namespace tokura::kernels
