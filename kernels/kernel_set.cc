#include "kernels/kernel_set.h"

#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/float8_coder.h"
#include "kernels/integer_coder.h"
#include "kernels/isa_kernels.h"
#include "kernels/lloyd_max_coder.h"
#include "kernels/record_kernels.h"
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

constexpr KernelSet kScalar = [] {
  KernelSet set;
  set.name = "scalar";
  set.coder = ScalarCoder;
  set.hadamard = ScalarHadamard;
  set.record_scores = ScalarRecordScores;
  set.record_softmax = ScalarRecordSoftmax;
  set.record_outputs = ScalarRecordOutputs;
  set.record_sums = ScalarRecordSums;
  return set;
}();

const KernelSet& KernelsOf(Isa isa) {
  const KernelSet* set = isa == Isa::kScalar ? nullptr : KernelsCompiledFor(isa);
  return set == nullptr ? kScalar : *set;
}

}  // namespace

const KernelSet& ScalarKernels() {
  return kScalar;
}

const KernelSet& ActiveKernels() {
  return KernelsOf(ActiveIsa());
}

std::span<const KernelSet* const> RunnableKernels() {
  static const std::vector<const KernelSet*> runnable = [] {
    std::vector<const KernelSet*> sets;
    for (const Isa isa : kIsas) {
      if (IsaAvailable(isa)) {
        sets.push_back(&KernelsOf(isa));
      }
    }
    return sets;
  }();
  return runnable;
}

}  // namespace tokura::kernels
