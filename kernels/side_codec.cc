#include "kernels/side_codec.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/codebook.h"
#include "kernels/float8_coder.h"
#include "kernels/float_convert.h"
#include "kernels/format.h"
#include "kernels/integer_coder.h"
#include "kernels/kernel_set.h"
#include "kernels/lloyd_max_coder.h"
#include "kernels/quantize.h"
#include "kernels/transform.h"

namespace tokura::kernels {
namespace {

// Elements that are decoded before they are converted and stored: they stay in the first cache.
constexpr uint32_t kTileElements = 2048;

uint64_t AlignSlab(uint64_t bytes) {
  return AlignUp(bytes, format::kSlabAlignment);
}

uint32_t ExactChannels(const CodecSide& side, uint32_t dim) {
  return OutlierChannels(side, dim) + std::min<uint32_t>(side.tail, dim);
}

SideBytes CodedBytes(const CodecSide& side, const SideShape& coded) {
  switch (side.number) {
    case Number::kInteger:
      return IntegerBytes(side, coded);
    case Number::kFloat8:
      return Float8Bytes(side, coded);
    default:
      TOKURA_CHECK(side.number == Number::kLloydMax);
      return LloydMaxBytes(side, coded);
  }
}

// Everything about a task that encoding and decoding need.
struct Plan {
  explicit Plan(const SideTask& task)
      : bytes(SideBytesOf(task.side, task.shape)),
        exact(ExactChannels(task.side, task.shape.dim)),
        kernels(task.kernels == nullptr ? ActiveKernels() : *task.kernels),
        coder(kernels.coder(task.side, task.shape.dtype)),
        scalar(ScalarKernels().coder(task.side, task.shape.dtype)) {
    TOKURA_CHECK(scalar.encode != nullptr && scalar.decode != nullptr);
    TOKURA_CHECK(task.profile.outliers.size() >= OutlierChannels(task.side, task.shape.dim));
    coded.side = task.side;
    coded.tokens = task.shape.tokens;
    coded.dim = task.shape.dim - exact;
    coded.dtype = task.shape.dtype;
    coded.gain = TransformGain(task.side, task.profile, coded.dim);
    coded.guide = task.profile.guide;
  }
  bool plain() const { return exact == 0 && coded.side.transform == Transform::kNone; }
  uint64_t parameters_at() const { return AlignSlab(bytes.codes); }
  uint64_t exact_at() const { return parameters_at() + AlignSlab(bytes.parameters); }
  CoderArrays arrays(std::byte* out) const { return {out, out + parameters_at()}; }
  ConstCoderArrays arrays(const std::byte* in) const { return {in, in + parameters_at()}; }

