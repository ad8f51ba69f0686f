#pragma once

#include <string>
#include <vector>

namespace tokura::cli {

// `tokura bench soak`: use nodes from many threads, whatever happens to them, and check every byte.
// `args` are what follows the command; the exit status is returned: 1 when something was wrong or
// hung.
int RunBenchSoak(const std::vector<std::string>& args);

}  // namespace tokura::cli
