#include "tests/integration/process_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
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
    // AddressSanitizer's shadow takes terabytes of addresses, and holds no data.
    constexpr uint64_t kMappingMax = uint64_t{1} << 32;
    if (read && end - begin <= kMappingMax && std::string(rights).starts_with("rw")) {
      flipped += FlipIn(begin, end, pattern);
    }
  }
  return flipped;
}

size_t ProcessMemory::FlipIn(uint64_t begin, uint64_t end,
                             std::span<const std::byte> pattern) const {
  constexpr size_t kChunk = size_t{4} << 20;
  size_t flipped = 0;
  std::vector<std::byte> bytes(kChunk + pattern.size() - 1);
  for (uint64_t at = begin; at < end; at += kChunk) {
    const ssize_t count = pread(fd_, bytes.data(), std::min<uint64_t>(bytes.size(), end - at),
                                static_cast<off_t>(at));
    const std::byte* from = bytes.data();
    const std::byte* const last = from + std::max<ssize_t>(count, 0);
    while (const auto* hit = static_cast<const std::byte*>(
               memmem(from, static_cast<size_t>(last - from), pattern.data(), pattern.size()))) {
      const std::byte changed = *hit ^ std::byte{0x10};
      const auto place = static_cast<off_t>(at) + (hit - bytes.data());
      flipped += pwrite(fd_, &changed, 1, place) == 1 ? 1 : 0;
      from = hit + 1;
    }
  }
  return flipped;
}

}  // namespace tokura::integration
