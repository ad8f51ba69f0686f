#include "cli/port_file.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
namespace tokura::cli {

absl::StatusOr<PortFile> ParsePortFile(const std::string& text) {
  PortFile ports;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("port file: no '=' in '", line, "'"));
    }
    const std::string name = line.substr(0, equals);
    std::string address = line.substr(equals + 1);
    // Other names belong to other versions.
    if (name == "data") {
      ports.data = std::move(address);
    } else if (name == "node") {
      ports.node = std::move(address);
    } else if (name == "admin") {
      ports.admin = std::move(address);
    }
  }
  if (ports.data.empty()) {
    return absl::InvalidArgumentError("port file: no data= line");
  }
  if (ports.node.empty()) {
    ports.node = ports.data;
  }
  return ports;
}

absl::StatusOr<PortFile> ReadPortFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("no port file ", path));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return ParsePortFile(text.str());
}

}  // namespace tokura::cli
