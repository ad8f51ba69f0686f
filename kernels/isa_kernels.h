#pragma once

// The kernel sets that kernels/isa is compiled to. Internal to kernels/.

#include "kernels/cpu_features.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {

// Null where this build has none: for the scalar set, and on other architectures. To be called only
// where IsaAvailable(isa).
const KernelSet* KernelsCompiledFor(Isa isa);

}  // namespace tokura::kernels
