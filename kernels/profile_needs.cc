#include "kernels/profile_needs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tokura::kernels {

ModelProfile::Needs DecodersNeeds(const PartShape& shape, std::span<const CodecPair> codecs) {
  ModelProfile::Needs needs;
  for (const CodecPair& codec : codecs) {
    needs.smooth |= codec.k.transform == Transform::kSmooth;
    needs.k_outliers = std::max(needs.k_outliers, OutlierChannels(codec.k, shape.k_head_dim));
    needs.v_outliers = std::max(needs.v_outliers, OutlierChannels(codec.v, shape.v_head_dim));
  }
  return needs;
}

ModelProfile::Needs EncodersNeeds(const PartShape& shape, std::span<const CodecPair> codecs) {
  ModelProfile::Needs needs = DecodersNeeds(shape, codecs);
  for (const CodecPair& codec : codecs) {
    needs.rounding_of_channels |= codec.k.rounding == Rounding::kGuidedByChannel;
    needs.queries |= codec.v.rounding == Rounding::kGuidedByToken;
  }
  return needs;
}

ProfileUse EncodersUse(std::span<const CodecPair> codecs) {
  ProfileUse use = ProfileUse::kNone;
  for (const CodecPair& codec : codecs) {
    use = std::max({use, UsesProfile(codec.k), UsesProfile(codec.v)});
  }
  return use;
}

bool NeedsProfileToDecode(const Prefix& prefix) {
  for (const uint8_t index : prefix.layer_codec) {
    const CodecPair& codec = prefix.codecs[index];
    for (const CodecSide& side : {codec.k, codec.v}) {
      const ProfileUse use = UsesProfile(side);
      if (use == ProfileUse::kOptional || use == ProfileUse::kToDecode) {
        return true;
      }
    }
  }
  return false;
}

absl::StatusOr<std::shared_ptr<const ModelProfile>> FindProfile(const ProfileSource* maybe_profiles,
                                                                uint64_t id) {
  auto profile = maybe_profiles == nullptr ? nullptr : maybe_profiles->Find(id);
  if (profile == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("part: model profile ", absl::Hex(id, absl::kZeroPad16), " is not here"));
  }
  return profile;
}

ProfileSlot SlotOf(PartId part, const PartShape& shape, LayerHead at) {
  return {part.group, at.layer, part.shard * shape.heads + at.head};
}

HeadProfile HeadProfileOf(const ModelProfile* maybe_profile, PartId part, const PartShape& shape,
                          LayerHead at) {
  return maybe_profile == nullptr ? HeadProfile{} : maybe_profile->Head(SlotOf(part, shape, at));
}

}  // namespace tokura::kernels
