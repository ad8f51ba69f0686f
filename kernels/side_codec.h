#pragma once

// The interface behind the codec table: how one side (K or V) of one slab becomes bytes. A codec is
// an entry of the table in side_codec.cc; README.md says how to add one. Internal to kernels/.

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/dtype.h"
#include "kernels/codec.h"

namespace tokura::kernels {

// The coded tokens of one side of a slab: [tokens, dim] elements, produced as `dtype`, which is
// also the type of the stored parameters (scale, minimum).
struct SideShape {
  uint32_t tokens = 0;
  uint32_t dim = 0;
  DType dtype = DType::kFloat16;
};

// Bytes of the code array and of the parameter array. In a slab each is padded with zeros to
// format::kSlabAlignment, parameters after codes.
struct SideBytes {
  uint64_t codes = 0;
  uint64_t parameters = 0;
  uint64_t padded() const;  // both, each with its padding
};

// Sizes within format.h's limits never overflow.
SideBytes SideBytesOf(const CodecSide& side, const SideShape& shape);

// UNIMPLEMENTED: this build cannot code `side`, or not for this dtype.
absl::Status CheckSide(const CodecSide& side, DType dtype);

enum class SideResult : uint8_t { kOk, kNotRepresentable };

// Code `x`, [tokens, dim] fp32, into `out` of SideBytesOf().padded() bytes; every byte is written.
// kNotRepresentable: a value or a coding parameter is not finite (then `out` is unspecified).
// Needs the default floating-point environment (fp_environment.h). `side` is not raw and passed
// CheckSide.
SideResult EncodeSide(const CodecSide& side, const SideShape& shape, const float* x,
                      std::byte* out);

// Decode `in` (padded() bytes, any content) into `x`, [tokens, dim] fp32. Same conditions.
void DecodeSide(const CodecSide& side, const SideShape& shape, const std::byte* in, float* x);

}  // namespace tokura::kernels
