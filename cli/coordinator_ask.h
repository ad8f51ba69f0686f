#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time.h"
#include "proto/cluster.pb.h"

namespace tokura::cli {

// Ask the first of `coordinators` ("host:port") that answers which nodes it knows. Several are
// asked again and again until one answers; a single one that is not there ends it at once. Blocks
// at most `timeout`, shared by all of them. INVALID_ARGUMENT: an address; UNAVAILABLE or the last
// coordinator's own status: nobody answered, and why.
absl::StatusOr<proto::NodesReply> AskForNodes(const std::vector<std::string>& coordinators,
                                              Duration timeout);

// Wait until a coordinator has each of these nodes as a member that is up and whose blocks it all
// knows. DEADLINE_EXCEEDED says what is missing.
absl::Status WaitForNodes(const std::string& coordinator, const std::vector<std::string>& nodes,
                          Duration timeout = std::chrono::seconds(15));

}  // namespace tokura::cli
