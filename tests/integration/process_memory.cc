#include "tests/integration/process_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "common/check.h"

namespace tokura::integration {

ProcessMemory::ProcessMemory(pid_t pid)
    : pid_(std::to_string(pid)), fd_(open(("/proc/" + pid_ + "/mem").c_str(), O_RDWR)) {}

ProcessMemory::~ProcessMemory() {
  close(fd_);
}

size_t ProcessMemory::Flip(std::span<const std::byte> pattern) const {
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

size_t ProcessMemory::FlipIn(uint64_t begin, uint64_t end,
                             std::span<const std::byte> pattern) const {
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

}  // namespace tokura::integration
