#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tokura {

// All bytes of a file. NOT_FOUND: there is none; UNAVAILABLE: it cannot be read (a directory, no
// permission); INVALID_ARGUMENT: it has more than `bytes_max` bytes, of which no more than a piece
// beyond that is read. Every message begins with the path. Thread-safe.
absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path, uint64_t bytes_max);

}  // namespace tokura
