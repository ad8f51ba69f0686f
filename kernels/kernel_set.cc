#include "kernels/kernel_set.h"

#include <array>

#include "kernels/float8_coder.h"
#include "kernels/integer_coder.h"
#include "kernels/lloyd_max_coder.h"
#include "kernels/transform.h"

namespace tokura::kernels {
namespace {

SideCoder ScalarCoder(const CodecSide& side, DType) {
  switch (side.number) {
    case Number::kInteger:
      return {IntegerEncode, IntegerDecode};
    case Number::kFloat8:
      return {Float8Encode, Float8Decode};
    case Number::kLloydMax:
      return {LloydMaxEncode, LloydMaxDecode};
    default:
      return {};
  }
}

constexpr KernelSet kScalar{"scalar", ScalarCoder, ScalarHadamard};
constexpr std::array<const KernelSet*, 1> kRunnable = {&kScalar};

}  // namespace

const KernelSet& ScalarKernels() {
  return kScalar;
}

std::span<const KernelSet* const> RunnableKernels() {
  return kRunnable;
}

}  // namespace tokura::kernels
