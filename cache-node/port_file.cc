#include "cache-node/port_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tokura::node {

absl::Status WritePortFile(const std::string& path,
                           const std::vector<std::pair<std::string, net::Address>>& ports) {
  // Beside the target, so that the rename stays within one file system.
  const std::string temporary = absl::StrCat(path, ".", getpid());
  {
    std::ofstream out(temporary, std::ios::trunc);
    for (const auto& [name, address] : ports) {
      out << name << '=' << address.ToString() << '\n';
    }
    out.close();
    if (!out) {
      std::remove(temporary.c_str());
      return absl::UnavailableError(absl::StrCat("cannot write ", temporary));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
  }
  return absl::OkStatus();
}

}  // namespace tokura::node
