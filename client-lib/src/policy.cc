#include "client-lib/src/policy.h"

#include <algorithm>

#include "client-lib/src/cluster_map.h"
#include "kernels/codec.h"
#include "proto/policy_match.h"

namespace tokura {
namespace {

const proto::PolicyRule* MaybeRule(const CoreContext& core, const NamespaceSpec& spec) {
  return core.maybe_cluster == nullptr
             ? nullptr
             : MatchPolicy(core.maybe_cluster->map.state().rules(), {spec.tenant, spec.model});
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

std::string IngestCodec(const CoreContext& core, const NamespaceSpec& spec) {
  const proto::PolicyRule* maybe_rule = MaybeRule(core, spec);
  // A newer policy may name a codec that this software does not know.
  const bool usable = maybe_rule != nullptr && !maybe_rule->ingest_codec().empty() &&
                      kernels::FindCodec(maybe_rule->ingest_codec()).ok();
  return usable ? maybe_rule->ingest_codec() : core.options.ingest_codec;
}

uint64_t TtlUs(const CoreContext& core, const NamespaceSpec& spec) {
  const proto::PolicyRule* maybe_rule = MaybeRule(core, spec);
  return maybe_rule == nullptr ? 0 : maybe_rule->ttl_us();
}

}  // namespace tokura
