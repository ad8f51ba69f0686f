#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/frame.h"
#include "coordinator/server_context.h"
#include "coordinator/server_request.h"

namespace tokura::coordinator {

// Answer REGISTER, REPORT or INVENTORY of the node that is `*name`, empty until it has registered
// on this connection. INVALID_ARGUMENT names the field, or says that only nodes ask this.
// NOT_FOUND: the node is to register (again) first. FAILED_PRECONDITION: a higher incarnation of it
// is known. UNAVAILABLE, RESOURCE_EXHAUSTED: not now; ask again later.
absl::StatusOr<ReplyBody> AnswerNode(ServerContext& context, const Caller& caller, net::Op op,
                                     std::span<const std::byte> body, std::string* name);

// The connection on which `name` had registered has closed.
void NodeConnectionClosed(ServerContext& context, const std::string& name, uint64_t connection);

// The lives or the members have changed: forget who is neither, and look at the others anew.
void ReviewNodes(ServerContext& context);

}  // namespace tokura::coordinator
