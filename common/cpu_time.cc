#include "common/cpu_time.h"

#include <time.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace tokura {
namespace {
Duration ToDuration(const timespec& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}
}  // namespace

absl::StatusOr<Duration> ProcessCpuTime(pid_t process) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  timespec time = {};
  if ((process != 0 && clock_getcpuclockid(process, &clock) != 0) ||
      clock_gettime(clock, &time) != 0) {
    return absl::NotFoundError(absl::StrCat("no process ", process));
  }
  return ToDuration(time);
}

Duration ThreadCpuTime() {
  timespec time = {};
  TOKURA_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return ToDuration(time);
}

}  // namespace tokura
