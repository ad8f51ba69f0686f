#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/statusor.h"
#include "common/time.h"

namespace tokura::cli {

// A program started by this one, its standard output read through a pipe. It is killed when this
// object is destroyed, and when this process dies. Thread-compatible.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> command;  // path of the program, then its arguments
    std::string error_path;            // its standard error is appended here; empty: ours
  };
  // UNAVAILABLE: no process or pipe could be made. A program that cannot be executed ends with 127.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Options& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Wait for its next line of output, without the newline. DEADLINE_EXCEEDED: none came in time;
  // UNAVAILABLE: its output has ended.
  absl::StatusOr<std::string> ReadLine(Duration timeout);
  struct End {
    int exit_code = 0;   // 128 + number when a signal ended it
    std::string output;  // what ReadLine has not returned
  };
  // Wait until its output ends and reap it. DEADLINE_EXCEEDED: it runs on.
  absl::StatusOr<End> Wait(Duration timeout);
  // Nothing happens when it has been reaped.
  void Signal(int number);

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}
  // Append what the pipe has. False when the output has ended. DEADLINE_EXCEEDED after `deadline`.
  absl::StatusOr<bool> ReadMore(TimePoint deadline);
  int Reap();

  pid_t pid_;   // 0 once reaped
  int output_;  // read end of its standard output
  std::string unread_;
};

}  // namespace tokura::cli
