#pragma once

// Measuring the error record of one slab, with a profile's exemplar queries or with the block's own
// keys in their place. Internal to kernels/.

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/exemplars.h"

namespace tokura::kernels {

// The coded tokens of one slab, fp32, before and after coding. Borrowed.
struct RecordInput {
  uint32_t tokens = 0;
  uint32_t k_dim = 0;
  uint32_t v_dim = 0;
  uint32_t v_stride = 0;     // from one token's v to the next one's; v_dim unless v is part of k
  const float* k = nullptr;  // [tokens, k_dim]
  const float* v = nullptr;  // [tokens, v_dim] in rows of v_stride
  const float* k_decoded = nullptr;
  const float* v_decoded = nullptr;
};

// fp32 arithmetic; what overflows it gives an infinite error and size 0. Keeps its scratch memory
// from slab to slab. Thread-compatible.
class RecordMeter {
 public:
  // Each exemplar, standing behind `last_position`, attends over all tokens.
  AttentionSums MeasureExemplars(const RecordInput& input, const Exemplars& exemplars,
                                 uint64_t last_position);

  // `queries` ≥ 1 of the keys, evenly spread over the tokens (all of them when there are fewer),
  // each attend over all tokens with scale 1/sqrt(k_dim).
  AttentionSums MeasureProxies(const RecordInput& input, uint32_t queries);

 private:
  // Queries are taken in tiles of this many, the innermost axis of every array below: a key or
  // value is loaded once for all of them.
  static constexpr uint32_t kTile = kExemplarLanes;
  void LoadExemplars(const Exemplars& exemplars, uint32_t tile);
  void LoadProxies(const RecordInput& input, uint32_t first, uint32_t count);
  void FindRotations(const Exemplars& exemplars, uint64_t last_position);
  void AddTile(const RecordInput& input, uint32_t used, AttentionSums* sums);
  void Output(const float* k, const float* v, const RecordInput& input, std::vector<float>* out);

  // The rotations of one position, which all heads and most layers share.
  std::vector<uint64_t> turns_;
  uint64_t last_position_ = 0;
  std::vector<Rotation> rotations_;

  std::vector<float> queries_;  // [k_dim, kTile], scaled
  std::vector<float> weights_;  // [tokens, kTile]
  std::vector<float> exact_;    // [v_dim, kTile]
  std::vector<float> decoded_;  // [v_dim, kTile]
};

}  // namespace tokura::kernels
