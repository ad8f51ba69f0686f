#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tokura {

// How much memory this process can have before the system ends it.
struct MemoryLimit {
  uint64_t bytes = 0;
  std::string source;  // the file that says so
};

// The smallest of the memory that the machine has to give now and the limits of the control groups
// that this process is in, versions 1 and 2. Nothing when the system does not say. Files are looked
// for under `root`, which tests set. May block for the read of a few small files of the kernel.
std::optional<MemoryLimit> FindMemoryLimit(const std::string& root = "");

// RESOURCE_EXHAUSTED: `bytes` do not fit below the limit that FindMemoryLimit finds; the message
// names both and the file.
absl::Status CheckMemoryLimit(uint64_t bytes, const std::string& root = "");

}  // namespace tokura
