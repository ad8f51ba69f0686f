#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"

namespace tokura::cli {

// Rows lookup/{64,1024,16384}/index{1e5,1e6,1e7}: a client that asks a coordinator process for that
// many keys, next to Redis with the same keys (to 1e6); below each of them, …/server and
// …/server/key as the coordinator counts. Rows lookup/rate/clients4, lookup/inventory1e6 and
// lookup/memory/index{1e5,2e5,5e5,…,1e7}. Every answer is checked, and a hole in a chain is looked
// for. Starts tokura-coordinator, which is beside this program, and redis-server where it is
// installed. Statuses: see Bench.
absl::StatusOr<std::vector<BenchRow>> BenchLookup(const BenchOptions& options);

}  // namespace tokura::cli
