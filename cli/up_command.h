#pragma once

#include <string>
#include <vector>

namespace tokura::cli {

// `tokura up`: a cache node in this process, until SIGTERM or SIGINT drains it; a second one ends
// the process at once. `args` are what follows the command; the exit status is returned.
int RunUp(const std::vector<std::string>& args);

}  // namespace tokura::cli
