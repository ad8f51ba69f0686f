#pragma once

// Where a process's model profiles lie, as its options say.

#include <string>
#include <vector>

namespace tokura {

class OptionTable;

// kernels::ProfileStore reads them.
struct ProfilePaths {
  std::vector<std::string> files;
  std::string directory;  // all its files whose names end in .profile; empty: none
};

// Add --profile and --profile-dir. `paths` outlives the table.
void AddProfileOptions(OptionTable* options, ProfilePaths* paths);

}  // namespace tokura
