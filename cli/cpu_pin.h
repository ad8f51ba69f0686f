#pragma once

#include <map>
#include <memory>
#include <vector>

#include <sched.h>
#include <sys/types.h>

#include "absl/status/statusor.h"

namespace tokura::cli {

// The CPUs that this thread may run on, in order; empty when the system does not say.
std::vector<int> AllowedCpus();

// Keeps all threads that a process has now on some CPUs, until this object is destroyed. Threads
// that they start meanwhile inherit the CPUs, and keep them. Thread-compatible.
class CpuPin {
 public:
  // `cpus` is not empty. UNAVAILABLE: no such process, or not this user's to move.
  static absl::StatusOr<std::unique_ptr<CpuPin>> Create(pid_t process,
                                                        const std::vector<int>& cpus);
  ~CpuPin();
  CpuPin(const CpuPin&) = delete;
  CpuPin& operator=(const CpuPin&) = delete;

 private:
  CpuPin() = default;
  std::map<pid_t, cpu_set_t> before_;  // by thread
};

}  // namespace tokura::cli
