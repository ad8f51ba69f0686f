#include "kernels/integer_coder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/float_convert.h"
#include "kernels/guided_rounding.h"
#include "kernels/packing.h"
#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

// The codes of a side: integers from `low` to `high`, stored plus `bias`.
struct CodeRange {
  float low;
  float high;
  int32_t bias;
};

CodeRange RangeOf(const CodecSide& side) {
  if (side.zero == Zero::kAsymmetric) {
    return {0.0f, static_cast<float>((1 << side.bits) - 1), 0};
  }
  const auto top = static_cast<float>((1 << (side.bits - 1)) - 1);
  return {-top, top, side.bits == 8 ? 0 : 1 << (side.bits - 1)};
}

uint32_t ParametersOf(const CodecSide& side) {
  return side.zero == Zero::kAsymmetric ? 2 : 1;
}

uint32_t GroupsOf(uint32_t extent, uint32_t group) {
  return group == 0 ? 0 : (extent + group - 1) / group;
}

// Extremes of one group; for symmetric sides `maximum` is the largest magnitude.
struct Extremes {
  float minimum = 0;
  float maximum = 0;
};

// The parameters of one group as stored, and what numbers are divided by: the scale, or infinity in
// a group of equal numbers, whose codes are 0 whatever guided rounding adds to them.
struct Parameters {
  float scale;
  float minimum;
  float divisor;
};

// False: not representable.
bool MakeParameters(const CoderTask& task, const Extremes& extremes, Parameters* out) {
  const CodeRange range = RangeOf(task.side);
  // Adding +0 turns a minimum of -0 into +0, so that the stored zero does not depend on the order.
  const bool asymmetric = task.side.zero == Zero::kAsymmetric;
  const float range_of_values = asymmetric ? extremes.maximum - extremes.minimum : extremes.maximum;
  out->minimum = asymmetric ? RoundToType(task.dtype, extremes.minimum + 0.0f) : 0.0f;
  out->scale = StoredScale(task.dtype, range_of_values, range.high);
  out->divisor = range_of_values == 0.0f ? HUGE_VALF : out->scale;
  const float top = std::abs(out->scale * range.high + out->minimum);
  const float largest = std::max(top, std::abs(out->minimum)) * task.gain;
  // A comparison with NaN is false, here and in std::max, whose result is then its first argument.
  return RoundToType(task.dtype, largest) <= LargestFinite(task.dtype);
}

inline int32_t QuantizeOne(const CodeRange& range, float x, float divisor, float minimum) {
  float code = (x - minimum) / divisor;
  code = code > range.low ? code : range.low;
  code = code < range.high ? code : range.high;
  return RoundToInt(code) + range.bias;
}

inline float DequantizeOne(const CodeRange& range, int32_t code, float scale, float minimum) {
  return static_cast<float>(code - range.bias) * scale + minimum;
}

// Everything a call keeps for one row: codes with room for whole words, zero behind the last one,
// and the parameters of each channel.
struct Row {
  explicit Row(uint32_t dim)
      : codes(PaddedCodes(dim)), scale(dim), minimum(dim), divisor(dim), maximum(dim), dim(dim) {}
  void Set(uint32_t channel, const Parameters& parameters) {
    scale[channel] = parameters.scale;
    minimum[channel] = parameters.minimum;
    divisor[channel] = parameters.divisor;
  }
  std::vector<uint8_t> codes;
  std::vector<float> scale;
  std::vector<float> minimum;
  std::vector<float> divisor;
  std::vector<float> maximum;
  uint32_t dim;
};

void Extend(float x, Zero zero, float* minimum, float* maximum) {
  const float value = zero == Zero::kAsymmetric ? x : std::abs(x);
  *minimum = value < *minimum ? value : *minimum;
  *maximum = value > *maximum ? value : *maximum;
}

