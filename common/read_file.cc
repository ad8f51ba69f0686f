#include "common/read_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tokura {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path, uint64_t bytes_max) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    const int error = errno;
    const std::string what = absl::StrCat(path, ": ", std::strerror(error));
    return error == ENOENT ? absl::NotFoundError(what) : absl::UnavailableError(what);
  }
  std::vector<std::byte> bytes;
  size_t got = 0;
  do {
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    got = std::fread(bytes.data() + before, 1, kPiece, file.get());
    bytes.resize(before + got);
    if (bytes.size() > bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": more than ", bytes_max, " bytes"));
    }
  } while (got > 0);
  if (std::ferror(file.get()) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return bytes;
}

}  // namespace tokura
