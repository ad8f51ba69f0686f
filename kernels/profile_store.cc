#include "kernels/profile_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura::kernels {
namespace {

absl::StatusOr<std::vector<std::string>> ProfileFiles(const std::string& directory) {
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
  if (files.size() > ProfileStore::kProfilesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("profile directory ", directory, " has ",
                                                     files.size(), " profiles; at most ",
                                                     ProfileStore::kProfilesMax, " are read"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ProfileStore>> ProfileStore::Load(
    const std::string& directory) {
  // Owners: the process's client or node, and its encoders and readers.
  auto store = std::make_shared<ProfileStore>();
  if (directory.empty()) {
    return store;
  }
  TOKURA_ASSIGN_OR_RETURN(const std::vector<std::string> files, ProfileFiles(directory));
  for (const std::string& file : files) {
    auto profile = Profile::Read(file);
    if (profile.ok()) {
      store->profiles_.emplace((*profile)->id(), *std::move(profile));
    } else {
      store->refused_.push_back(profile.status());
    }
  }
  return store;
}

ProfileStore::ProfileStore(std::vector<std::shared_ptr<const Profile>> profiles) {
  for (std::shared_ptr<const Profile>& profile : profiles) {
    const uint64_t id = profile->id();
    profiles_.emplace(id, std::move(profile));
  }
}

std::shared_ptr<const ModelProfile> ProfileStore::Find(uint64_t id) const {
  const auto found = profiles_.find(id);
  return found == profiles_.end() ? nullptr : found->second;
}

}  // namespace tokura::kernels
