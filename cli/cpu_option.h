#pragma once

#include <string>

#include "common/config.h"

namespace tokura::cli {

// --cpu: the instruction set that codecs run in, in force once the table is parsed. Outlives the
// table.
class CpuOption {
 public:
  void AddTo(OptionTable* options);

 private:
  std::string isa_ = "auto";
};

}  // namespace tokura::cli
