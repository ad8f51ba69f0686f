#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/kvcap.h"
#include "kernels/profile.h"

namespace tokura::cli {

struct CaptureProfileOptions {
  std::string model;                            // empty: the captures'
  uint32_t exemplars = kernels::kExemplarsMax;  // of each head, where there are so many queries
  uint32_t candidates = 512;  // queries of each head that exemplars are chosen from
};

// The profile of the model that the captures are of; its groups are those of CaptureNamespace.
// Captures weigh alike, and one without queries counts for the statistics of K and V only. Equal
// arguments give equal profiles. INVALID_ARGUMENT: no capture, captures of different models, or
// none with queries.
absl::StatusOr<kernels::ProfileData> ProfileOfCaptures(
    std::span<const Capture> captures, const CaptureProfileOptions& options,
    const std::function<void(std::string_view)>& progress);

}  // namespace tokura::cli
