#include "kernels/isa_kernels.h"

namespace tokura::kernels {

#if defined(__x86_64__)
namespace avx2 {
extern const KernelSet kKernels;
}
namespace avx512 {
extern const KernelSet kKernels;
}

const KernelSet* KernelsCompiledFor(Isa isa) {
  return isa == Isa::kAvx512 ? &avx512::kKernels : isa == Isa::kAvx2 ? &avx2::kKernels : nullptr;
}
#else
const KernelSet* KernelsCompiledFor(Isa) {
  return nullptr;
}
#endif

}  // namespace tokura::kernels