// Parameters of the channels of one token into row->scale and row->minimum, and to `out`.
bool TokenParameters(const CoderTask& task, const float* y, Row* row, std::byte* out) {
  const uint32_t group = GroupElements(task.side, task.dim);
  const size_t element_bytes = DTypeBytes(task.dtype);
  for (uint32_t first = 0; first < task.dim; first += group) {
    const uint32_t end = std::min(first + group, task.dim);
    Extremes extremes{HUGE_VALF, -HUGE_VALF};
    uint32_t non_finite = 0;
    for (uint32_t c = first; c < end; ++c) {
      Extend(y[c], task.side.zero, &extremes.minimum, &extremes.maximum);
      non_finite |= NonFiniteBits(y[c]);
    }
    Parameters parameters;
    if (non_finite != 0 || !MakeParameters(task, extremes, &parameters)) {
      return false;
    }
    for (uint32_t c = first; c < end; ++c) {
      row->Set(c, parameters);
    }
    StoreElement(task.dtype, parameters.scale, out);
    if (task.side.zero == Zero::kAsymmetric) {
      StoreElement(task.dtype, parameters.minimum, out + element_bytes);
    }
    out += ParametersOf(task.side) * element_bytes;
  }
  return true;
}

// Parameters of a group of `tokens` tokens of every channel, likewise.
bool ChannelParameters(const CoderTask& task, const float* y, uint32_t tokens, Row* row,
                       std::byte* out) {
  std::fill(row->minimum.begin(), row->minimum.end(), HUGE_VALF);
  std::fill(row->maximum.begin(), row->maximum.end(), -HUGE_VALF);
  uint32_t non_finite = 0;
  for (uint32_t t = 0; t < tokens; ++t) {
    const float* x = y + size_t{t} * task.dim;
    for (uint32_t c = 0; c < task.dim; ++c) {
      Extend(x[c], task.side.zero, &row->minimum[c], &row->maximum[c]);
      non_finite |= NonFiniteBits(x[c]);
    }
  }
  if (non_finite != 0) {
    return false;
  }
  for (uint32_t c = 0; c < task.dim; ++c) {
    Parameters parameters;
    if (!MakeParameters(task, {row->minimum[c], row->maximum[c]}, &parameters)) {
      return false;
    }
    row->Set(c, parameters);
  }
  FromFloat(task.dtype, row->scale.data(), task.dim, out);
  if (task.side.zero == Zero::kAsymmetric) {
    FromFloat(task.dtype, row->minimum.data(), task.dim, out + task.dim * DTypeBytes(task.dtype));
  }
  return true;
}

// Chooses the codes of one row whose parameters are known.
class Quantizer {
 public:
  explicit Quantizer(const CoderTask& task)
      : task_(task),
        range_(RangeOf(task.side)),
        work_(task.side.rounding == Rounding::kGuidedByChannel ? task.dim : 0) {}

  void Quantize(const float* x, Row* row) {
    if (task_.side.rounding == Rounding::kGuidedByChannel) {
      return QuantizeGuided(x, row);
    }
    for (uint32_t c = 0; c < task_.dim; ++c) {
      row->codes[c] =
          static_cast<uint8_t>(QuantizeOne(range_, x[c], row->divisor[c], row->minimum[c]));
    }
  }

 private:
  // Channel by channel in the guide's order; what rounding one of them loses is taken from those
  // that follow.
  void QuantizeGuided(const float* x, Row* row) {
    const uint16_t* order = task_.guide.order.data();
    const float* factors = task_.guide.factors.data();
    float* work = work_.data();
    for (uint32_t i = 0; i < task_.dim; ++i) {
      work[i] = x[order[i]];
    }
    for (uint32_t i = 0; i < task_.dim; ++i) {
      const uint32_t c = order[i];
      const int32_t code = QuantizeOne(range_, work[i], row->divisor[c], row->minimum[c]);
      row->codes[c] = static_cast<uint8_t>(code);
      const float error = work[i] - DequantizeOne(range_, code, row->scale[c], row->minimum[c]);
      const uint32_t left = task_.dim - i - 1;
      for (uint32_t j = 0; j < left; ++j) {
        work[i + 1 + j] -= error * factors[j];
      }
      factors += left;
    }
  }

