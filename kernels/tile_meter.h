#pragma once

// The error record of one slab by tile units. Internal to kernels/.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/record_input.h"
#include "kernels/tile_record.h"

namespace tokura::kernels {

// Makes the operands of TileRecordKernels, piece by piece, and keeps their memory from slab to
// slab. Thread-compatible.
class TileMeter {
 public:
  // The first `count` ≥ 1 of the queries count. Sums that are not finite, or next to zero, say
  // nothing: something left the normal range of fp32.
  RecordSums Measure(const TileRecordKernels& kernels, const RecordInput& input,
                     const TileQueries& queries, uint32_t count);

 private:
  // Places the operands in memory_, all zero unless they are where they were.
  void Place(const RecordInput& input, uint32_t count);
  TileRows Exact(const RecordSide& side, TokenRange rows);
  TileRows Load(const RecordSide& side, TokenRange rows);

  TileOperands operands_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> exact_;  // of an engine that has no rows
  std::vector<float> decoded_;
  SideScratch scratch_;
};

}  // namespace tokura::kernels
