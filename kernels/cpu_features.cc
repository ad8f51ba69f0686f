#include "kernels/cpu_features.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tokura::kernels {
namespace {

#if defined(__x86_64__)
bool HasF16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// The builtin asks the system too, whether it keeps the wide registers.
bool ProcessorHas(Isa isa) {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  if (isa != Isa::kAvx512) {
    return isa == Isa::kScalar || avx2;
  }
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool ProcessorHas(Isa isa) {
  return isa == Isa::kScalar;
}
#endif

std::atomic<Isa>& Active() {
  static std::atomic<Isa> active = BestIsa();
  return active;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    default:
      return "scalar";
  }
}

absl::StatusOr<Isa> ParseIsa(std::string_view name) {
  std::string known;
  for (const Isa isa : kIsas) {
    if (IsaName(isa) == name) {
      return isa;
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(IsaName(isa)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set '", std::string(name), "'; known: ", known));
}

bool IsaAvailable(Isa isa) {
  return ProcessorHas(isa);
}

Isa BestIsa() {
  Isa best = Isa::kScalar;
  for (const Isa isa : kIsas) {
    best = IsaAvailable(isa) ? isa : best;
  }
  return best;
}

Isa ActiveIsa() {
  return Active().load(std::memory_order_relaxed);
}

absl::Status SetIsa(Isa isa) {
  if (!IsaAvailable(isa)) {
    return absl::FailedPreconditionError(
        absl::StrCat("this processor does not run ", std::string(IsaName(isa))));
  }
  Active().store(isa, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace tokura::kernels
