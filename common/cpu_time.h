#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "common/time.h"

namespace tokura {

// CPU time (user and system, all threads) of process `process` so far; 0 is this process. For
// accounting in benchmarks, never for deadlines. Thread-safe. NOT_FOUND: there is no such process.
absl::StatusOr<Duration> ProcessCpuTime(pid_t process);

// CPU time of the calling thread so far: what it worked, without the time in which the machine ran
// others. For metrics and benchmarks, never for deadlines.
Duration ThreadCpuTime();

}  // namespace tokura
