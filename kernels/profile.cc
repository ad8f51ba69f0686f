#include "kernels/profile.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/read_file.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "kernels/float_convert.h"
#include "kernels/fp_environment.h"
#include "kernels/part.h"

namespace tokura::kernels {
namespace {

uint64_t ContentId(std::span<const std::byte> bytes) {
  Sha256Writer sha;
  sha.Raw(bytes);
  const Sha256Writer::Digest digest = sha.Finish();
  uint64_t id = 0;
  for (size_t i = 0; i < sizeof(id); ++i) {
    id = id << 8 | static_cast<uint64_t>(digest[i]);
  }
  // 0 means that there is no profile.
  return id == 0 ? 1 : id;
}

// The exemplars of one head, turned to their offsets behind position 0.
std::vector<float> MakeTiles(const ProfileGroup& group, const ProfileLayer& layer,
                             const ProfileHead& head, uint32_t count) {
  std::vector<float> tiles(ExemplarTileFloats(count, group.k_head_dim));
  std::vector<float> query(group.k_head_dim);
  std::vector<Rotation> rotations(group.rope.pairs());
  for (uint32_t i = 0; i < count; ++i) {
    const uint16_t* stored = head.queries.data() + size_t{i} * group.k_head_dim;
    for (uint32_t c = 0; c < group.k_head_dim; ++c) {
      query[c] = HalfToFloat(stored[c]) * group.softmax_scale;
    }
    const uint64_t offset = ExemplarOffset(i, count, group.window);
    RotationsAt(layer.turns, offset - head.positions[i], rotations);
    Rotate(group.rope, rotations, query.data());
    for (uint32_t c = 0; c < group.k_head_dim; ++c) {
      tiles[ExemplarTileIndex(i, c, group.k_head_dim)] = query[c];
    }
  }
  return tiles;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Profile>> Profile::Parse(std::span<const std::byte> bytes) {
  TOKURA_ASSIGN_OR_RETURN(ProfileData data, ParseProfileData(bytes));
  // Owners: the store that holds it, and whoever encodes or decodes with it.
  return std::shared_ptr<const Profile>(new Profile(std::move(data), ContentId(bytes)));
}

absl::StatusOr<std::shared_ptr<const Profile>> Profile::Read(const std::string& path) {
  TOKURA_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadFile(path, kProfileBytesMax));
  absl::StatusOr<std::shared_ptr<const Profile>> profile = Parse(bytes);
  if (!profile.ok()) {
    return absl::Status(profile.status().code(),
                        absl::StrCat(path, ": ", std::string(profile.status().message())));
  }
  return profile;
}

absl::Status Profile::CheckPart(PartId part, const PartShape& shape, const Needs& needs) const {
  const auto bad = [&](const std::string& what) {
    return absl::FailedPreconditionError(
        absl::StrCat("profile ", ProfileIdText(id_), " (", data_.model, "): ", what));
  };
  if (part.group >= data_.groups.size()) {
    return bad(absl::StrCat("it has no layer group ", part.group));
  }
  const ProfileGroup& group = data_.groups[part.group];
  if (shape.layers != group.layers.size() || shape.k_head_dim != group.k_head_dim ||
      shape.v_head_dim != group.v_head_dim) {
    return bad(absl::StrCat("layers or head sizes of group ", part.group, " are another model's"));
  }
  if ((uint64_t{part.shard} + 1) * shape.heads > group.kv_heads) {
    return bad(absl::StrCat("it has only ", group.kv_heads, " KV heads"));
  }
  if (needs.rounding_of_channels && !group.rounding) {
    return bad("it has no factors for guided rounding");
  }
  if (needs.k_outliers != 0 && needs.k_outliers != group.k_outliers) {
    return bad(absl::StrCat("it names ", group.k_outliers,
                            " outlier channels of K, the codec wants ", needs.k_outliers));
  }
  if (needs.v_outliers != 0 && needs.v_outliers != group.v_outliers) {
    return bad(absl::StrCat("it names ", group.v_outliers,
                            " outlier channels of V, the codec wants ", needs.v_outliers));
  }
  return absl::OkStatus();
}

HeadProfile Profile::Head(const ProfileSlot& slot) const {
  const ProfileGroup& group = data_.groups[slot.group];
  const ProfileHead& head = group.heads[size_t{slot.layer} * group.kv_heads + slot.head];
  HeadProfile out;
  out.k.smooth = head.smooth;
  out.k.outliers = head.k_outliers;
  out.k.guide = {head.order, head.factors};
  out.k.sign_seed = head.sign_seed;
  out.v.outliers = head.v_outliers;
  out.v.sign_seed = ~head.sign_seed;
  return out;
}

const Profile::Tiles& Profile::TilesFor(uint32_t count) const {
  const MutexLock lock(mutex_);
  const auto [entry, inserted] = tiles_.try_emplace(count);
  if (inserted) {
    const ScopedFloatEnvironment environment;
    for (const ProfileGroup& group : data_.groups) {
      std::vector<float>& all = entry->second.emplace_back();
      for (size_t i = 0; i < group.heads.size(); ++i) {
        const std::vector<float> one =
            MakeTiles(group, group.layers[i / group.kv_heads], group.heads[i], count);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
  }
  return entry->second;
}

Exemplars Profile::ExemplarsOf(const ProfileSlot& slot, uint32_t count) const {
  const ProfileGroup& group = data_.groups[slot.group];
  Exemplars out;
  out.count = std::min(count, data_.exemplars);
  out.k_dim = group.k_head_dim;
  out.rope = group.rope;
  out.turns = group.layers[slot.layer].turns;
  const size_t head = size_t{slot.layer} * group.kv_heads + slot.head;
  out.tiles = TilesFor(out.count)[slot.group].data() +
              head * ExemplarTileFloats(out.count, group.k_head_dim);
  return out;
}

std::string ProfileIdText(uint64_t id) {
  return absl::StrFormat("%016x", id);
}

}  // namespace tokura::kernels
