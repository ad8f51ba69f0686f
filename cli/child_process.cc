#include "cli/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void Execute(char* const* arguments, int output, const char* maybe_error_path) {
  constexpr int kCannotExecute = 127;
  // A parent that dies takes its helpers with it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(output, STDOUT_FILENO) < 0) {
    _exit(kCannotExecute);
  }
  if (maybe_error_path != nullptr) {
    const int error = open(maybe_error_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (error < 0 || dup2(error, STDERR_FILENO) < 0) {
      _exit(kCannotExecute);
    }
  }
  execv(arguments[0], arguments);
  _exit(kCannotExecute);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const Options& options) {
  TOKURA_CHECK(!options.command.empty());
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Failed("no pipe");
  }
  std::vector<std::string> words = options.command;
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const char* maybe_error_path = options.error_path.empty() ? nullptr : options.error_path.c_str();
  const pid_t pid = fork();
  if (pid == 0) {
    Execute(arguments.data(), ends[1], maybe_error_path);
  }
  const absl::Status forked = pid < 0 ? Failed("no new process") : absl::OkStatus();
  close(ends[1]);
  if (!forked.ok()) {
    close(ends[0]);
    return forked;
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, ends[0]));
}

ChildProcess::~ChildProcess() {
  if (pid_ != 0) {
    kill(pid_, SIGKILL);
    Reap();
  }
  close(output_);
}

absl::StatusOr<bool> ChildProcess::ReadMore(TimePoint deadline) {
  for (;;) {
    const Duration left = deadline - SystemClock().Now();
    if (left <= Duration::zero()) {
      return absl::DeadlineExceededError("no answer from the process in time");
    }
    // Rounded up, so that the last wait does not become a busy loop; long ones go in pieces.
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd wait{output_, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(milliseconds, 60'000)));
    if (ready < 0 && errno != EINTR) {
      return Failed("poll");
    }
    if (ready <= 0) {
      continue;
    }
    std::array<char, 4096> piece;
    const ssize_t got = read(output_, piece.data(), piece.size());
    if (got < 0 && errno != EINTR) {
      return Failed("read");
    }
    if (got >= 0) {
      unread_.append(piece.data(), static_cast<size_t>(got));
      return got > 0;
    }
  }
}

absl::StatusOr<std::string> ChildProcess::ReadLine(Duration timeout) {
  const TimePoint deadline = SystemClock().Now() + timeout;
  size_t newline;
  while ((newline = unread_.find('\n')) == std::string::npos) {
    TOKURA_ASSIGN_OR_RETURN(const bool more, ReadMore(deadline));
    if (!more) {
      return absl::UnavailableError("the process has ended");
    }
  }
  std::string line = unread_.substr(0, newline);
  unread_.erase(0, newline + 1);
  return line;
}

absl::StatusOr<ChildProcess::End> ChildProcess::Wait(Duration timeout) {
  const TimePoint deadline = SystemClock().Now() + timeout;
  for (bool more = true; more;) {
    TOKURA_ASSIGN_OR_RETURN(more, ReadMore(deadline));
  }
  End end;
  end.exit_code = Reap();
  end.output = std::exchange(unread_, {});
  return end;
}

void ChildProcess::Signal(int number) {
  if (pid_ != 0) {
    kill(pid_, number);
  }
}

int ChildProcess::Reap() {
  TOKURA_CHECK(pid_ != 0);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  constexpr int kSignalBase = 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
}

}  // namespace tokura::cli
