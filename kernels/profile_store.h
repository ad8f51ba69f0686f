#pragma once

// The profiles of a process.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/profile_paths.h"
#include "kernels/profile.h"

namespace tokura::kernels {

// Profiles read at the start of a process. Immutable afterwards and thread-safe.
class ProfileStore final : public ProfileSource {
 public:
  static constexpr size_t kProfilesMax = 256;

  // Read the files, in the order given, then those of the directory, in the order of their names.
  // One that cannot be used is an error, whose message names it: a process that left it out would
  // miss blocks, or write others than its neighbours do. NOT_FOUND: no such file or directory;
  // UNAVAILABLE: one cannot be read; RESOURCE_EXHAUSTED: more than kProfilesMax files; others as
  // Profile::Read.
  static absl::StatusOr<std::shared_ptr<const ProfileStore>> Load(const ProfilePaths& paths);
  // These profiles alone. Owners: the store and whoever found one.
  explicit ProfileStore(const std::vector<std::shared_ptr<const Profile>>& profiles);
  ProfileStore() = default;

  std::shared_ptr<const ModelProfile> Find(uint64_t id) const override;
  // In the order in which they were read, each once.
  const std::vector<std::shared_ptr<const Profile>>& profiles() const { return profiles_; }

 private:
  void Add(std::shared_ptr<const Profile> profile);

  std::vector<std::shared_ptr<const Profile>> profiles_;
  std::map<uint64_t, std::shared_ptr<const Profile>> by_id_;
};

}  // namespace tokura::kernels
