#pragma once

// Measuring the error record of one slab with the block's own keys as queries. Internal to
// kernels/.

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace tokura::kernels {

// The coded tokens of one slab, fp32, before and after coding. Borrowed.
struct ProxyInput {
  uint32_t tokens = 0;
  uint32_t k_dim = 0;
  uint32_t v_dim = 0;
  const float* k = nullptr;  // [tokens, k_dim]
  const float* v = nullptr;  // [tokens, v_dim]
  const float* k_decoded = nullptr;
  const float* v_decoded = nullptr;
};

// Keeps its scratch memory from slab to slab. Thread-compatible.
class ProxyMeter {
 public:
  // `queries` ≥ 1 of the keys, evenly spread over the tokens (all of them when there are fewer),
  // each attend over all tokens with scale 1/sqrt(k_dim). fp32 arithmetic; what overflows it
  // gives an infinite error and size 0.
  AttentionSums Measure(const ProxyInput& input, uint32_t queries);

 private:
  // Queries are taken in tiles of this many, the innermost axis of every array below: a key or
  // value is loaded once for all of them.
  static constexpr uint32_t kTile = 16;
  void LoadTile(const ProxyInput& input, uint32_t first, uint32_t count);
  void Output(const float* k, const float* v, const ProxyInput& input, std::vector<float>* out);

  std::vector<float> queries_;  // [k_dim, kTile], scaled
  std::vector<float> weights_;  // [tokens, kTile]
  std::vector<float> exact_;    // [v_dim, kTile]
  std::vector<float> decoded_;  // [v_dim, kTile]
};

}  // namespace tokura::kernels
