#include "kernels/isa_kernels.h"

namespace tokura::kernels {

#if defined(__x86_64__)
namespace avx2 {
extern const KernelSet kKernels;
}
namespace avx512 {
extern const KernelSet kKernels;
}
namespace amx {
extern const TileRecordKernels kTileRecord;
}

namespace {

// What has no use for tiles is AVX-512's.
const KernelSet& AmxKernels() {
  static const KernelSet kernels = [] {
    KernelSet set = avx512::kKernels;
    set.name = IsaName(Isa::kAmx);
    set.maybe_tile_record = &amx::kTileRecord;
    return set;
  }();
  return kernels;
}

}  // namespace

const KernelSet* KernelsCompiledFor(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return &avx2::kKernels;
    case Isa::kAvx512:
      return &avx512::kKernels;
    case Isa::kAmx:
      return &AmxKernels();
    default:
      return nullptr;
  }
}
#else
const KernelSet* KernelsCompiledFor(Isa) {
  return nullptr;
}
#endif

}  // namespace tokura::kernels
