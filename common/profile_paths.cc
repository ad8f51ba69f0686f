#include "common/profile_paths.h"

#include "common/config.h"

namespace tokura {

void AddProfileOptions(OptionTable* options, ProfilePaths* paths) {
  options->AddStrings(
      "profile", &paths->files,
      "model profiles (tokura profile), comma-separated or repeated; the first that "
      "fits a model is used for its blocks");
  options->AddString("profile-dir", &paths->directory,
                     "directory of model profiles, *.profile, which come after those of --profile, "
                     "by name");
}

}  // namespace tokura
