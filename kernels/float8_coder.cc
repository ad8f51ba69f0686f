#include "kernels/float8_coder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/float8.h"
#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

// Channels of a token that share a scale, and how many tokens share it.
struct Groups {
  uint32_t channels;
  uint32_t tokens;
};

Groups GroupsOf(const CodecSide& side, uint32_t tokens, uint32_t dim) {
  return side.grouping == Grouping::kNone ? Groups{dim, tokens}
                                          : Groups{GroupElements(side, dim), 1};
}

uint32_t PerToken(const Groups& groups, uint32_t dim) {
  return (dim + groups.channels - 1) / groups.channels;
}

// The scale of the first `count` numbers of `rows` rows; 0: not representable.
float ScaleOf(const CoderTask& task, const float* y, uint32_t rows, uint32_t count) {
  float largest = 0;
  uint32_t non_finite = 0;
  for (uint32_t t = 0; t < rows; ++t) {
    const float* row = y + size_t{t} * task.dim;
    for (uint32_t c = 0; c < count; ++c) {
      const float magnitude = std::abs(row[c]);
      largest = magnitude > largest ? magnitude : largest;
      non_finite |= NonFiniteBits(row[c]);
    }
  }
  if (non_finite != 0) {
    return 0;
  }
  if (task.dtype == DType::kFloat8E4M3) {
    return 1;  // codes are the elements themselves
  }
  const float scale = PowerOfTwoScale(largest, kFloat8Largest);
  const float top = Float8ToFloat(FloatToFloat8(largest / scale)) * scale * task.gain;
  return RoundToType(task.dtype, top) <= LargestFinite(task.dtype) ? scale : 0;
}

void EncodeGroup(const float* y, uint32_t count, float scale, std::byte* codes) {
  for (uint32_t c = 0; c < count; ++c) {
    codes[c] = static_cast<std::byte>(FloatToFloat8(y[c] / scale));
  }
}

}  // namespace

SideBytes Float8Bytes(const CodecSide& side, const SideShape& shape) {
  if (shape.tokens == 0 || shape.dim == 0) {
    return {};
  }
  const Groups groups = GroupsOf(side, shape.tokens, shape.dim);
  const uint64_t scales =
      uint64_t{PerToken(groups, shape.dim)} * (side.grouping == Grouping::kNone ? 1 : shape.tokens);
  return {uint64_t{shape.tokens} * shape.dim, scales * sizeof(float), 0};
}

SideResult Float8Encode(const CoderTask& task, const float* y, const CoderArrays& out) {
  const Groups groups = GroupsOf(task.side, task.tokens, task.dim);
  std::byte* parameters = out.parameters;
  for (uint32_t t = 0; t < task.tokens; t += groups.tokens) {
    for (uint32_t first = 0; first < task.dim; first += groups.channels) {
      const uint32_t count = std::min(groups.channels, task.dim - first);
      const size_t at = size_t{t} * task.dim + first;
      const float scale = ScaleOf(task, y + at, groups.tokens, count);
      if (scale == 0) {
        return SideResult::kNotRepresentable;
      }
      std::memcpy(parameters, &scale, sizeof(scale));
      parameters += sizeof(scale);
      for (uint32_t i = 0; i < groups.tokens; ++i) {
        const size_t row = at + size_t{i} * task.dim;
        EncodeGroup(y + row, count, scale, out.codes + row);
      }
    }
  }
  return SideResult::kOk;
}

void Float8Decode(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows, float* y) {
  const Groups groups = GroupsOf(task.side, task.tokens, task.dim);
  const uint32_t per_token = PerToken(groups, task.dim);
  for (uint32_t i = 0; i < rows.count; ++i) {
    const size_t token = size_t{rows.first} + i;
    const std::byte* codes = in.codes + token * task.dim;
    const std::byte* parameters = in.parameters + token / groups.tokens * per_token * sizeof(float);
    for (uint32_t first = 0; first < task.dim; first += groups.channels) {
      const uint32_t end = std::min(first + groups.channels, task.dim);
      float scale;
      std::memcpy(&scale, parameters, sizeof(scale));
      parameters += sizeof(scale);
      for (uint32_t c = first; c < end; ++c) {
        y[c] = Float8ToFloat(static_cast<uint8_t>(codes[c])) * scale;
      }
    }
    y += task.dim;
  }
}

}  // namespace tokura::kernels
