#include "kernels/int4_asymmetric.h"

#include <vector>

#include "kernels/format.h"
#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

constexpr float kSteps = 15.0f;
constexpr int32_t kCodeMax = 15;

// Parameters of a run of adjacent channels: one pair each for a per-channel side, the same pair
// for a per-token one.
struct Parameters {
  float scale;
  float minimum;
};

// Stored parameters of a group with these extremes. False: not representable.
bool MakeParameters(DType dtype, float minimum, float maximum, Parameters* out) {
  // Adding +0 turns a minimum of -0 into +0, so that the stored zero does not depend on the order.
  out->minimum = minimum + 0.0f;
  out->scale = StoredScale(dtype, maximum - minimum, kSteps);
  const float top = RoundToType(dtype, out->scale * kSteps + out->minimum);
  return top <= LargestFinite(dtype);  // false for NaN too
}

inline int32_t Code(float x, float scale, float minimum) {
  const int32_t code = RoundToInt((x - minimum) / scale);
  return code > kCodeMax ? kCodeMax : code;  // never negative: x is not below the minimum
}

// Codes of eight channels to one word, in the nibble order of format::kNibbleChannel.
inline uint32_t Pack(const uint8_t* c) {
  return static_cast<uint32_t>(c[0]) | static_cast<uint32_t>(c[2]) << 4 |
         static_cast<uint32_t>(c[4]) << 8 | static_cast<uint32_t>(c[6]) << 12 |
         static_cast<uint32_t>(c[1]) << 16 | static_cast<uint32_t>(c[3]) << 20 |
         static_cast<uint32_t>(c[5]) << 24 | static_cast<uint32_t>(c[7]) << 28;
}

inline void Unpack(uint32_t word, uint8_t* c) {
  c[0] = word & 15;
  c[1] = word >> 16 & 15;
  c[2] = word >> 4 & 15;
  c[3] = word >> 20 & 15;
  c[4] = word >> 8 & 15;
  c[5] = word >> 24 & 15;
  c[6] = word >> 12 & 15;
  c[7] = word >> 28;
}

uint32_t RowWords(uint32_t dim) {
  return (dim + 7) / 8;
}

void PackRow(const uint8_t* codes, uint32_t words, std::byte* out) {
  for (size_t w = 0; w < words; ++w) {
    const uint32_t word = Pack(codes + 8 * w);
    std::memcpy(out + 4 * w, &word, sizeof(word));
  }
}

void UnpackRow(const std::byte* in, uint32_t words, uint8_t* codes) {
  for (size_t w = 0; w < words; ++w) {
    uint32_t word;
    std::memcpy(&word, in + 4 * w, sizeof(word));
    Unpack(word, codes + 8 * w);
  }
}

// What a call needs besides its arguments: a row of codes, padded to whole words with zeros, and
// the parameters of a group of tokens.
struct Work {
  explicit Work(uint32_t dim)
      : codes(size_t{8} * RowWords(dim)), scale(dim), minimum(dim), maximum(dim) {}
  std::vector<uint8_t> codes;
  std::vector<float> scale;
  std::vector<float> minimum;
  std::vector<float> maximum;
};

uint32_t ChannelExtremes(const float* x, uint32_t tokens, uint32_t dim, Work* work) {
  float* minimum = work->minimum.data();
  float* maximum = work->maximum.data();
  std::memcpy(minimum, x, dim * sizeof(float));
  std::memcpy(maximum, x, dim * sizeof(float));
  uint32_t non_finite = 0;
  for (uint32_t token = 0; token < tokens; ++token) {
    const float* row = x + size_t{token} * dim;
    for (uint32_t c = 0; c < dim; ++c) {
      minimum[c] = row[c] < minimum[c] ? row[c] : minimum[c];
      maximum[c] = row[c] > maximum[c] ? row[c] : maximum[c];
      non_finite |= NonFiniteBits(row[c]);
    }
  }
  return non_finite;
}

