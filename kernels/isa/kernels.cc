#include "kernels/isa/float8_sides.h"
#include "kernels/isa/guided_sides.h"
#include "kernels/isa/integer_sides.h"
#include "kernels/isa/lloyd_max_sides.h"
#include "kernels/isa/record.h"
#include "kernels/isa/row_transforms.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {
namespace TOKURA_ISA {
namespace {

template <uint32_t kBits, bool kSymmetric>
SideCoder PerToken() {
  return CoderOf<EncodePerToken<kBits, kSymmetric>, DecodePerToken<kBits, kSymmetric>>();
}

template <uint32_t kBits>
SideCoder PerChannel() {
  return CoderOf<EncodePerChannel<kBits>, DecodePerChannel<kBits>>();
}

SideCoder IntegerCoder(const CodecSide& side) {
  const bool symmetric = side.zero == Zero::kSymmetric;
  if (side.grouping == Grouping::kPerToken) {
    switch (side.bits) {
      case 8:
        return symmetric ? PerToken<8, true>() : SideCoder{};
      case 4:
        return symmetric ? PerToken<4, true>() : PerToken<4, false>();
      case 3:
        return symmetric ? SideCoder{} : PerToken<3, false>();
      default:
        return symmetric ? SideCoder{} : PerToken<2, false>();
    }
  }
  if (symmetric || side.group_max == 0 || side.group_max > kRowsMax) {
    return {};
  }
  switch (side.bits) {
    case 4:
      return PerChannel<4>();
    case 3:
      return PerChannel<3>();
    case 2:
      return PerChannel<2>();
    default:
      return {};
  }
}

// Null where this set has none.
auto GuidedEncode(const CodecSide& side) -> decltype(SideCoder::encode) {
  if (side.rounding != Rounding::kGuidedByChannel || side.grouping != Grouping::kPerChannel ||
      IntegerCoder(side).encode == nullptr) {
    return nullptr;
  }
  return side.bits == 4 ? EncodeGuided<4> : side.bits == 3 ? EncodeGuided<3> : EncodeGuided<2>;
}

SideCoder CoderFor(const CodecSide& side, DType) {
  // Groups begin at whole vectors.
  if (side.group_split % kLanes != 0) {
    return {};
  }
  switch (side.number) {
    case Number::kInteger: {
      SideCoder coder = IntegerCoder(side);
      if (side.rounding != Rounding::kNearest) {
        coder.encode = GuidedEncode(side);
        coder.encode_from = nullptr;
      }
      return coder;
    }
    case Number::kFloat8:
      return CoderOf<EncodeFloat8, DecodeFloat8>();
    case Number::kLloydMax:
      return side.bits == 4   ? CoderOf<EncodeBook<4>, DecodeBook<4>>()
             : side.bits == 3 ? CoderOf<EncodeBook<3>, DecodeBook<3>>()
                              : CoderOf<EncodeBook<2>, DecodeBook<2>>();
    default:
      return {};
  }
}

// As in float_convert.h.
void ToFloat(DType type, const std::byte* in, size_t count, float* out) {
  WithType(type, [&]<DType kType>() {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      StoreFloats(out + i, LoadAs<kType>(in + i * kBytesOf<kType>));
    }
    if (i < count) {
      const auto left = static_cast<uint32_t>(count - i);
      StoreFewAs<DType::kFloat32>(reinterpret_cast<std::byte*>(out + i), left,
                                  LoadFewAs<kType>(in + i * kBytesOf<kType>, left));
    }
  });
}

void FromFloat(DType type, const float* in, size_t count, std::byte* out) {
  WithType(type, [&]<DType kType>() {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      StoreAs<kType>(out + i * kBytesOf<kType>, LoadFloats(in + i));
    }
    if (i < count) {
      const auto left = static_cast<uint32_t>(count - i);
      const auto* rest = reinterpret_cast<const std::byte*>(in + i);
      StoreFewAs<kType>(out + i * kBytesOf<kType>, left, LoadFewAs<DType::kFloat32>(rest, left));
    }
  });
}

void Gather(const SideAccess& access, TokenRange range, std::byte* out) {
  MoveTile<Direction::kGather>(access, range, {0, access.dim}, out);
}

void Scatter(const SideAccess& access, TokenRange range, const std::byte* in) {
  // A scatter only reads its dense side; both directions share one signature.
  MoveTile<Direction::kScatter>(access, range, {0, access.dim}, const_cast<std::byte*>(in));
}

}  // namespace

extern const KernelSet kKernels;
constexpr KernelSet kKernels = [] {
  KernelSet set;
  set.name = TOKURA_ISA_NAME;
  set.coder = CoderFor;
  set.hadamard = Hadamard;
  set.to_float = ToFloat;
  set.from_float = FromFloat;
  set.gather = Gather;
  set.scatter = Scatter;
  set.record_scores = RecordScores;
  set.record_softmax = RecordSoftmax;
  set.record_outputs = RecordOutputs;
  set.record_sums = AddSquares;
  return set;
}();

}  // namespace TOKURA_ISA
}  // namespace tokura::kernels
