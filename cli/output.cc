#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <sys/stat.h>

#include "absl/strings/str_cat.h"

namespace tokura::cli {

void Output::Print(std::string_view text) const {
  if (json_path_ != "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
}

absl::Status Output::WriteJson(const Json& result) const {
  if (json_path_.empty()) {
    return absl::OkStatus();
  }
  // Names and messages may hold bytes that are not UTF-8 (a model's name in a capture): replaced,
  // where dump() would throw.
  const std::string text = result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (json_path_ != "-") {
    return ReplaceFile(json_path_, text);
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot write to stdout: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

int Fail(std::string_view command, const absl::Status& status) {
  const std::string line =
      absl::StrCat("tokura ", std::string(command), ": ", status.message(), "\n");
  std::fputs(line.c_str(), stderr);
  return kExitFailed;
}

absl::Status ReplaceFile(const std::string& path, std::string_view contents) {
  // A device or pipe (/dev/stderr, a FIFO) is written to, never replaced by a file.
  struct stat existing {};
  const bool special = stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode);
  const std::string target = special ? path : path + ".partial";
  const auto failed = [&] {
    const int error = errno;
    if (!special) {
      std::remove(target.c_str());
    }
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(error)));
  };
  std::FILE* file = std::fopen(target.c_str(), "wb");
  if (file == nullptr) {
    return failed();
  }
  const bool written = std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || (!special && std::rename(target.c_str(), path.c_str()) != 0)) {
    return failed();
  }
  return absl::OkStatus();
}

void Progress::Update(std::string_view what) {
  const TimePoint now = clock_.Now();
  if (now - last_ < std::chrono::seconds(2)) {
    return;
  }
  last_ = now;
  const std::string line = absl::StrCat("tokura ", command_, ": ", std::string(what), "\n");
  std::fputs(line.c_str(), stderr);
}

}  // namespace tokura::cli
