#include "kernels/profile_store.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura::kernels {
namespace {

absl::StatusOr<std::vector<std::string>> DirectoryFiles(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> files;
  const std::filesystem::directory_iterator end;
  std::filesystem::directory_iterator at(directory, error);
  while (!error && at != end) {
    if (at->path().extension() == std::string(kProfileSuffix)) {
      files.push_back(at->path().string());
    }
    at.increment(error);
  }
  if (error) {
    const std::string what = absl::StrCat("profile directory ", directory, ": ", error.message());
    return error == std::errc::no_such_file_or_directory ? absl::NotFoundError(what)
                                                         : absl::UnavailableError(what);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ProfileStore>> ProfileStore::Load(const ProfilePaths& paths) {
  std::vector<std::string> files = paths.files;
  if (!paths.directory.empty()) {
    TOKURA_ASSIGN_OR_RETURN(const std::vector<std::string> more, DirectoryFiles(paths.directory));
    files.insert(files.end(), more.begin(), more.end());
  }
  if (files.size() > kProfilesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(files.size(), " profiles; at most ", kProfilesMax, " are read"));
  }
  // Owners: the process's client or node, and its encoders and readers.
  auto store = std::make_shared<ProfileStore>();
  for (const std::string& file : files) {
    TOKURA_ASSIGN_OR_RETURN(std::shared_ptr<const Profile> profile, Profile::Read(file));
    store->Add(std::move(profile));
  }
  return store;
}

ProfileStore::ProfileStore(const std::vector<std::shared_ptr<const Profile>>& profiles) {
  for (const std::shared_ptr<const Profile>& profile : profiles) {
    Add(profile);
  }
}

void ProfileStore::Add(std::shared_ptr<const Profile> profile) {
  if (by_id_.emplace(profile->id(), profile).second) {
    profiles_.push_back(std::move(profile));
  }
}

std::shared_ptr<const ModelProfile> ProfileStore::Find(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

}  // namespace tokura::kernels
