#pragma once

// The profiles of a process.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/profile.h"

namespace tokura::kernels {

// Profiles read at the start of a process. Immutable afterwards and thread-safe.
class ProfileStore final : public ProfileSource {
 public:
  static constexpr size_t kProfilesMax = 256;

  // Read all files of `directory` whose names end in kProfileSuffix, in the order of their names;
  // empty: none. A file that cannot be used is left out and listed in refused(). NOT_FOUND: no such
  // directory; UNAVAILABLE: it cannot be read; RESOURCE_EXHAUSTED: more than kProfilesMax files.
  static absl::StatusOr<std::shared_ptr<const ProfileStore>> Load(const std::string& directory);
  // These profiles alone. Owners: the store and whoever found one.
  explicit ProfileStore(std::vector<std::shared_ptr<const Profile>> profiles);
  ProfileStore() = default;

  std::shared_ptr<const ModelProfile> Find(uint64_t id) const override;
  // In ascending order of their ids.
  const std::map<uint64_t, std::shared_ptr<const Profile>>& profiles() const { return profiles_; }
  // Why files were left out, with their names.
  const std::vector<absl::Status>& refused() const { return refused_; }

 private:
  std::map<uint64_t, std::shared_ptr<const Profile>> profiles_;
  std::vector<absl::Status> refused_;
};

}  // namespace tokura::kernels
