#pragma once

#include <string>
#include <vector>

namespace tokura::cli {

// `tokura codec list` and `tokura codec eval`. `args` are what follows the command; the exit status
// is returned.
int RunCodecList(const std::vector<std::string>& args);
int RunCodecEval(const std::vector<std::string>& args);

}  // namespace tokura::cli
