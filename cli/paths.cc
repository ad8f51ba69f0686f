#include "cli/paths.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tokura::cli {
namespace {

namespace fs = std::filesystem;

bool HasCaptures(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "prefix.kvcap", ignored);
}

}  // namespace

std::string ExecutablePath() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return path.string();
}

absl::StatusOr<std::string> DemoDataDirectory(const std::string& given) {
  if (!given.empty()) {
    if (HasCaptures(given)) {
      return given;
    }
    return absl::NotFoundError(
        absl::StrCat(given, " has no prefix.kvcap: --data takes a directory like tests/data/kv"));
  }
  std::error_code ignored;
  for (fs::path start : {fs::path(ExecutablePath()).parent_path(), fs::current_path(ignored)}) {
    for (; start.has_relative_path(); start = start.parent_path()) {
      if (HasCaptures(start / "tests/data/kv")) {
        return (start / "tests/data/kv").string();
      }
    }
  }
  return absl::NotFoundError(
      "found no tests/data/kv above this program or the working directory: give its place with "
      "--data DIR");
}

}  // namespace tokura::cli
