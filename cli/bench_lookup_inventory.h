#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"
#include "cli/bench_lookup_bed.h"

namespace tokura::cli {

inline constexpr char kLookupInventoryName[] = "lookup/inventory1e6";

// Measure how long a coordinator takes to absorb the full inventory of a node with 1e6 blocks, one
// batch at a time, while lookups of 1,024 keys that others hold go on: that row, and …/p99 and
// …/max of the lookups, and …/turn, the most CPU time that the coordinator spent at a stretch on
// taking in a batch. …/max has in it what the machine did, and a virtual machine counts time that
// its host took away as CPU time, too: kLookupGrowthName tells what comes from growing.
// All of the new blocks that are then looked for must be found. DATA_LOSS: an answer is wrong.
absl::StatusOr<std::vector<BenchRow>> MeasureAbsorption(
    LookupBed& bed, const std::function<void(std::string_view)>& progress);

}  // namespace tokura::cli
