#pragma once

#include <string>
#include <vector>

namespace tokura::cli {

// `tokura profile` and `tokura profile show`. `args` are what follows the command; the exit status
// is returned.
int RunProfile(const std::vector<std::string>& args);
int RunProfileShow(const std::vector<std::string>& args);

}  // namespace tokura::cli