  const CoderTask& task_;
  CodeRange range_;
  std::vector<float> work_;
};

// Bytes of the parameters of one token or of one group of tokens.
size_t ParameterStride(const CoderTask& task) {
  const size_t groups = task.side.grouping == Grouping::kPerToken
                            ? GroupsOf(task.dim, GroupElements(task.side, task.dim))
                            : task.dim;
  return groups * ParametersOf(task.side) * DTypeBytes(task.dtype);
}

// Visits tokens in order with the parameters of their channels in `row`.
template <typename Visit>
bool ForEachRow(const CoderTask& task, const float* y, std::byte* parameters, const Visit& visit) {
  Row row(task.dim);
  const bool per_token = task.side.grouping == Grouping::kPerToken;
  const uint32_t group = per_token ? 1 : GroupElements(task.side, task.tokens);
  for (uint32_t t = 0; t < task.tokens; ++t) {
    const float* x = y + size_t{t} * task.dim;
    if (t % group == 0) {
      const bool ok = per_token ? TokenParameters(task, x, &row, parameters)
                                : ChannelParameters(task, x, std::min(group, task.tokens - t), &row,
                                                    parameters);
      if (!ok) {
        return false;
      }
      parameters += ParameterStride(task);
    }
    visit(t, x, &row);
  }
  return true;
}

// Codes with errors pushed from token to token, in runs of kGuideTokens tokens: all channels of a
// run's first token (in the guide's order) are rounded, then those of its second, and so on.
SideResult EncodeGuidedByToken(const CoderTask& task, const float* y, const CoderArrays& out) {
  std::vector<Row> rows;
  rows.reserve(task.tokens);
  const bool ok = ForEachRow(task, y, out.parameters,
                             [&](uint32_t, const float*, Row* row) { rows.push_back(*row); });
  if (!ok) {
    return SideResult::kNotRepresentable;
  }
  const CodeRange range = RangeOf(task.side);
  std::vector<float> work(y, y + size_t{task.tokens} * task.dim);
  std::vector<float> error(task.dim);
  const float* factors = task.guide.factors.data();
  for (uint32_t first = 0; first < task.tokens; first += kGuideTokens) {
    const uint32_t count = std::min(kGuideTokens, task.tokens - first);
    const uint16_t* order = task.guide.order.data() + first;
    for (uint32_t i = 0; i < count; ++i) {
      const size_t token = size_t{first} + order[i];
      Row& row = rows[token];
      for (uint32_t c = 0; c < task.dim; ++c) {
        const float x = work[token * task.dim + c];
        const int32_t code = QuantizeOne(range, x, row.divisor[c], row.minimum[c]);
        row.codes[c] = static_cast<uint8_t>(code);
        error[c] = x - DequantizeOne(range, code, row.scale[c], row.minimum[c]);
      }
      PackCodes(task.side.bits, task.dim, row.codes.data(),
                out.codes + token * CodeRowBytes(task.side.bits, task.dim));
      for (uint32_t j = i + 1; j < count; ++j) {
        float* later = work.data() + (size_t{first} + order[j]) * task.dim;
        const float factor = *factors++;
        for (uint32_t c = 0; c < task.dim; ++c) {
          later[c] -= error[c] * factor;
        }
      }
    }
  }
  return SideResult::kOk;
}

}  // namespace

