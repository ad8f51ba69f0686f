#pragma once

#include <string>

namespace tokura {

// What this program was built from; --version, /version and tokura_build_info show it.
struct BuildInfo {
  std::string version;  // "0.1.0"
  std::string commit;   // abbreviated Git commit, "-dirty" appended; "unknown" outside a clone
};

// Lives for ever. Thread-safe.
const BuildInfo& GetBuildInfo();

}  // namespace tokura
