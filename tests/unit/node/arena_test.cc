#include "cache-node/arena.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tokura::node {
namespace {

class ArenaTest : public ::testing::Test {
 protected:
  ArenaTest() : arena_(std::move(Arena::Create(1 << 20).value())) {
    ExtentHeader header;
    header.extent_bytes = 1024;
    header.state = ExtentState::kStored;
    header.payload_bytes = 800;
    arena_->WriteHeader(0, header);
    header = {};
    header.extent_bytes = (1 << 20) - 1024;
    arena_->WriteHeader(1024, header);
  }
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaTest, IsWalkedByItsHeadersAlone) {
  const auto extents = arena_->Walk();
  ASSERT_TRUE(extents.ok());
  ASSERT_EQ(extents->size(), 2u);
  EXPECT_EQ((*extents)[0].header.payload_bytes, 800u);
  EXPECT_EQ((*extents)[1].offset, 1024u);
  EXPECT_EQ((*extents)[1].header.state, ExtentState::kFree);
  EXPECT_EQ(arena_->Payload(0, 800).data(), arena_->bytes().data() + 128);
}

TEST_F(ArenaTest, EveryFlippedBitOfAHeaderIsDetected) {
  for (size_t bit = 0; bit < kExtentHeaderBytes * 8; ++bit) {
    std::byte& byte = arena_->bytes()[1024 + bit / 8];
    byte ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(arena_->Walk().status().code(), absl::StatusCode::kDataLoss) << bit;
    byte ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(arena_->Walk().ok());
}

TEST_F(ArenaTest, ImpossibleSizesAreRefusedEvenWithARightChecksum) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{64}, uint64_t{1000}, uint64_t{1} << 20}) {
    ExtentHeader header;
    header.extent_bytes = bytes;
    arena_->WriteHeader(1024, header);
    EXPECT_EQ(arena_->Walk().status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
  ExtentHeader header;
  header.extent_bytes = 1024;
  header.payload_bytes = 1000;
  arena_->WriteHeader(1024, header);
  EXPECT_EQ(arena_->Walk().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(arena_->ReadHeader(1 << 20).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(arena_->ReadHeader(64).status().code(), absl::StatusCode::kDataLoss);
}

// Pages of [begin, +bytes) that are in memory now.
size_t PresentPages(std::span<std::byte> bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> present(bytes.size() / page);
  EXPECT_EQ(mincore(bytes.data(), bytes.size(), present.data()), 0);
  return static_cast<size_t>(
      std::count_if(present.begin(), present.end(), [](unsigned char c) { return (c & 1) != 0; }));
}

TEST(ArenaCreate, PrefaultTakesEveryPageAtOnce) {
  constexpr uint64_t kBytes = uint64_t{4} << 20;
  const auto lazy = Arena::Create(kBytes);
  const auto ready = Arena::Create(kBytes, Prefault::kYes);
  ASSERT_TRUE(lazy.ok() && ready.ok());
  if (!(*lazy)->huge_pages()) {
    EXPECT_EQ(PresentPages((*lazy)->bytes()), 0u);
  }
  EXPECT_EQ(PresentPages((*ready)->bytes()), kBytes / static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST(ArenaCreate, RefusesWhatTheSystemCannotGive) {
  EXPECT_EQ(Arena::Create(1000).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Arena::Create(uint64_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ArenaCreate, PagesThatTheSystemWouldNotGiveAreRefusedReadably) {
  constexpr uint64_t kLimit = uint64_t{8} << 20;
  const std::string root = ::testing::TempDir() + "arena_limit_" + std::to_string(getpid());
  std::filesystem::create_directories(root + "/proc");
  std::ofstream(root + "/proc/meminfo") << "MemAvailable: " << kLimit / 1024 << " kB\n";
  EXPECT_TRUE(Arena::Create(kLimit / 2, Prefault::kYes, root).ok());
  EXPECT_TRUE(Arena::Create(kLimit, Prefault::kNo, root).ok());
  const auto refused = Arena::Create(kLimit, Prefault::kYes, root);
  if (refused.ok()) {
    EXPECT_TRUE((*refused)->huge_pages()) << "only pages that are set aside fit";
  } else {
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.status().message()),
                ::testing::AllOf(::testing::HasSubstr(root + "/proc/meminfo"),
                                 ::testing::HasSubstr("lower host-bytes")));
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tokura::node
