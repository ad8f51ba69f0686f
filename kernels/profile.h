#pragma once

// Model profiles: what codecs and error records need to know about a model, in one small file that
// is named by its contents. PROFILE.md defines the bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kernels/exemplars.h"
#include "kernels/model_profile.h"
#include "kernels/rope.h"

namespace tokura::kernels {

inline constexpr uint16_t kProfileRevision = 1;  // raised with every change of bytes
inline constexpr uint32_t kProfileGroupsMax = 8;
inline constexpr uint32_t kProfileDimMax = 1024;
inline constexpr uint64_t kProfileBytesMax = uint64_t{256} << 20;
inline constexpr std::string_view kProfileSuffix = ".profile";

// The numbers are part of PROFILE.md, and those of proto's attention kinds.
enum class ProfileAttention : uint8_t { kFull = 0, kSliding = 1, kLatent = 2 };

struct ProfileLayer {
  uint32_t index = 0;           // in the model
  double rope_base = 0;         // for people; 0 without RoPE
  std::vector<uint64_t> turns;  // [rope.dims / 2], see TurnsOf
  friend bool operator==(const ProfileLayer&, const ProfileLayer&) = default;
};

// One (layer, KV head). Sizes follow from the group.
struct ProfileHead {
  uint64_t sign_seed = 0;
  std::vector<float> smooth;         // [k_head_dim], above 0, equal within RoPE pairs
  std::vector<uint16_t> k_outliers;  // [k_outliers], ascending, whole RoPE pairs
  std::vector<uint16_t> v_outliers;  // [v_outliers], ascending
  std::vector<uint16_t> order;       // [k_head_dim] where the group has rounding, else empty
  std::vector<float> factors;        // [k_head_dim · (k_head_dim − 1) / 2], likewise
  std::vector<uint32_t> positions;   // [exemplars], where the queries stood
  std::vector<uint16_t> queries;     // [exemplars, k_head_dim], fp16, RoPE applied, not scaled
  friend bool operator==(const ProfileHead&, const ProfileHead&) = default;
};

// The layers of one attention kind, as a namespace groups them.
struct ProfileGroup {
  ProfileAttention attention = ProfileAttention::kFull;
  uint32_t window = 0;  // tokens a query sees, sliding groups only
  uint32_t kv_heads = 0;
  uint32_t queries_per_head = 0;  // query heads that read one KV head
  uint32_t k_head_dim = 0;
  uint32_t v_head_dim = 0;  // 0: V is the first channels of K, before those with RoPE
  RopeShape rope;
  float softmax_scale = 0;
  uint32_t k_outliers = 0;  // channels listed for each head
  uint32_t v_outliers = 0;
  bool rounding = false;             // order and factors are there
  std::vector<ProfileLayer> layers;  // ascending indices
  std::vector<ProfileHead> heads;    // [layers][kv_heads]
  friend bool operator==(const ProfileGroup&, const ProfileGroup&) = default;
};

// A profile's contents, without invariants. A value.
struct ProfileData {
  std::string model;       // at most 64 bytes
  uint32_t exemplars = 0;  // of each head, 1 … kExemplarsMax
  std::vector<ProfileGroup> groups;
  friend bool operator==(const ProfileData&, const ProfileData&) = default;
};

// INVALID_ARGUMENT names the field that breaks a rule of PROFILE.md.
absl::Status CheckProfile(const ProfileData& data);

// The file's bytes. Requires CheckProfile.
std::string SerializeProfile(const ProfileData& data);
// The reverse, for untrusted bytes; the result passes CheckProfile. Statuses of Profile::Parse.
absl::StatusOr<ProfileData> ParseProfileData(std::span<const std::byte> bytes);

// A profile that was read from a file. Thread-safe.
class Profile final : public ModelProfile {
 public:
  // Untrusted bytes. INVALID_ARGUMENT: not a profile, or one that contradicts itself;
  // FAILED_PRECONDITION: of another revision; DATA_LOSS: the checksum does not match.
  static absl::StatusOr<std::shared_ptr<const Profile>> Parse(std::span<const std::byte> bytes);
  // As Parse; NOT_FOUND: no such file; UNAVAILABLE: it cannot be read. The message names the file.
  static absl::StatusOr<std::shared_ptr<const Profile>> Read(const std::string& path);

  const ProfileData& data() const { return data_; }

  uint64_t id() const override { return id_; }
  absl::Status CheckPart(PartId part, const PartShape& shape, const Needs& needs) const override;
  HeadProfile Head(const ProfileSlot& slot) const override;
  Exemplars ExemplarsOf(const ProfileSlot& slot, uint32_t count) const override;

 private:
  // Tiles of all heads of a group, one after the other.
  using Tiles = std::vector<std::vector<float>>;

  Profile(ProfileData data, uint64_t id) : data_(std::move(data)), id_(id) {}
  const Tiles& TilesFor(uint32_t count) const;

  const ProfileData data_;
  const uint64_t id_;
  mutable Mutex mutex_;
  // By exemplar count: one entry for every count that somebody asked for, so at most kExemplarsMax.
  // Never removed, since callers borrow them.
  mutable std::map<uint32_t, Tiles> tiles_ TOKURA_GUARDED_BY(mutex_);
};

// "0123456789abcdef": how ids are shown and how files are called, with kProfileSuffix.
std::string ProfileIdText(uint64_t id);

}  // namespace tokura::kernels
