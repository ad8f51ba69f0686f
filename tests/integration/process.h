#pragma once

// Real processes for tests: start, signal, wait, and conditions that are polled until a deadline.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/time.h"

namespace tokura::integration {

// Times as these programs were built: sanitizers make everything slower.
inline Duration Scaled(Duration duration) {
  return duration * TOKURA_TIME_SCALE;
}

// How long a fault lasts that has to be noticed. The programs notice by the clock, whatever they
// were built with; only what they do about it is slower.
inline Duration Lasting(Duration duration) {
  return TOKURA_TIME_SCALE > 1 ? 2 * duration : duration;
}

// What a sanitizer may keep of memory that was freed: AddressSanitizer's quarantine.
inline constexpr uint64_t kKeptBySanitizerBytes =
    TOKURA_TIME_SCALE > 1 ? uint64_t{256} << 20 : uint64_t{0};

// Poll `condition` every few milliseconds. False: it did not hold within `limit`, scaled.
bool WaitFor(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(20));

// A child process. Killed when destroyed.
class ChildProcess {
 public:
  // Files for its output; empty: this process's.
  struct Output {
    std::string out_path;
    std::string error_path;
  };
  // `arguments[0]` is the program's path.
  explicit ChildProcess(const std::vector<std::string>& arguments, const Output& output);
  explicit ChildProcess(const std::vector<std::string>& arguments)
      : ChildProcess(arguments, Output{}) {}
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number);
  // SIGSTOP, and wait until the system says that it stopped.
  void Stop();
  bool stopped();
  // Whether it still runs after `time`, which is not scaled.
  bool RunsFor(Duration time);
  // What waitpid says once it has ended; empty when it still runs after `limit`, scaled.
  std::optional<int> WaitForEnd(Duration limit = std::chrono::seconds(20));
  // Resident memory in bytes.
  uint64_t ResidentBytes() const;

 private:
  bool Reap();

  pid_t pid_ = -1;
  std::optional<int> ended_;
};

// NAME=VALUE lines of a file; empty while it does not exist.
std::map<std::string, std::string> ReadPorts(const std::string& path);

}  // namespace tokura::integration
