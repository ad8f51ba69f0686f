// Bits that flip in a node's memory, as seen by clients.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/check.h"
#include "tests/integration/node_fixture.h"

namespace tokura::integration {
namespace {

// Writable memory of another process; needs its user's rights, nothing more.
class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t pid)
      : pid_(std::to_string(pid)), fd_(open(("/proc/" + pid_ + "/mem").c_str(), O_RDWR)) {}
  ~ProcessMemory() { close(fd_); }
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  // Flip one bit in every place that holds `pattern`; how many there were.
  size_t Flip(std::span<const std::byte> pattern) const {
    TOKURA_CHECK(fd_ >= 0);
    std::ifstream maps("/proc/" + pid_ + "/maps");
    size_t flipped = 0;
    for (std::string line; std::getline(maps, line);) {
      uint64_t begin = 0, end = 0;
      char rights[5] = "";
      const bool read = std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) == 3;
      if (read && std::string(rights).starts_with("rw")) {
        flipped += FlipIn(begin, end, pattern);
      }
    }
    return flipped;
  }

 private:
  size_t FlipIn(uint64_t begin, uint64_t end, std::span<const std::byte> pattern) const {
    constexpr size_t kChunk = size_t{4} << 20;
    size_t flipped = 0;
    std::vector<std::byte> bytes(kChunk + pattern.size());
    for (uint64_t at = begin; at < end; at += kChunk) {
      const ssize_t count = pread(fd_, bytes.data(), std::min<uint64_t>(bytes.size(), end - at),
                                  static_cast<off_t>(at));
      const auto last = bytes.begin() + std::max<ssize_t>(count, 0);
      auto hit = std::search(bytes.begin(), last, pattern.begin(), pattern.end());
      while (hit != last) {
        const std::byte changed = *hit ^ std::byte{0x10};
        const auto place = static_cast<off_t>(at) + (hit - bytes.begin());
        flipped += pwrite(fd_, &changed, 1, place) == 1 ? 1 : 0;
        hit = std::search(hit + 1, last, pattern.begin(), pattern.end());
      }
    }
    return flipped;
  }

  const std::string pid_;
  const int fd_;
};

TEST_F(NodeTest, FlippedBitInStoredMemoryIsAMiss) {
  constexpr uint32_t kBlocks = 8;
  constexpr uint32_t kDamaged = 5;
  NodeUnderTest node({}, NodeLogs::kErrors);
  auto client = Connect({node.data()});
  KvMemory source(kBlocks), target(kBlocks);
  source.Fill(1);
  target.Clear();
  ASSERT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
  const auto space = *client->OpenNamespace(TestSpace());
  const auto match = client->Lookup(space, MakeChain(*space, 1, kBlocks));
  ASSERT_TRUE(match.ok());
  ASSERT_EQ(match->blocks(), kBlocks);
  const ProcessMemory memory(node.process().pid());
  // Half a token's keys: together in every order that a raw slab could have.
  const auto row = source.KeyRow(2, kDamaged * kBlockTokens + 9).first(64);
  ASSERT_GE(memory.Flip(row), 1u) << "the stored bytes were not found";
  GetOptions options;
  options.deadline = Scaled(std::chrono::seconds(10));
  const GetResult result = client->Get(space, *match, target.View(), options);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    if (i == kDamaged) {
      EXPECT_TRUE(absl::IsDataLoss(result.blocks[i]) || absl::IsNotFound(result.blocks[i]))
          << result.blocks[i];
    } else {
      EXPECT_TRUE(result.blocks[i].ok()) << result.blocks[i];
      EXPECT_TRUE(target.SameData(source, i, 1)) << "block " << i;
    }
  }
  EXPECT_TRUE(target.CanariesIntact());
}

}  // namespace
}  // namespace tokura::integration
