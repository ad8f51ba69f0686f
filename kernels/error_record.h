#pragma once

// Measuring the error record of one slab, with a profile's exemplar queries or with the block's own
// keys in their place. Internal to kernels/.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "kernels/exemplars.h"
#include "kernels/kv_access.h"
#include "kernels/record_input.h"
#include "kernels/side_codec.h"
#include "kernels/tile_meter.h"

namespace tokura::kernels {

// fp32 arithmetic; what overflows it gives an infinite error and size 0. Values are converted and
// decoded piece by piece, and never leave the first cache. Where the instruction set has tile units
// they do the products; tile_record.h says how well the sums agree. Keeps its scratch memory from
// slab to slab. Thread-compatible.
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

  // Once their rotations are found.
  void LoadExemplars(const Exemplars& exemplars);
  void LoadProxies(const RecordInput& input, uint32_t count);
  void FindRotations(const Exemplars& exemplars, uint64_t last_position);
  void Turn(const Exemplars& exemplars);
  // By tile units, where there are some that are quicker than loops. Nothing: they cannot say.
  std::optional<AttentionSums> MeasureByTiles(const RecordInput& input, const TileQueries& queries,
                                              uint32_t count);
  // The exemplars as those units take them, or, where only Turn can turn them, none.
  std::optional<TileQueries> TileQueriesOf(const Exemplars& exemplars) const;
  // The first `count` of the queries that are loaded, by tiles or loops; by loops over fp32.
  AttentionSums MeasureLoaded(const RecordInput& input, uint32_t count);
  AttentionSums MeasureByLoops(const RecordInput& input, uint32_t count);
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
  TileMeter tile_meter_;
};

}  // namespace tokura::kernels
