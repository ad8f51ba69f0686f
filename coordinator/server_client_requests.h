#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "common/net/frame.h"
#include "coordinator/server_context.h"
#include "coordinator/server_request.h"

namespace tokura::coordinator {

// Answer LOCATE, PLAN or NODES. INVALID_ARGUMENT names the field; UNAVAILABLE: there is no cluster
// state yet, or (PLAN) no node to place on; UNIMPLEMENTED: another op.
absl::StatusOr<ReplyBody> AnswerClient(ServerContext& context, const Caller& caller, net::Op op,
                                       std::span<const std::byte> body);

}  // namespace tokura::coordinator
