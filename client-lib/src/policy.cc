#include "client-lib/src/policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client-lib/src/cluster_map.h"
#include "common/status_macros.h"
#include "kernels/codec.h"
#include "proto/policy_match.h"

namespace tokura {
namespace {

const proto::PolicyRule* MaybeRule(const CoreContext& core, const NamespaceSpec& spec) {
  return core.maybe_cluster == nullptr
             ? nullptr
             : MatchPolicy(core.maybe_cluster->map.state().rules(), {spec.tenant, spec.model});
}

absl::StatusOr<Encoding> EncodingWith(const CoreContext& core, const Namespace& ns,
                                      uint32_t group_mask, const std::string& codec) {
  using Record = kernels::EncodeOptions::Record;
  TOKURA_ASSIGN_OR_RETURN(const kernels::CodecPreset preset, kernels::FindCodec(codec));
  const absl::StatusOr<uint64_t> profile = core.profiles.Choose(ns.spec());
  kernels::EncodeOptions options;
  options.codec = codec;
  options.record = preset.k.raw() && preset.v.raw() ? Record::kSkip : Record::kMeasure;
  options.profiles = &core.profiles.store();
  options.profile = profile.value_or(0);
  for (uint8_t group = 0; group < ns.spec().groups.size(); ++group) {
    if ((group_mask & (1u << group)) == 0) {
      continue;
    }
    // A profile that fits has all KV heads, so that what holds for one shard holds for all.
    const absl::Status usable = kernels::CheckProfileFor({group, 0}, ns.Shape(group), options);
    if (absl::IsFailedPrecondition(usable) && !profile.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("codec ", codec, " needs a model profile: ", profile.status().message()));
    }
    TOKURA_RETURN_IF_ERROR(usable);
  }
  return Encoding{codec, options.profile, options.record};
}

}  // namespace

Acceptance AcceptanceOf(const CoreContext& core, const NamespaceSpec& spec,
                        const AcceptOptions& accept) {
  Acceptance acceptance{accept.max_error, accept.allow_summary, core.options.accept_proxy_error};
  const proto::PolicyRule* maybe_rule = MaybeRule(core, spec);
  if (maybe_rule == nullptr) {
    return acceptance;
  }
  if (maybe_rule->has_max_error()) {
    acceptance.max_error =
        std::min(acceptance.max_error.value_or(maybe_rule->max_error()), maybe_rule->max_error());
  }
  acceptance.accept_proxy_error = acceptance.accept_proxy_error && maybe_rule->accept_proxy_error();
  return acceptance;
}

absl::StatusOr<Encoding> ChooseEncoding(const CoreContext& core, const Namespace& ns,
                                        uint32_t group_mask,
                                        const std::optional<std::string>& codec) {
  const proto::PolicyRule* maybe_rule = MaybeRule(core, ns.spec());
  if (codec || maybe_rule == nullptr || maybe_rule->ingest_codec().empty()) {
    return EncodingWith(core, ns, group_mask, codec.value_or(core.options.ingest_codec));
  }
  // A newer policy may name a codec that this software does not know, and a policy for all workers
  // one that needs a profile that this one was not given.
  const std::string& policys = maybe_rule->ingest_codec();
  absl::StatusOr<Encoding> encoding = EncodingWith(core, ns, group_mask, policys);
  if (absl::IsNotFound(encoding.status()) || absl::IsFailedPrecondition(encoding.status())) {
    core.profiles.CountPolicyUnusable(ns.spec().model, policys, encoding.status());
    return EncodingWith(core, ns, group_mask, core.options.ingest_codec);
  }
  return encoding;
}

uint64_t TtlUs(const CoreContext& core, const NamespaceSpec& spec) {
  const proto::PolicyRule* maybe_rule = MaybeRule(core, spec);
  return maybe_rule == nullptr ? 0 : maybe_rule->ttl_us();
}

}  // namespace tokura
