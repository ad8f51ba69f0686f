#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace tokura {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "FATAL %s:%d broken invariant: %s\n", file, line, condition);
  std::abort();
}

}  // namespace tokura
