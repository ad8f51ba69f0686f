#pragma once

// The requests that move no payload: answered at once, from the store and the lease table.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/server_context.h"
#include "common/net/frame.h"
#include "common/time.h"

namespace google::protobuf {
class MessageLite;
}

namespace tokura::node {

// Who asks, and when.
struct Caller {
  const std::string& tenant;
  uint64_t connection = 0;
  TimePoint now;
};

using ReplyBody = std::unique_ptr<google::protobuf::MessageLite>;

// Answer LOOKUP, ACQUIRE, RENEW, RELEASE, REMOVE or STAT. INVALID_ARGUMENT: the body does not parse
// or breaks a rule; RESOURCE_EXHAUSTED: the node holds as many leases as it may; UNIMPLEMENTED:
// another op.
absl::StatusOr<ReplyBody> AnswerSimple(ServerContext& context, const Caller& caller, net::Op op,
                                       std::span<const std::byte> body);

}  // namespace tokura::node