// One group of tokens of a per-channel side; its parameters are scale[dim], minimum[dim].
bool EncodeChannelGroup(const SideShape& group, const float* x, Work* work, std::byte* codes,
                        std::byte* parameters) {
  const auto& [tokens, dim, dtype] = group;
  if (ChannelExtremes(x, tokens, dim, work) != 0) {
    return false;
  }
  float* scale = work->scale.data();
  float* minimum = work->minimum.data();
  for (uint32_t c = 0; c < dim; ++c) {
    Parameters stored;
    if (!MakeParameters(dtype, minimum[c], work->maximum[c], &stored)) {
      return false;
    }
    scale[c] = stored.scale;
    minimum[c] = stored.minimum;
  }
  FromFloat(dtype, scale, dim, parameters);
  FromFloat(dtype, minimum, dim, parameters + dim * DTypeBytes(dtype));
  uint8_t* row_codes = work->codes.data();
  for (uint32_t token = 0; token < tokens; ++token) {
    const float* row = x + size_t{token} * dim;
    for (uint32_t c = 0; c < dim; ++c) {
      row_codes[c] = static_cast<uint8_t>(Code(row[c], scale[c], minimum[c]));
    }
    PackRow(row_codes, RowWords(dim), codes + size_t{4} * RowWords(dim) * token);
  }
  return true;
}

SideResult EncodePerChannel(const CodecSide& side, const SideShape& shape, const float* x,
                            std::byte* codes, std::byte* parameters) {
  Work work(shape.dim);
  const uint32_t group = GroupElements(side, shape.tokens);
  for (uint32_t first = 0; first < shape.tokens; first += group) {
    const uint32_t tokens = std::min(group, shape.tokens - first);
    if (!EncodeChannelGroup({tokens, shape.dim, shape.dtype}, x + size_t{first} * shape.dim, &work,
                            codes + size_t{4} * RowWords(shape.dim) * first, parameters)) {
      return SideResult::kNotRepresentable;
    }
    parameters += size_t{2} * shape.dim * DTypeBytes(shape.dtype);
  }
  return SideResult::kOk;
}

// One group of channels of one token of a per-token side.
bool EncodeTokenGroup(DType dtype, const float* x, uint32_t count, uint8_t* codes,
                      Parameters* stored) {
  float minimum = x[0];
  float maximum = x[0];
  uint32_t non_finite = 0;
  for (uint32_t c = 0; c < count; ++c) {
    minimum = x[c] < minimum ? x[c] : minimum;
    maximum = x[c] > maximum ? x[c] : maximum;
    non_finite |= NonFiniteBits(x[c]);
  }
  if (non_finite != 0 || !MakeParameters(dtype, minimum, maximum, stored)) {
    return false;
  }
  const Parameters p = *stored;
  for (uint32_t c = 0; c < count; ++c) {
    codes[c] = static_cast<uint8_t>(Code(x[c], p.scale, p.minimum));
  }
  return true;
}

SideResult EncodePerToken(const CodecSide& side, const SideShape& shape, const float* x,
                          std::byte* codes, std::byte* parameters) {
  Work work(shape.dim);
  const uint32_t group = GroupElements(side, shape.dim);
  const size_t element_bytes = DTypeBytes(shape.dtype);
  for (uint32_t token = 0; token < shape.tokens; ++token) {
    const float* row = x + size_t{token} * shape.dim;
    for (uint32_t first = 0; first < shape.dim; first += group) {
      Parameters stored;
      if (!EncodeTokenGroup(shape.dtype, row + first, std::min(group, shape.dim - first),
                            work.codes.data() + first, &stored)) {
        return SideResult::kNotRepresentable;
      }
      StoreElement(shape.dtype, stored.scale, parameters);
      StoreElement(shape.dtype, stored.minimum, parameters + element_bytes);
      parameters += 2 * element_bytes;
    }
    PackRow(work.codes.data(), RowWords(shape.dim),
            codes + size_t{4} * RowWords(shape.dim) * token);
  }
  return SideResult::kOk;
}

