#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tokura::cli {

// The addresses of a server, "host:port" each, as --port-file holds them: one NAME=ADDRESS a line.
struct PortFile {
  std::string data;   // where clients begin: the coordinator where there is one, else the node
  std::string node;   // the cache node
  std::string admin;  // HTTP
};
// INVALID_ARGUMENT: a line without '=', or no data=. A missing node= is the data address.
absl::StatusOr<PortFile> ParsePortFile(const std::string& text);

// As ParsePortFile; NOT_FOUND: no such file.
absl::StatusOr<PortFile> ReadPortFile(const std::string& path);

}  // namespace tokura::cli
