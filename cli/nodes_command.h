#pragma once

#include <string>
#include <vector>

namespace tokura::cli {

// `tokura nodes`: the nodes that a coordinator knows. `args` are what follows the command; the exit
// status is returned.
int RunNodes(const std::vector<std::string>& args);

}  // namespace tokura::cli
