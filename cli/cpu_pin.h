#pragma once

#include <map>
#include <memory>
#include <vector>

#include <sched.h>
#include <sys/types.h>

#include "absl/status/statusor.h"

namespace tokura::cli {

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

// The last CPU for servers that are measured, the others for this process, their client; where
// there is but one, they share it. Otherwise the kernel puts client and server on one CPU now and
// then while another is idle, and what is measured is its choice. Until this object is destroyed.
class CpuSplit {
 public:
  // As CpuPin::Create; UNAVAILABLE too when the system does not say which CPUs there are.
  static absl::StatusOr<std::unique_ptr<CpuSplit>> Create(const std::vector<pid_t>& servers);

 private:
  CpuSplit() = default;
  std::vector<std::unique_ptr<CpuPin>> pins_;
};

}  // namespace tokura::cli
