#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tokura {

// The addresses of a server, "host:port" each, as --port-file holds them: one NAME=ADDRESS a line.
struct PortFile {
  std::string data;   // where clients begin: the coordinator where there is one, else the node
  std::string node;   // the cache node
  std::string admin;  // HTTP
};
// INVALID_ARGUMENT: a line without '=', or no data=. A missing node= is the data address; other
// names belong to other versions.
absl::StatusOr<PortFile> ParsePortFile(const std::string& text);

// As ParsePortFile; NOT_FOUND: no such file.
absl::StatusOr<PortFile> ReadPortFile(const std::string& path);

// The port file that this process writes while it serves. What an earlier process left is removed
// before the start, and the file again at the end, so that a reader never finds the addresses of a
// process that is gone (unless that was killed). Thread-compatible; may block on the file system.
class OwnPortFile {
 public:
  // An empty path: there is no file, and nothing is done.
  explicit OwnPortFile(std::string path);
  OwnPortFile(const OwnPortFile&) = delete;
  OwnPortFile& operator=(const OwnPortFile&) = delete;
  ~OwnPortFile();

  // Write (name, address) lines, at once: a reader sees the whole file or none. UNAVAILABLE: it
  // cannot be written (the message says why).
  absl::Status Write(const std::vector<std::pair<std::string_view, std::string>>& ports);

 private:
  void Remove();

  const std::string path_;
};

}  // namespace tokura
