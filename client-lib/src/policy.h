#pragma once

#include <cstdint>
#include <string>

#include "client-lib/src/acceptance.h"
#include "client-lib/src/operation.h"
#include "proto/namespace.h"

namespace tokura {

// What the cluster's policy says of a namespace, joined with what caller and client want. Without a
// coordinator, and where no rule matches, the client's own options hold. Core's executor.

// The caller's max_error, cut to the error budget, which also holds where the caller states none.
// Forms judged by their own keys count only where client and policy both allow them.
Acceptance AcceptanceOf(const CoreContext& core, const NamespaceSpec& spec,
                        const AcceptOptions& accept);
// The codec of puts that do not name one.
std::string IngestCodec(const CoreContext& core, const NamespaceSpec& spec);
// How long nodes keep a put; 0: no limit.
uint64_t TtlUs(const CoreContext& core, const NamespaceSpec& spec);

}  // namespace tokura
