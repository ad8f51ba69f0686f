#pragma once

// Measuring the error record of one slab, with a profile's exemplar queries or with the block's own
// keys in their place. Internal to kernels/.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/exemplars.h"
#include "kernels/kv_access.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {

// The coded tokens of one side of a slab, as they are in the view and as they were coded. Borrows.
struct RecordSide {
  SideAccess access;
  uint32_t first_token = 0;  // in the view
  SideTask task;
  const std::byte* coded = nullptr;  // unless task.side is raw
};

struct RecordInput {
  RecordSide k;
  RecordSide v;        // that of K again for a head without V
  uint32_t v_dim = 0;  // channels of v that are values
};

// fp32 arithmetic; what overflows it gives an infinite error and size 0. Values are converted and
// decoded tile by tile, and never leave the first cache. Keeps its scratch memory from slab to
// slab. Thread-compatible.
class RecordMeter {
 public:
  // Each exemplar, standing behind `last_position`, attends over all tokens.
  AttentionSums MeasureExemplars(const RecordInput& input, const Exemplars& exemplars,
                                 uint64_t last_position);

  // `queries` ≥ 1 of the keys, evenly spread over the tokens (all of them when there are fewer),
  // each attend over all tokens with scale 1/sqrt(k_dim).
  AttentionSums MeasureProxies(const RecordInput& input, uint32_t queries);

 private:
  enum class Form { kExact, kDecoded };
  // What the queries make of one form of the slab.
  struct Attention {
    std::vector<float> weights;  // [tile][token / 4][4 queries][token % 4]
    std::vector<float> outputs;  // [query][v_dim]
  };

  void LoadExemplars(const Exemplars& exemplars, uint64_t last_position);
  void LoadProxies(const RecordInput& input, uint32_t count);
  void FindRotations(const Exemplars& exemplars, uint64_t last_position);
  void Turn(const Exemplars& exemplars);
  // The first `count` of the queries that are loaded.
  AttentionSums Measure(const RecordInput& input, uint32_t count);
  void LoadRows(const RecordSide& side, Form form, TokenRange rows);
  void FindWeights(const RecordSide& side);
  void FindOutputs(const RecordInput& input);
  void AddOutputs(const RecordInput& input, TokenRange rows, Attention* attention);

  // The rotations of one position, which all heads and most layers share.
  std::vector<uint64_t> turns_;
  uint64_t last_position_ = 0;
  std::vector<Rotation> rotations_;

  uint32_t tiles_ = 0;
  std::vector<float> queries_;  // as RecordQueries, scaled
  size_t weights_of_tile_ = 0;
  Attention exact_;
  Attention decoded_;
  std::vector<float> rows_;
  SideScratch scratch_;
};

}  // namespace tokura::kernels
