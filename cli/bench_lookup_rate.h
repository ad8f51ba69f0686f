#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"
#include "cli/bench_lookup_bed.h"
#include "common/time.h"

namespace tokura::cli {

inline constexpr char kLookupRateName[] = "lookup/rate/clients4";

// Measure for about `time`, but at least a second, how many lookups of 1,024 keys a coordinator
// answers on one core when four clients always have some under way: that row, and …/server_cores,
// the processor time that the coordinator took of it; 1: all of its core. Every answer is checked.
// DATA_LOSS: one is wrong; UNAVAILABLE: the coordinator cannot be pinned.
absl::StatusOr<std::vector<BenchRow>> MeasureLookupRate(LookupBed& bed, Duration time);

}  // namespace tokura::cli
