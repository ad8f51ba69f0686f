#pragma once

// What parts need of model profiles. Internal to kernels/.

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kernels/layout.h"
#include "kernels/model_profile.h"
#include "kernels/part.h"
#include "kernels/prefix.h"

namespace tokura::kernels {

// Everything that encoding, or decoding, with any of these codecs takes from a profile.
ModelProfile::Needs EncodersNeeds(const PartShape& shape, std::span<const CodecPair> codecs);
ModelProfile::Needs DecodersNeeds(const PartShape& shape, std::span<const CodecPair> codecs);

// Whether encoding needs a profile, or can use one.
ProfileUse EncodersUse(std::span<const CodecPair> codecs);

// Whether a layer of the part cannot be decoded without the profile that the header names.
bool NeedsProfileToDecode(const Prefix& prefix);

// FAILED_PRECONDITION with the id: `maybe_profiles` is null or has no such profile.
absl::StatusOr<std::shared_ptr<const ModelProfile>> FindProfile(const ProfileSource* maybe_profiles,
                                                                uint64_t id);

struct LayerHead {
  uint32_t layer = 0;  // of the part
  uint32_t head = 0;   // of the part
};
ProfileSlot SlotOf(PartId part, const PartShape& shape, LayerHead at);
// Empty without a profile.
HeadProfile HeadProfileOf(const ModelProfile* maybe_profile, PartId part, const PartShape& shape,
                          LayerHead at);

}  // namespace tokura::kernels
