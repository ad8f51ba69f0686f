#include "common/build_info.h"

#include "generated/commit.h"  // Written by cmake/WriteCommit.cmake.

namespace tokura {

const BuildInfo& GetBuildInfo() {
  static const BuildInfo* const info = new BuildInfo{TOKURA_BUILD_VERSION, TOKURA_BUILD_COMMIT};
  return *info;
}

}  // namespace tokura
