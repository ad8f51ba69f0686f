#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/net/transport.h"

namespace tokura::node {

// Write NAME=HOST:PORT lines into `path`, replacing it at once: a reader sees the whole file or
// none. UNAVAILABLE: it cannot be written (the message says why).
absl::Status WritePortFile(const std::string& path,
                           const std::vector<std::pair<std::string, net::Address>>& ports);

}  // namespace tokura::node
