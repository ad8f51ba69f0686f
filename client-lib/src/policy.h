#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client-lib/src/acceptance.h"
#include "client-lib/src/operation.h"
#include "kernels/part.h"
#include "proto/namespace.h"

namespace tokura {

// What the cluster's policy says of a namespace, joined with what caller and client want. Without a
// coordinator, and where no rule matches, the client's own options hold. Core's executor.

// The caller's max_error, cut to the error budget, which also holds where the caller states none.
// Forms judged by their own keys count only where client and policy both allow them.
Acceptance AcceptanceOf(const CoreContext& core, const NamespaceSpec& spec,
                        const AcceptOptions& accept);
// How the blocks of a put are encoded.
struct Encoding {
  std::string codec;
  uint64_t profile = 0;  // of core.profiles; 0: none fits
  kernels::EncodeOptions::Record record = kernels::EncodeOptions::Record::kMeasure;
};
// Of a put of these layer groups that names `codec`; one that names none takes the policy's, or the
// client's own where that is unknown here or needs a model profile and none fits. NOT_FOUND:
// unknown codec; FAILED_PRECONDITION: it needs a profile, and none fits; UNIMPLEMENTED: it cannot
// code this dtype.
absl::StatusOr<Encoding> ChooseEncoding(const CoreContext& core, const Namespace& ns,
                                        uint32_t group_mask,
                                        const std::optional<std::string>& codec);
// How long nodes keep a put; 0: no limit.
uint64_t TtlUs(const CoreContext& core, const NamespaceSpec& spec);

}  // namespace tokura
