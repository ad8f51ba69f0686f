#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"

namespace tokura::cli {

// Rows codec/cpu/{encode,decode,record}/PRESET: raw bytes a second on one core, out of cache, next
// to memcpy of the raw bytes in the same buffers. `record` is encoding with the error record
// measured. Results are verified first. Statuses: see Bench.
absl::StatusOr<std::vector<BenchRow>> BenchCodec(const BenchOptions& options);

}  // namespace tokura::cli
