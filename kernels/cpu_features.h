#pragma once

// Which of the instruction sets that the codecs are compiled for runs. All of them give the same
// codes; the choice is made once, at run time.

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tokura::kernels {

enum class Isa : uint8_t {
  kScalar = 0,  // plain C++ for the architecture's baseline: the definition of the others
  kAvx2 = 1,    // AVX2, FMA and F16C
  kAvx512 = 2,  // AVX-512 F, BW, DQ and VL besides
  kAmx = 3,     // AVX-512 BF16 and AMX BF16 besides: error records by tile units
};
inline constexpr std::array<Isa, 4> kIsas = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

// "scalar", "avx2", "avx512", "amx".
std::string_view IsaName(Isa isa);
// INVALID_ARGUMENT lists the names.
absl::StatusOr<Isa> ParseIsa(std::string_view name);

// Whether this build has code for `isa` and processor and system run it. The first question about
// kAmx asks the system to let this process use the tile registers. Thread-safe.
bool IsaAvailable(Isa isa);
// The widest one that is available.
Isa BestIsa();

// The one in force: BestIsa() unless SetIsa was called. Thread-safe.
Isa ActiveIsa();
// Force `isa` for the whole process, from the next call of a codec on: for tests, and for finding a
// faulty machine. FAILED_PRECONDITION: it is not available; nothing changes. Thread-safe.
absl::Status SetIsa(Isa isa);

}  // namespace tokura::kernels
