#pragma once

// How one side (K or V) of one slab becomes bytes: transform, channels that stay as they are, and
// numbers to codes. README.md says how to add a codec, kernel_set.h how to add a faster version of
// one. Internal to kernels/.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/dtype.h"
#include "kernels/codec.h"
#include "kernels/kv_access.h"
#include "kernels/side_profile.h"

namespace tokura::kernels {

struct KernelSet;

// The coded tokens of one side of a slab: [tokens, dim] elements, produced as `dtype`, which is
// also the type of the stored parameters (scale, minimum) and of channels kept as they are.
struct SideShape {
  uint32_t tokens = 0;
  uint32_t dim = 0;
  DType dtype = DType::kFloat16;
};

// Bytes of the arrays of a side. In a slab each is padded with zeros to format::kSlabAlignment, in
// this order.
struct SideBytes {
  uint64_t codes = 0;
  uint64_t parameters = 0;
  uint64_t exact = 0;       // [tokens, exact channels] of dtype
  uint64_t padded() const;  // all, each with its padding
};

// Sizes within format.h's limits never overflow.
SideBytes SideBytesOf(const CodecSide& side, const SideShape& shape);

// UNIMPLEMENTED: this build cannot code `side`, or not for this dtype.
absl::Status CheckSide(const CodecSide& side, DType dtype);

// One side of one slab, but for its values. `side` is not raw and passed CheckSide; `profile` has
// what the side uses, for kGuidedByToken the guide that belongs to the block. Borrows the spans.
struct SideTask {
  CodecSide side;
  SideShape shape;
  SideProfile profile;
  const KernelSet* kernels = nullptr;  // null: the set in force
};

// Memory that calls use for what is between transform and codes, kept from call to call.
struct SideScratch {
  std::vector<float> rows;
  std::vector<float> coded;
};

enum class SideResult : uint8_t { kOk, kNotRepresentable };

// Code `x`, [tokens, dim] fp32, into `out` of SideBytesOf().padded() bytes; every byte is written.
// kNotRepresentable: a value or a coding parameter is not finite (then `out` is unspecified).
// Needs the default floating-point environment (fp_environment.h), as do all below.
SideResult EncodeSide(const SideTask& task, const float* x, SideScratch* scratch, std::byte* out);

// Decode the tokens `rows` of the coded ones from `in` (padded() bytes, any content) into `x`,
// [rows.count, dim] fp32.
void DecodeSide(const SideTask& task, const std::byte* in, TokenRange rows, SideScratch* scratch,
                float* x);

// The same from and to an engine's pages. `range` has shape.tokens tokens; `first_token` is where
// in the view the first of `rows` goes. Rows are converted by tiles, or in one go where the kernel
// set has a function for it.
SideResult EncodeSideFrom(const SideTask& task, const SideAccess& access, TokenRange range,
                          SideScratch* scratch, std::byte* out);
void DecodeSideTo(const SideTask& task, const std::byte* in, TokenRange rows, SideScratch* scratch,
                  const SideAccess& access, uint32_t first_token);

}  // namespace tokura::kernels
