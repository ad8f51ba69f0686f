#include "common/read_file.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura {
namespace {

std::string Written(size_t bytes) {
  const std::string path = testing::TempDir() + "read_file_test";
  std::ofstream(path, std::ios::binary) << std::string(bytes, 'x');
  return path;
}

TEST(ReadFile, GivesAllBytesOfAnySizeUpToTheLimit) {
  constexpr size_t kPiece = size_t{1} << 20;
  for (const size_t bytes : {size_t{0}, size_t{1}, kPiece - 1, kPiece, kPiece + 1, 3 * kPiece}) {
    const auto read = ReadFile(Written(bytes), bytes);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, std::vector<std::byte>(bytes, std::byte{'x'}));
  }
}

TEST(ReadFile, SaysWhatIsWrongAndWithWhichFile) {
  const std::string path = Written(11);
  const auto large = ReadFile(path, 10);
  EXPECT_EQ(large.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(large.status().message()), testing::StartsWith(path + ": more than 10"));
  const auto none = ReadFile(path + ".none", 10);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), testing::StartsWith(path + ".none: "));
  EXPECT_EQ(ReadFile(testing::TempDir(), 10).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tokura
