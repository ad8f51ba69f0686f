#include "cli/cpu_option.h"

#include "common/status_macros.h"
#include "kernels/cpu_features.h"

namespace tokura::cli {

void CpuOption::AddTo(OptionTable* options) {
  options->AddChoice("cpu", &isa_, {"auto", "scalar", "avx2", "avx512", "amx"},
                     "instruction set of the codecs, which all give the same bytes; auto: the "
                     "widest that this machine runs");
  options->AddCheck([this]() -> absl::Status {
    if (isa_ == "auto") {
      return absl::OkStatus();
    }
    TOKURA_ASSIGN_OR_RETURN(const kernels::Isa isa, kernels::ParseIsa(isa_));
    return kernels::SetIsa(isa);
  });
}

}  // namespace tokura::cli
