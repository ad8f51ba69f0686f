#include "kernels/cpu_features.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
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

// Bits of leaf 7: EDX of subleaf 0, EAX of subleaf 1.
constexpr unsigned kAmxBf16 = 1u << 22;
constexpr unsigned kAmxTile = 1u << 24;
constexpr unsigned kAvx512Bf16 = 1u << 5;
// Linux gives the tile registers' memory to processes that ask for it: arch_prctl(2).
constexpr long kRequestFeature = 0x1023;
constexpr long kTileData = 18;

bool HasTiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) {
    return false;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & kAvx512Bf16) == 0) {
    return false;
  }
  return syscall(SYS_arch_prctl, kRequestFeature, kTileData) == 0;
}

// The builtin asks the system too, whether it keeps the wide registers.
bool ProcessorHas(Isa isa) {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
    case Isa::kAmx: {
      static const bool tiles = avx512 && HasTiles();
      return tiles;
    }
    default:
      return true;
  }
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
    case Isa::kAmx:
      return "amx";
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
