#pragma once

// Sixteen lanes at a time: the vocabulary in which the hot loops of the codecs are written once and
// compiled for every instruction set. Each operation gives the same bits everywhere: IEEE
// arithmetic without contraction, integer arithmetic that wraps, moves. Needs the default
// floating-point environment (fp_environment.h). Internal to kernels/isa.

#include "kernels/isa/isa.h"

#if defined(__AVX512F__)
#include "kernels/isa/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/isa/simd_avx2.h"
#else
#include "kernels/isa/simd_scalar.h"
#endif
