#pragma once

// The error record by the processor's tile units: products of bfloat16 matrices, sums in fp32. What
// is rounded to bfloat16 are values and *differences* of values, exact against decoded, so that the
// error of a fine codec does not drown in the rounding. What the loops of kernel_set.h give to a
// percent or two, where everything is within fp32's normal range; with a few numbers in all it can
// be five. Internal to kernels/.

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "kernels/rope.h"

namespace tokura::kernels {

// Rows of a tile, and its columns of 32 bits; bfloat16 that one instruction sums over.
inline constexpr uint32_t kTileRows = 16;
inline constexpr uint32_t kTileDepth = 32;

// The operands of one slab. Rows and columns beyond the counts exist up to the padded ones and are
// zero; the functions below keep them so. All pointers are 64-byte aligned and distinct.
struct TileOperands {
  uint32_t tokens = 0;
  uint32_t token_rows = 0;  // padded to a multiple of 32
  uint32_t k_dim = 0;
  uint32_t k_columns = 0;  // padded to a multiple of 32
  uint32_t v_dim = 0;
  uint32_t v_columns = 0;  // padded to a multiple of 16
  uint32_t queries = 0;
  uint32_t query_tiles = 0;  // of 16
  bool k_exact = false;      // the decoded keys are the keys
  bool v_exact = false;

  // bfloat16 [query_tiles][k_columns / 2][16 queries][2 channels].
  uint16_t* packed_queries = nullptr;
  // bfloat16 [token_rows, k_columns]: exact, decoded − exact.
  uint16_t* keys = nullptr;
  uint16_t* key_errors = nullptr;
  // bfloat16 [token_rows / 2][v_columns][2 tokens]: exact, decoded − exact.
  uint16_t* values = nullptr;
  uint16_t* value_errors = nullptr;
  // fp32 [query_tiles][token_rows][16 queries]: scores, and what decoding adds to them.
  float* scores = nullptr;
  float* score_errors = nullptr;
  // bfloat16 [query_tiles][16 queries][token_rows]: weights, and what decoding adds to them.
  uint16_t* weights = nullptr;
  uint16_t* weight_errors = nullptr;
};

// Queries as RecordQueries of kernel_set.h: ⌈queries / 4⌉ tiles of `quads` quads of channels. Those
// from quad `first_turned` on turn with those `half_turned` quads further on, as half-split RoPE
// has it: by the angle of rotations[4 i + j], channel j of quad i.
struct TileQueries {
  const float* tiles = nullptr;
  uint32_t quads = 0;
  uint32_t first_turned = 0;
  uint32_t half_turned = 0;  // 0: none turns
  const Rotation* rotations = nullptr;
};

// Rows of one side: of an engine, whose channels are contiguous, and of what decodes.
struct TileRows {
  const std::byte* exact = nullptr;
  DType dtype = DType::kFloat32;         // float32, float16 or bfloat16
  int64_t stride = 0;                    // bytes from one row of `exact` to the next
  const float* maybe_decoded = nullptr;  // [count, dim], dense; null: what is exact
  uint32_t dim = 0;
  uint32_t first = 0;
  uint32_t count = 0;
};

// Σ ‖decoded − exact‖² and Σ ‖exact‖² of attention outputs.
struct RecordSums {
  double error = 0;
  double size = 0;
};

struct TileRecordKernels {
  void (*pack_queries)(const TileOperands& operands, const TileQueries& queries) = nullptr;
  // Scores of these keys, once the queries are packed. `first` is a multiple of 16, and `count`,
  // too, unless the last token is among them.
  void (*score)(const TileOperands& operands, const TileRows& rows) = nullptr;
  // Weights from scores.
  void (*weigh)(const TileOperands& operands) = nullptr;
  // The first v_dim channels of rows as `score` takes them.
  void (*pack_values)(const TileOperands& operands, const TileRows& rows) = nullptr;
  // Of the outputs of all queries, from weights and values.
  RecordSums (*measure)(const TileOperands& operands) = nullptr;
};

}  // namespace tokura::kernels
