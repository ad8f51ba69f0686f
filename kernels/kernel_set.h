#pragma once

// The functions behind side_codec.h, one set for each instruction set; cpu_features.h says which
// is in force. All sets give the same bytes and the same floats, and but for those with tile units
// the same records. A set may leave functions out (null): the scalar set has every one of a plain
// form. Internal to kernels/.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/codec.h"
#include "kernels/kv_access.h"
#include "kernels/side_codec.h"
#include "kernels/tile_record.h"

namespace tokura::kernels {

// What is turned into codes: [tokens, dim] numbers, behind the transform and without the channels
// that stay as they are.
struct CoderTask {
  CodecSide side;
  uint32_t tokens = 0;
  uint32_t dim = 0;
  DType dtype = DType::kFloat16;  // of the parameters
  // The most by which undoing the transform can enlarge a decoded number: a group whose largest
  // decoded magnitude times this is not finite in dtype is not representable.
  float gain = 1;
  RoundingGuide guide;  // unless side.rounding is kNearest
};

// The arrays that SideBytesOf describes, without padding.
struct CoderArrays {
  std::byte* codes = nullptr;
  std::byte* parameters = nullptr;
};
struct ConstCoderArrays {
  const std::byte* codes = nullptr;
  const std::byte* parameters = nullptr;
};

struct SideCoder {
  // `y` [tokens, dim] to codes and parameters, all bytes of both.
  SideResult (*encode)(const CoderTask& task, const float* y, const CoderArrays& out) = nullptr;
  // The coded tokens `rows` to `y`, [rows.count, dim].
  void (*decode)(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows,
                 float* y) = nullptr;
  // The same from and to an engine's pages without a copy in fp32 between; used for sides without
  // transform and without channels that stay as they are. May be null in every set.
  SideResult (*encode_from)(const CoderTask& task, const SideAccess& access, TokenRange range,
                            const CoderArrays& out) = nullptr;
  void (*decode_to)(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows,
                    const SideAccess& access, uint32_t first_token) = nullptr;
};

// The error record takes queries in tiles of four, channels and tokens in quads. Sums of products
// are fused, each step rounded once (fused.h).
inline constexpr uint32_t kRecordTile = 4;
inline constexpr uint32_t kRecordQuad = 4;
// Rows of keys are read in groups of this many, whatever is behind the last one.
inline constexpr uint32_t kRecordRows = 16;

// [tokens, 4 · quads], absent channels zero, rows there up to a multiple of kRecordRows.
struct RecordKeys {
  const float* k = nullptr;
  uint32_t tokens = 0;
  uint32_t quads = 0;
};
// [tiles][quads][4 queries][4 channels], absent channels zero. A tile's scores are
// [token / 4][4 queries][token % 4], for a multiple of kRecordRows tokens; the next tile's begin
// score_stride floats further on.
struct RecordQueries {
  const float* q = nullptr;
  uint32_t tiles = 0;
  size_t score_stride = 0;
};
// [tokens, dim], rows `stride` floats apart.
struct RecordValues {
  const float* v = nullptr;
  size_t stride = 0;
  uint32_t tokens = 0;
  uint32_t dim = 0;
};

struct KernelSet {
  std::string_view name;  // IsaName
  // Functions for a side that passed CheckSide.
  SideCoder (*coder)(const CodecSide& side, DType dtype) = nullptr;
  // Multiply each of `count` rows of `dim` numbers, in place, with the unnormalised Hadamard matrix
  // of FORMAT.md.
  void (*hadamard)(float* rows, size_t count, uint32_t dim) = nullptr;
  // As ToFloat and FromFloat of float_convert.h, and as GatherRaw and ScatterRaw for sides whose
  // channels are not contiguous. Null in the scalar set: those functions are the plain form.
  void (*to_float)(DType dtype, const std::byte* in, size_t count, float* out) = nullptr;
  void (*from_float)(DType dtype, const float* in, size_t count, std::byte* out) = nullptr;
  void (*gather)(const SideAccess& access, TokenRange range, std::byte* out) = nullptr;
  void (*scatter)(const SideAccess& access, TokenRange range, const std::byte* in) = nullptr;
  // The inner loops of the error record. Scores: (s0 + s1) + (s2 + s3), s_i being the sum of
  // products over channels ≡ i modulo 4, rising; those of absent tokens are unspecified.
  void (*record_scores)(const RecordKeys& keys, const RecordQueries& queries,
                        float* scores) = nullptr;
  // The scores of one tile over `tokens` ≥ 1 to weights, each query for itself: sums over the four
  // residues of tokens modulo 4, rising, then added as above.
  void (*record_softmax)(uint32_t tokens, float* scores) = nullptr;
  // `out` [4 queries][dim] plus the sum of weight · value over the tokens, rising.
  void (*record_outputs)(const RecordValues& values, const float* weights, float* out) = nullptr;
  // Plus Σ (decoded − exact)² and Σ exact², in double: sums over the residues of indices modulo 16,
  // then added by halves.
  void (*record_sums)(const float* exact, const float* decoded, size_t count,
                      RecordSums* sums) = nullptr;
  // The record by tile units, where the set has them; the loops then only serve what those cannot.
  const TileRecordKernels* maybe_tile_record = nullptr;
};

const KernelSet& ScalarKernels();

// The set of ActiveIsa (cpu_features.h). Thread-safe.
const KernelSet& ActiveKernels();

// The sets that this machine can run, the scalar one first, the fastest last. Static.
std::span<const KernelSet* const> RunnableKernels();

}  // namespace tokura::kernels
