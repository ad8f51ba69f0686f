#include "client-lib/src/model_profiles.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

constexpr size_t kLoggedMax = 256;

// Empty when the group's profile is of such layers.
std::string Difference(const kernels::ProfileGroup& profile, const LayerGroup& group,
                       RopeState rope) {
  if (static_cast<uint8_t>(profile.attention) != static_cast<uint8_t>(group.kind)) {
    return "kind of attention";
  }
  if (profile.window != group.window) {
    return absl::StrCat("window, ", profile.window, " and ", group.window);
  }
  const bool same_layers = std::equal(
      profile.layers.begin(), profile.layers.end(), group.layers.begin(), group.layers.end(),
      [](const kernels::ProfileLayer& layer, uint32_t index) { return layer.index == index; });
  if (!same_layers) {
    return absl::StrCat("layers (", profile.layers.size(), " and ", group.layers.size(), ")");
  }
  if (profile.kv_heads != group.kv_heads) {
    return absl::StrCat("KV heads, ", profile.kv_heads, " and ", group.kv_heads);
  }
  if (profile.k_head_dim != group.k_head_dim || profile.v_head_dim != group.v_head_dim) {
    return absl::StrCat("head size, ", profile.k_head_dim, " and ", group.k_head_dim);
  }
  if (profile.rope.kind != kernels::RopeKind::kNone && rope != RopeState::kPost) {
    return "RoPE, which the namespace's keys are without";
  }
  return "";
}

}  // namespace

absl::Status CheckProfileFits(const kernels::ProfileData& profile, const NamespaceSpec& spec) {
  if (profile.model != spec.model) {
    return absl::FailedPreconditionError(absl::StrCat("it is of ", profile.model));
  }
  if (profile.groups.size() != spec.groups.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it has ", profile.groups.size(), " layer groups, the namespace has ", spec.groups.size()));
  }
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    const std::string difference = Difference(profile.groups[g], spec.groups[g], spec.rope);
    if (!difference.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("its layer group ", g, " and the namespace's differ in ", difference));
    }
  }
  return absl::OkStatus();
}

ModelProfiles::ModelProfiles(std::shared_ptr<const kernels::ProfileStore> store,
                             const ClientMetrics& metrics)
    : store_(std::move(store)), metrics_(metrics) {
  for (const auto& profile : store_->profiles()) {
    Log(LogLevel::kInfo, "client", "profile",
        {{"id", kernels::ProfileIdText(profile->id())}, {"model", profile->data().model}});
  }
}

absl::StatusOr<uint64_t> ModelProfiles::Choose(const NamespaceSpec& spec) const {
  std::string why;
  for (const auto& profile : store_->profiles()) {
    const absl::Status fits = CheckProfileFits(profile->data(), spec);
    if (fits.ok()) {
      return profile->id();
    }
    if (profile->data().model == spec.model) {
      absl::StrAppend(&why, "; ", kernels::ProfileIdText(profile->id()), ": ", fits.message());
    }
  }
  return absl::NotFoundError(absl::StrCat("none of ", store_->profiles().size(),
                                          " model profiles here fits model ", spec.model, why));
}

void ModelProfiles::CountMissing(uint64_t id, const std::string& node, const absl::Status& why) {
  metrics_.missing_profile->Increment();
  if (FirstTime(kernels::ProfileIdText(id))) {
    Log(LogLevel::kWarn, "client", "missing_profile",
        {{"profile", kernels::ProfileIdText(id)}, {"node", node}, {"why", why.message()}});
  }
}

void ModelProfiles::CountPolicyUnusable(const std::string& model, const std::string& codec,
                                        const absl::Status& why) {
  metrics_.policy_codec_unusable->Increment();
  if (FirstTime(absl::StrCat(codec, " ", model))) {
    Log(LogLevel::kWarn, "client", "policy_codec_unusable",
        {{"model", model}, {"codec", codec}, {"why", why.message()}});
  }
}

bool ModelProfiles::FirstTime(const std::string& what) {
  return logged_.size() < kLoggedMax && logged_.insert(what).second;
}

}  // namespace tokura