SideBytes IntegerBytes(const CodecSide& side, const SideShape& shape) {
  if (shape.tokens == 0 || shape.dim == 0) {
    return {};
  }
  const bool per_channel = side.grouping == Grouping::kPerChannel;
  const uint32_t extent = per_channel ? shape.tokens : shape.dim;
  const uint64_t across = per_channel ? shape.dim : shape.tokens;
  const uint64_t groups = GroupsOf(extent, GroupElements(side, extent)) * across;
  return {uint64_t{CodeRowBytes(side.bits, shape.dim)} * shape.tokens,
          groups * ParametersOf(side) * DTypeBytes(shape.dtype), 0};
}

SideResult IntegerEncode(const CoderTask& task, const float* y, const CoderArrays& out) {
  if (task.side.rounding == Rounding::kGuidedByToken) {
    return EncodeGuidedByToken(task, y, out);
  }
  Quantizer quantizer(task);
  const uint32_t row_bytes = CodeRowBytes(task.side.bits, task.dim);
  const bool ok =
      ForEachRow(task, y, out.parameters, [&](uint32_t token, const float* x, Row* row) {
        quantizer.Quantize(x, row);
        PackCodes(task.side.bits, task.dim, row->codes.data(),
                  out.codes + size_t{token} * row_bytes);
      });
  return ok ? SideResult::kOk : SideResult::kNotRepresentable;
}

namespace {

// Parameters of one token or group of tokens, as stored, to those of its channels.
void LoadParameters(const CoderTask& task, const std::byte* in, Row* row) {
  const size_t element_bytes = DTypeBytes(task.dtype);
  const bool asymmetric = task.side.zero == Zero::kAsymmetric;
  if (task.side.grouping == Grouping::kPerChannel) {
    ToFloat(task.dtype, in, task.dim, row->scale.data());
    if (asymmetric) {
      ToFloat(task.dtype, in + task.dim * element_bytes, task.dim, row->minimum.data());
    }
    return;
  }
  const uint32_t group = GroupElements(task.side, task.dim);
  for (uint32_t first = 0; first < task.dim; first += group) {
    const uint32_t end = std::min(first + group, task.dim);
    std::fill(row->scale.begin() + first, row->scale.begin() + end, LoadElement(task.dtype, in));
    in += element_bytes;
    if (asymmetric) {
      std::fill(row->minimum.begin() + first, row->minimum.begin() + end,
                LoadElement(task.dtype, in));
      in += element_bytes;
    }
  }
}

void DequantizeRow(const CodeRange& range, const Row& row, const uint8_t* codes, float* y) {
  const float* scale = row.scale.data();
  const float* minimum = row.minimum.data();
  for (uint32_t c = 0; c < row.dim; ++c) {
    y[c] = DequantizeOne(range, codes[c], scale[c], minimum[c]);
  }
}

void DequantizeSigned(const Row& row, const uint8_t* codes, float* y) {
  for (uint32_t c = 0; c < row.dim; ++c) {
    y[c] = static_cast<float>(static_cast<int8_t>(codes[c])) * row.scale[c];
  }
}

}  // namespace

void IntegerDecode(const CoderTask& task, const ConstCoderArrays& in, TokenRange rows, float* y) {
  Row row(task.dim);
  const CodeRange range = RangeOf(task.side);
  const bool per_token = task.side.grouping == Grouping::kPerToken;
  const uint32_t group = per_token ? 1 : GroupElements(task.side, task.tokens);
  const uint32_t row_bytes = CodeRowBytes(task.side.bits, task.dim);
  for (uint32_t i = 0; i < rows.count; ++i) {
    const uint32_t token = rows.first + i;
    if (i == 0 || token % group == 0) {
      LoadParameters(task, in.parameters + token / group * ParameterStride(task), &row);
    }
    UnpackCodes(task.side.bits, task.dim, in.codes + size_t{token} * row_bytes, row.codes.data());
    if (task.side.bits == 8 && task.side.zero == Zero::kSymmetric) {
      DequantizeSigned(row, row.codes.data(), y);
    } else {
      DequantizeRow(range, row, row.codes.data(), y);
    }
    y += task.dim;
  }
}

}  // namespace tokura::kernels
