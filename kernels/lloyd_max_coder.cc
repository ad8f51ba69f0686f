#include "kernels/lloyd_max_coder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/codebook.h"
#include "kernels/float_convert.h"
#include "kernels/packing.h"
#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

// Shorter vectors decode to zero: their squares are lost in fp32.
constexpr float kLeastSquares = 0x1p-100f;

struct Codebook {
  explicit Codebook(uint32_t bits) : codes(1u << bits) {
    for (uint32_t i = 0; i < codes; ++i) {
      value[i] = CodebookValue(bits, i);
      threshold[i] = i == 0 ? -HUGE_VALF : CodebookThreshold(bits, i);
    }
  }
  uint32_t codes;
  std::array<float, 16> value;
  std::array<float, 16> threshold;
};

// Codes one group; the scale, or a negative number: not representable.
float EncodeGroup(const CoderTask& task, const Codebook& book, const float* y, uint32_t count,
                  uint8_t* codes) {
  const float squares = SumOfSquares(y, count);
  if (!std::isfinite(squares)) {
    return -1;
  }
  const bool zero = squares < kLeastSquares;
  const float length = std::sqrt(squares);
  const float factor = zero ? 0.0f : std::sqrt(static_cast<float>(count)) / length;
  std::vector<float> chosen(count);
  for (uint32_t c = 0; c < count; ++c) {
    const float z = y[c] * factor;
    uint32_t code = 0;
    for (uint32_t i = 1; i < book.codes; ++i) {
      code += z >= book.threshold[i] ? 1 : 0;
    }
    codes[c] = static_cast<uint8_t>(code);
    chosen[c] = book.value[code];
  }
  const float scale = zero ? 0.0f : length / std::sqrt(SumOfSquares(chosen.data(), count));
  const float stored = RoundToType(task.dtype, scale);
  const float top = stored * book.value[book.codes - 1] * task.gain;
  return RoundToType(task.dtype, top) <= LargestFinite(task.dtype) ? stored : -1;
}

}  // namespace

float SumOfSquares(const float* x, uint32_t count) {
  constexpr uint32_t kLanes = 16;
  std::array<float, kLanes> sums{};
  for (uint32_t first = 0; first < count; first += kLanes) {
    const uint32_t lanes = std::min(kLanes, count - first);
    for (uint32_t i = 0; i < lanes; ++i) {
      sums[i] += x[first + i] * x[first + i];
    }
  }
  for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) {
      sums[i] += sums[i + half];
    }
  }
  return sums[0];
}

SideBytes LloydMaxBytes(const CodecSide& side, const SideShape& shape) {
  if (shape.tokens == 0 || shape.dim == 0) {
    return {};
  }
  const uint64_t group = GroupElements(side, shape.dim);
  const uint64_t groups = (shape.dim + group - 1) / group;
  return {uint64_t{CodeRowBytes(side.bits, shape.dim)} * shape.tokens,
          groups * shape.tokens * DTypeBytes(shape.dtype), 0};
}

SideResult LloydMaxEncode(const CoderTask& task, const float* y, const CoderArrays& out) {
  const Codebook book(task.side.bits);
  const uint32_t group = GroupElements(task.side, task.dim);
  std::vector<uint8_t> codes(PaddedCodes(task.dim));
  std::byte* parameters = out.parameters;
  for (uint32_t t = 0; t < task.tokens; ++t) {
    const float* row = y + size_t{t} * task.dim;
    for (uint32_t first = 0; first < task.dim; first += group) {
      const uint32_t count = std::min(group, task.dim - first);
      const float scale = EncodeGroup(task, book, row + first, count, codes.data() + first);
      if (scale < 0) {
        return SideResult::kNotRepresentable;
      }
      StoreElement(task.dtype, scale, parameters);
      parameters += DTypeBytes(task.dtype);
    }
    PackCodes(task.side.bits, task.dim, codes.data(),
              out.codes + size_t{t} * CodeRowBytes(task.side.bits, task.dim));
  }
  return SideResult::kOk;
}

void LloydMaxDecode(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows, float* y) {
  const Codebook book(task.side.bits);
  const uint32_t group = GroupElements(task.side, task.dim);
  const uint32_t groups = (task.dim + group - 1) / group;
  const size_t element_bytes = DTypeBytes(task.dtype);
  std::vector<uint8_t> codes(PaddedCodes(task.dim));
  for (uint32_t i = 0; i < rows.count; ++i) {
    const size_t token = size_t{rows.first} + i;
    const std::byte* parameters = in.parameters + token * groups * element_bytes;
    UnpackCodes(task.side.bits, task.dim, in.codes + token * CodeRowBytes(task.side.bits, task.dim),
                codes.data());
    for (uint32_t first = 0; first < task.dim; first += group) {
      const uint32_t end = std::min(first + group, task.dim);
      const float scale = LoadElement(task.dtype, parameters);
      parameters += element_bytes;
      for (uint32_t c = first; c < end; ++c) {
        y[c] = book.value[codes[c]] * scale;
      }
    }
    y += task.dim;
  }
}

}  // namespace tokura::kernels
