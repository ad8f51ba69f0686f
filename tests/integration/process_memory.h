#pragma once

// The memory of another process, for tests that damage it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <sys/types.h>

namespace tokura::integration {

// Writable memory of another process; needs its user's rights, nothing more.
class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t pid);
  ~ProcessMemory();
  ProcessMemory(const ProcessMemory&) = delete;
  ProcessMemory& operator=(const ProcessMemory&) = delete;

  // Flip one bit in every place that holds `pattern`; how many there were.
  size_t Flip(std::span<const std::byte> pattern) const;

 private:
  size_t FlipIn(uint64_t begin, uint64_t end, std::span<const std::byte> pattern) const;

  const std::string pid_;
  const int fd_;
};

}  // namespace tokura::integration
