#include "kernels/side_codec.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/float_convert.h"
#include "kernels/format.h"
#include "kernels/int4_asymmetric.h"
#include "kernels/int8_symmetric.h"
#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

uint64_t AlignSlab(uint64_t bytes) {
  return AlignUp(bytes, format::kSlabAlignment);
}

// One way to code a side. A preset whose side has the same number, bits, zero and grouping as an
// entry needs no code, only its row in codec.cc.
struct Implementation {
  Number number;
  uint8_t bits;
  Zero zero;
  Grouping grouping;
  SideBytes (*bytes)(const CodecSide&, const SideShape&);
  SideResult (*encode)(const CodecSide&, const SideShape&, const float*, std::byte*);
  void (*decode)(const CodecSide&, const SideShape&, const std::byte*, float*);
};

constexpr Implementation kImplementations[] = {
    {Number::kInteger, 8, Zero::kSymmetric, Grouping::kPerToken, Int8SymmetricBytes,
     Int8SymmetricEncode, Int8SymmetricDecode},
    {Number::kInteger, 4, Zero::kAsymmetric, Grouping::kPerChannel, Int4AsymmetricBytes,
     Int4AsymmetricEncode, Int4AsymmetricDecode},
    {Number::kInteger, 4, Zero::kAsymmetric, Grouping::kPerToken, Int4AsymmetricBytes,
     Int4AsymmetricEncode, Int4AsymmetricDecode},
};

const Implementation* Find(const CodecSide& side) {
  for (const Implementation& entry : kImplementations) {
    if (entry.number == side.number && entry.bits == side.bits && entry.zero == side.zero &&
        entry.grouping == side.grouping && side.transform == Transform::kNone) {
      return &entry;
    }
  }
  return nullptr;
}

}  // namespace

uint64_t SideBytes::padded() const {
  return AlignSlab(codes) + AlignSlab(parameters);
}

SideBytes SideBytesOf(const CodecSide& side, const SideShape& shape) {
  if (side.raw()) {
    return {uint64_t{shape.tokens} * shape.dim * DTypeBytes(shape.dtype), 0};
  }
  const Implementation* implementation = Find(side);
  TOKURA_CHECK(implementation != nullptr);
  return implementation->bytes(side, shape);
}

absl::Status CheckSide(const CodecSide& side, DType dtype) {
  if (side.raw()) {
    return side == CodecSide{} ? absl::OkStatus()
                               : absl::UnimplementedError("raw data with coding parameters");
  }
  if (Find(side) == nullptr) {
    return absl::UnimplementedError(absl::StrCat("no coder for number ",
                                                 static_cast<int>(side.number), " with ",
                                                 static_cast<int>(side.bits), " bits"));
  }
  if (!ConvertsToFloat(dtype)) {
    return absl::UnimplementedError(
        absl::StrCat("only raw can code elements of type ", DTypeName(dtype)));
  }
  return absl::OkStatus();
}

SideResult EncodeSide(const CodecSide& side, const SideShape& shape, const float* x,
                      std::byte* out) {
  const Implementation* implementation = Find(side);
  TOKURA_CHECK(implementation != nullptr);
  const SideBytes bytes = implementation->bytes(side, shape);
  const uint64_t parameters_at = AlignSlab(bytes.codes);
  std::fill(out + bytes.codes, out + parameters_at, std::byte{0});
  std::fill(out + parameters_at + bytes.parameters, out + bytes.padded(), std::byte{0});
  return implementation->encode(side, shape, x, out);
}

void DecodeSide(const CodecSide& side, const SideShape& shape, const std::byte* in, float* x) {
  const Implementation* implementation = Find(side);
  TOKURA_CHECK(implementation != nullptr);
  implementation->decode(side, shape, in, x);
}

}  // namespace tokura::kernels
