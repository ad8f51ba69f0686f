#include "common/port_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace tokura {

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

OwnPortFile::OwnPortFile(std::string path) : path_(std::move(path)) {
  Remove();
}

OwnPortFile::~OwnPortFile() {
  Remove();
}

void OwnPortFile::Remove() {
  if (!path_.empty() && std::remove(path_.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    Log(LogLevel::kWarn, "port_file", "not_removed",
        {{"path", path_}, {"reason", strerror(errno)}});
  }
}

absl::Status OwnPortFile::Write(
    const std::vector<std::pair<std::string_view, std::string>>& ports) {
  if (path_.empty()) {
    return absl::OkStatus();
  }
  // Beside the target, so that the rename stays within one file system.
  const std::string temporary = absl::StrCat(path_, ".", getpid());
  {
    std::ofstream out(temporary, std::ios::trunc);
    for (const auto& [name, address] : ports) {
      out << name << '=' << address << '\n';
    }
    out.close();
    if (!out) {
      std::remove(temporary.c_str());
      return absl::UnavailableError(absl::StrCat("cannot write ", temporary));
    }
  }
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("cannot write ", path_, ": ", strerror(error)));
  }
  return absl::OkStatus();
}

}  // namespace tokura
