#include "cli/cpu_pin.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/cpus.h"
#include "common/status_macros.h"

namespace tokura::cli {

absl::StatusOr<std::unique_ptr<CpuPin>> CpuPin::Create(pid_t process,
                                                       const std::vector<int>& cpus) {
  TOKURA_CHECK(!cpus.empty());
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) {
    CPU_SET(cpu, &wanted);
  }
  std::unique_ptr<CpuPin> pin(new CpuPin);
  std::error_code error;
  const std::string directory = absl::StrCat("/proc/", process, "/task");
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    pid_t thread = 0;
    cpu_set_t before;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &thread) ||
        sched_getaffinity(thread, sizeof(before), &before) != 0) {
      continue;  // It has ended meanwhile.
    }
    if (sched_setaffinity(thread, sizeof(wanted), &wanted) != 0 && errno != ESRCH) {
      return absl::UnavailableError(
          absl::StrCat("cannot pin thread ", thread, ": ", std::strerror(errno)));
    }
    pin->before_.emplace(thread, before);
  }
  if (error || pin->before_.empty()) {
    return absl::UnavailableError(absl::StrCat("no threads in ", directory));
  }
  return pin;
}

CpuPin::~CpuPin() {
  for (const auto& [thread, cpus] : before_) {
    sched_setaffinity(thread, sizeof(cpus), &cpus);  // It may have ended, which does no harm.
  }
}

absl::StatusOr<std::unique_ptr<CpuSplit>> CpuSplit::Create(const std::vector<pid_t>& servers) {
  std::vector<int> ours = AllowedCpus();
  if (ours.empty()) {
    return absl::UnavailableError("the system does not say which CPUs there are");
  }
  const int last = ours.back();
  if (ours.size() > 1) {
    ours.pop_back();
  }
  std::unique_ptr<CpuSplit> split(new CpuSplit);
  for (const pid_t server : servers) {
    TOKURA_ASSIGN_OR_RETURN(auto pin, CpuPin::Create(server, {last}));
    split->pins_.push_back(std::move(pin));
  }
  TOKURA_ASSIGN_OR_RETURN(auto pin, CpuPin::Create(getpid(), ours));
  split->pins_.push_back(std::move(pin));
  return split;
}

}  // namespace tokura::cli
