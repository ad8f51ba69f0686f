#pragma once

// Many seeds, shared by several processes.

#include <cstdint>
#include <functional>

#include "tests/sim/cluster_sim.h"

namespace tokura::sim {

inline constexpr int64_t kSimJobsMax = 64;

struct SimJobs {
  ClusterSimOptions options;  // but for the seed
  uint64_t first_seed = 1;
  int64_t seeds = 1;
  int64_t jobs = 1;  // processes, 1 to kSimJobsMax
  // Seeds are left out once so many have gone wrong.
  uint64_t failures_max = UINT64_MAX;
  // Called after each run, in the process that ran it, with its seed; may print.
  std::function<void(uint64_t seed, const ClusterSimResult& result)> on_result;
};

struct SimJobsResult {
  ClusterSimCounts counts;
  uint64_t failed = 0;     // seeds that went wrong
  uint64_t first_bad = 0;  // the lowest of them; 0: none
  uint64_t errors = 0;     // lines logged as errors
};

// Run every seed. Each job is a process of its own, so that a broken invariant, which ends it,
// costs one process and is told with its seed on standard output. Call it before threads start.
SimJobsResult RunSimJobs(const SimJobs& jobs);

}  // namespace tokura::sim