void DecodePerChannel(const CodecSide& side, const SideShape& shape, const std::byte* codes,
                      const std::byte* parameters, float* x) {
  Work work(shape.dim);
  const uint32_t group = GroupElements(side, shape.tokens);
  const size_t element_bytes = DTypeBytes(shape.dtype);
  const float* scale = work.scale.data();
  const float* minimum = work.minimum.data();
  const uint8_t* row_codes = work.codes.data();
  for (uint32_t token = 0; token < shape.tokens; ++token) {
    if (token % group == 0) {
      ToFloat(shape.dtype, parameters, shape.dim, work.scale.data());
      ToFloat(shape.dtype, parameters + shape.dim * element_bytes, shape.dim, work.minimum.data());
      parameters += size_t{2} * shape.dim * element_bytes;
    }
    UnpackRow(codes + size_t{4} * RowWords(shape.dim) * token, RowWords(shape.dim),
              work.codes.data());
    float* row = x + size_t{token} * shape.dim;
    for (uint32_t c = 0; c < shape.dim; ++c) {
      row[c] = static_cast<float>(row_codes[c]) * scale[c] + minimum[c];
    }
  }
}

void DecodePerToken(const CodecSide& side, const SideShape& shape, const std::byte* codes,
                    const std::byte* parameters, float* x) {
  Work work(shape.dim);
  const uint32_t group = GroupElements(side, shape.dim);
  const size_t element_bytes = DTypeBytes(shape.dtype);
  const uint8_t* row_codes = work.codes.data();
  for (uint32_t token = 0; token < shape.tokens; ++token) {
    UnpackRow(codes + size_t{4} * RowWords(shape.dim) * token, RowWords(shape.dim),
              work.codes.data());
    float* row = x + size_t{token} * shape.dim;
    for (uint32_t first = 0; first < shape.dim; first += group) {
      const uint32_t end = std::min(first + group, shape.dim);
      const float scale = LoadElement(shape.dtype, parameters);
      const float minimum = LoadElement(shape.dtype, parameters + element_bytes);
      parameters += 2 * element_bytes;
      for (uint32_t c = first; c < end; ++c) {
        row[c] = static_cast<float>(row_codes[c]) * scale + minimum;
      }
    }
  }
}

}  // namespace

SideBytes Int4AsymmetricBytes(const CodecSide& side, const SideShape& shape) {
  if (shape.tokens == 0 || shape.dim == 0) {
    return {};
  }
  const bool per_channel = side.grouping == Grouping::kPerChannel;
  const uint64_t extent = per_channel ? shape.tokens : shape.dim;
  const uint64_t across = per_channel ? shape.dim : shape.tokens;
  const uint64_t group = GroupElements(side, static_cast<uint32_t>(extent));
  const uint64_t groups = (extent + group - 1) / group * across;
  return {uint64_t{4} * RowWords(shape.dim) * shape.tokens, groups * 2 * DTypeBytes(shape.dtype)};
}

SideResult Int4AsymmetricEncode(const CodecSide& side, const SideShape& shape, const float* x,
                                std::byte* out) {
  std::byte* parameters =
      out + AlignUp(Int4AsymmetricBytes(side, shape).codes, format::kSlabAlignment);
  return side.grouping == Grouping::kPerChannel ? EncodePerChannel(side, shape, x, out, parameters)
                                                : EncodePerToken(side, shape, x, out, parameters);
}

void Int4AsymmetricDecode(const CodecSide& side, const SideShape& shape, const std::byte* in,
                          float* x) {
  const std::byte* parameters =
      in + AlignUp(Int4AsymmetricBytes(side, shape).codes, format::kSlabAlignment);
  if (side.grouping == Grouping::kPerChannel) {
    DecodePerChannel(side, shape, in, parameters, x);
  } else {
    DecodePerToken(side, shape, in, parameters, x);
  }
}

}  // namespace tokura::kernels
