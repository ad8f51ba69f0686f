#include "kernels/int8_symmetric.h"

#include "kernels/format.h"
#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

constexpr float kSteps = 127.0f;

struct Largest {
  float magnitude;
  uint32_t non_finite;
};

// Magnitudes are compared as integers: they order like the floats, and the loop vectorises.
Largest LargestMagnitude(const float* x, uint32_t count) {
  uint32_t largest = 0;
  uint32_t non_finite = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const int32_t bits = std::bit_cast<int32_t>(x[i]) & 0x7fffffff;
    const int32_t so_far = static_cast<int32_t>(largest);
    largest = static_cast<uint32_t>(bits > so_far ? bits : so_far);
    non_finite |= NonFiniteBits(x[i]);
  }
  return {std::bit_cast<float>(largest), non_finite};
}

void QuantizeGroup(const float* x, uint32_t count, float scale, int8_t* codes) {
  for (uint32_t i = 0; i < count; ++i) {
    const int32_t code = RoundToInt(x[i] / scale);
    codes[i] = static_cast<int8_t>(code > 127 ? 127 : (code < -127 ? -127 : code));
  }
}

}  // namespace

SideBytes Int8SymmetricBytes(const CodecSide& side, const SideShape& shape) {
  const uint64_t elements = uint64_t{shape.tokens} * shape.dim;
  if (elements == 0) {
    return {};
  }
  const uint32_t group = GroupElements(side, shape.dim);
  const uint64_t groups = (shape.dim + group - 1) / group;
  return {elements, groups * shape.tokens * DTypeBytes(shape.dtype)};
}

SideResult Int8SymmetricEncode(const CodecSide& side, const SideShape& shape, const float* x,
                               std::byte* out) {
  const size_t element_bytes = DTypeBytes(shape.dtype);
  const uint32_t group = GroupElements(side, shape.dim);
  auto* codes = reinterpret_cast<int8_t*>(out);
  std::byte* parameter =
      out + AlignUp(Int8SymmetricBytes(side, shape).codes, format::kSlabAlignment);
  for (uint32_t token = 0; token < shape.tokens; ++token) {
    for (uint32_t first = 0; first < shape.dim; first += group) {
      const uint32_t count = std::min(group, shape.dim - first);
      const size_t at = size_t{token} * shape.dim + first;
      const Largest largest = LargestMagnitude(x + at, count);
      const float scale = StoredScale(shape.dtype, largest.magnitude, kSteps);
      const float top = RoundToType(shape.dtype, scale * kSteps);
      if (largest.non_finite != 0 || !(top <= LargestFinite(shape.dtype))) {
        return SideResult::kNotRepresentable;
      }
      QuantizeGroup(x + at, count, scale, codes + at);
      StoreElement(shape.dtype, scale, parameter);
      parameter += element_bytes;
    }
  }
  return SideResult::kOk;
}

void Int8SymmetricDecode(const CodecSide& side, const SideShape& shape, const std::byte* in,
                         float* x) {
  const size_t element_bytes = DTypeBytes(shape.dtype);
  const uint32_t group = GroupElements(side, shape.dim);
  const auto* codes = reinterpret_cast<const int8_t*>(in);
  const std::byte* parameter =
      in + AlignUp(Int8SymmetricBytes(side, shape).codes, format::kSlabAlignment);
  for (uint32_t token = 0; token < shape.tokens; ++token) {
    for (uint32_t first = 0; first < shape.dim; first += group) {
      const uint32_t count = std::min(group, shape.dim - first);
      const size_t at = size_t{token} * shape.dim + first;
      const float scale = LoadElement(shape.dtype, parameter);
      for (uint32_t i = 0; i < count; ++i) {
        x[at + i] = static_cast<float>(codes[at + i]) * scale;
      }
      parameter += element_bytes;
    }
  }
}

}  // namespace tokura::kernels
