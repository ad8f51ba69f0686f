#pragma once

#include <string>
#include <vector>

namespace tokura::cli {

// `tokura put`, `get`, `stat` and `rm`. `args` are what follows the command; the exit status is
// returned: 0 also when nothing was found, for a miss is an answer.
int RunPut(const std::vector<std::string>& args);
int RunGet(const std::vector<std::string>& args);
int RunStat(const std::vector<std::string>& args);
int RunRemove(const std::vector<std::string>& args);

}  // namespace tokura::cli