  SideBytes bytes;
  uint32_t exact;
  const KernelSet& kernels;
  SideCoder coder;
  SideCoder scalar;
  CoderTask coded;
};

// The kernel set with every function in it that a transform calls.
KernelSet Complete(const KernelSet& kernels) {
  KernelSet complete = kernels;
  if (complete.hadamard == nullptr) {
    complete.hadamard = ScalarKernels().hadamard;
  }
  return complete;
}

// Calls visit(first, end, exact channels before it) for each run of coded channels of a row; none
// is empty.
template <typename Visit>
void ForEachCodedRun(const SideTask& task, const Visit& visit) {
  const uint32_t outliers = OutlierChannels(task.side, task.shape.dim);
  const uint32_t end = task.shape.dim - std::min<uint32_t>(task.side.tail, task.shape.dim);
  uint32_t first = 0;
  for (uint32_t i = 0; i < outliers; ++i) {
    const uint32_t channel = task.profile.outliers[i];
    TOKURA_CHECK(channel >= first && channel < end);
    if (channel != first) {
      visit(first, channel, i);
    }
    first = channel + 1;
  }
  if (first != end) {
    visit(first, end, outliers);
  }
}

// Splits `x` [count, dim] into coded channels, [count, dim - exact], and the others as elements.
void SplitChannels(const SideTask& task, const Plan& plan, const float* x, float* coded,
                   std::byte* exact) {
  const uint32_t dim = task.shape.dim;
  const uint32_t outliers = OutlierChannels(task.side, dim);
  const size_t element_bytes = DTypeBytes(task.shape.dtype);
  for (size_t t = 0; t < task.shape.tokens; ++t) {
    const float* row = x + t * dim;
    ForEachCodedRun(task, [&](uint32_t first, uint32_t end, uint32_t before) {
      std::copy(row + first, row + end, coded + t * plan.coded.dim + first - before);
    });
    std::byte* out = exact + t * plan.exact * element_bytes;
    for (uint32_t i = 0; i < outliers; ++i) {
      StoreElement(task.shape.dtype, row[task.profile.outliers[i]], out + i * element_bytes);
    }
    FromFloat(task.shape.dtype, row + plan.coded.dim + outliers, plan.exact - outliers,
              out + outliers * element_bytes);
  }
}

// The reverse, for the tokens `rows`.
void MergeChannels(const SideTask& task, const Plan& plan, const float* coded,
                   const std::byte* exact, TokenRange rows, float* x) {
  const uint32_t dim = task.shape.dim;
  const uint32_t outliers = OutlierChannels(task.side, dim);
  const size_t element_bytes = DTypeBytes(task.shape.dtype);
  for (size_t t = 0; t < rows.count; ++t) {
    float* row = x + t * dim;
    const float* from = coded + t * plan.coded.dim;
    ForEachCodedRun(task, [&](uint32_t first, uint32_t end, uint32_t before) {
      std::copy(from + first - before, from + end - before, row + first);
    });
    const std::byte* in = exact + (rows.first + t) * plan.exact * element_bytes;
    for (uint32_t i = 0; i < outliers; ++i) {
      row[task.profile.outliers[i]] = LoadElement(task.shape.dtype, in + i * element_bytes);
    }
    ToFloat(task.shape.dtype, in + outliers * element_bytes, plan.exact - outliers,
            row + plan.coded.dim + outliers);
  }
}

absl::Status CheckNumbers(const CodecSide& side) {
  const bool per_token = side.grouping == Grouping::kPerToken;
  const bool symmetric = side.zero == Zero::kSymmetric;
  bool known = false;
  switch (side.number) {
    case Number::kInteger:
      known = (side.bits == 8 || (side.bits >= 2 && side.bits <= 4)) &&
              (per_token || side.grouping == Grouping::kPerChannel) &&
              (symmetric || side.zero == Zero::kAsymmetric);
      break;
    case Number::kFloat8:
      known = side.bits == 8 && symmetric && (per_token || side.grouping == Grouping::kNone);
      break;
    case Number::kLloydMax:
      known = HasCodebook(side.bits) && symmetric && per_token;
      break;
    default:
      break;
  }
  if (!known) {
    return absl::UnimplementedError(absl::StrCat("no coder for number ",
                                                 static_cast<int>(side.number), " with ",
                                                 static_cast<int>(side.bits), " bits"));
  }
  if (side.group_max != 0 && (side.group_split == 0 || side.group_split > side.group_max)) {
    return absl::UnimplementedError("impossible sizes of groups");
  }
  return absl::OkStatus();
}

absl::Status CheckExtras(const CodecSide& side) {
  const bool plain = side.outliers == 0 && side.tail == 0;
  const bool transforms =
      side.transform == Transform::kSmooth || side.transform == Transform::kHadamard;
  if (side.transform != Transform::kNone && !(transforms && plain)) {
    return absl::UnimplementedError("unknown transform, or one beside channels that stay");
  }
  const bool guided =
      side.rounding == Rounding::kGuidedByChannel || side.rounding == Rounding::kGuidedByToken;
  if (side.rounding != Rounding::kNearest &&
      !(guided && plain && !transforms && side.number == Number::kInteger)) {
    return absl::UnimplementedError("unknown rounding, or guided with more than integers");
  }
  if (side.outliers % 2 != 0) {
    return absl::UnimplementedError("an odd number of outlier channels");
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t SideBytes::padded() const {
  return AlignSlab(codes) + AlignSlab(parameters) + AlignSlab(exact);
}

SideBytes SideBytesOf(const CodecSide& side, const SideShape& shape) {
  const uint64_t element_bytes = DTypeBytes(shape.dtype);
  if (side.raw()) {
    return {uint64_t{shape.tokens} * shape.dim * element_bytes, 0, 0};
  }
  const uint32_t exact = ExactChannels(side, shape.dim);
  SideBytes bytes = CodedBytes(side, {shape.tokens, shape.dim - exact, shape.dtype});
  bytes.exact = uint64_t{shape.tokens} * exact * element_bytes;
  return bytes;
}

absl::Status CheckSide(const CodecSide& side, DType dtype) {
  if (side.raw()) {
    return side == CodecSide{} ? absl::OkStatus()
                               : absl::UnimplementedError("raw data with coding parameters");
  }
  if (absl::Status status = CheckNumbers(side); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckExtras(side); !status.ok()) {
    return status;
  }
  if (dtype == DType::kFloat8E4M3 &&
      (side.number != Number::kFloat8 || side.transform != Transform::kNone)) {
    return absl::UnimplementedError(
        absl::StrCat("only raw and float8 can code elements of type ", DTypeName(dtype)));
  }
  return absl::OkStatus();
}

SideResult EncodeSide(const SideTask& task, const float* x, SideScratch* scratch, std::byte* out) {
  const Plan plan(task);
  std::fill(out + plan.bytes.codes, out + plan.parameters_at(), std::byte{0});
  std::fill(out + plan.parameters_at() + plan.bytes.parameters, out + plan.exact_at(),
            std::byte{0});
  std::fill(out + plan.exact_at() + plan.bytes.exact, out + plan.bytes.padded(), std::byte{0});
  const float* y = x;
  if (!plan.plain()) {
    scratch->coded.resize(size_t{task.shape.tokens} * plan.coded.dim);
    SplitChannels(task, plan, x, scratch->coded.data(), out + plan.exact_at());
    ApplyTransform(task, Complete(plan.kernels), task.shape.tokens, scratch->coded.data());
    y = scratch->coded.data();
  }
  if (task.shape.tokens == 0 || plan.coded.dim == 0) {
    return SideResult::kOk;
  }
  const auto encode = plan.coder.encode == nullptr ? plan.scalar.encode : plan.coder.encode;
  return encode(plan.coded, y, plan.arrays(out));
}

void DecodeSide(const SideTask& task, const std::byte* in, TokenRange rows, SideScratch* scratch,
                float* x) {
  const Plan plan(task);
  if (rows.count == 0) {
    return;
  }
  float* y = x;
  if (plan.exact != 0) {
    scratch->coded.resize(size_t{rows.count} * plan.coded.dim);
    y = scratch->coded.data();
  }
  if (plan.coded.dim != 0) {
    const auto decode = plan.coder.decode == nullptr ? plan.scalar.decode : plan.coder.decode;
    decode(plan.coded, plan.arrays(in), rows, y);
  }
  UndoTransform(task, Complete(plan.kernels), rows.count, y);
  if (plan.exact != 0) {
    MergeChannels(task, plan, y, in + plan.exact_at(), rows, x);
  }
}

SideResult EncodeSideFrom(const SideTask& task, const SideAccess& access, TokenRange range,
                          SideScratch* scratch, std::byte* out) {
  const Plan plan(task);
  if (plan.plain() && plan.coder.encode_from != nullptr && range.count != 0 && access.dim != 0) {
    std::fill(out + plan.bytes.codes, out + plan.parameters_at(), std::byte{0});
    std::fill(out + plan.parameters_at() + plan.bytes.parameters, out + plan.bytes.padded(),
              std::byte{0});
    return plan.coder.encode_from(plan.coded, access, range, plan.arrays(out));
  }
  scratch->rows.resize(size_t{range.count} * access.dim);
  GatherFloat(access, range, scratch->rows.data());
  return EncodeSide(task, scratch->rows.data(), scratch, out);
}

void DecodeSideTo(const SideTask& task, const std::byte* in, TokenRange rows, SideScratch* scratch,
                  const SideAccess& access, uint32_t first_token) {
  const Plan plan(task);
  if (plan.plain() && plan.coder.decode_to != nullptr && rows.count != 0 && access.dim != 0) {
    plan.coder.decode_to(plan.coded, plan.arrays(in), rows, access, first_token);
    return;
  }
  const uint32_t step = std::max(kTileElements / std::max(access.dim, 1u), 1u);
  scratch->rows.resize(size_t{std::min(step, rows.count)} * access.dim);
  for (uint32_t done = 0; done < rows.count; done += step) {
    const uint32_t count = std::min(step, rows.count - done);
    DecodeSide(task, in, {rows.first + done, count}, scratch, scratch->rows.data());
    ScatterFloat(access, {first_token + done, count}, scratch->rows.data());
  }
}

}  // namespace tokura::kernels
