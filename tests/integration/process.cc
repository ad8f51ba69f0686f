#include "tests/integration/process.h"

#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"

extern char** environ;

namespace tokura::integration {

bool WaitFor(const std::function<bool()>& condition, Duration limit) {
  const TimePoint end = SystemClock().Now() + Scaled(limit);
  while (!condition()) {
    if (SystemClock().Now() > end) {
      return false;
    }
    poll(nullptr, 0, 5);
  }
  return true;
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const Output& output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const auto redirect = [&](int fd, const std::string& path) {
    if (!path.empty()) {
      posix_spawn_file_actions_addopen(&actions, fd, path.c_str(), O_CREAT | O_WRONLY | O_TRUNC,
                                       0600);
    }
  };
  redirect(STDOUT_FILENO, output.out_path);
  redirect(STDERR_FILENO, output.error_path);
  TOKURA_CHECK(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
}

ChildProcess::~ChildProcess() {
  if (!Reap()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

bool ChildProcess::Reap() {
  int status = 0;
  if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    ended_ = status;
  }
  return ended_.has_value();
}

void ChildProcess::Signal(int number) {
  TOKURA_CHECK(!Reap() && kill(pid_, number) == 0);
}

bool ChildProcess::stopped() {
  std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
  std::string pid, name, state;
  stat >> pid >> name >> state;
  return state == "T";
}

void ChildProcess::Stop() {
  Signal(SIGSTOP);
  TOKURA_CHECK(WaitFor([this] { return stopped(); }));
}

bool ChildProcess::RunsFor(Duration time) {
  const TimePoint end = SystemClock().Now() + time;
  WaitFor([&] { return Reap() || SystemClock().Now() >= end; }, time);
  return !Reap();
}

std::optional<int> ChildProcess::WaitForEnd(Duration limit) {
  WaitFor([this] { return Reap(); }, limit);
  return ended_;
}

uint64_t ChildProcess::ResidentBytes() const {
  std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::map<std::string, std::string> ReadPorts(const std::string& path) {
  std::map<std::string, std::string> ports;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) {
      ports[line.substr(0, equals)] = line.substr(equals + 1);
    }
  }
  return ports;
}

}  // namespace tokura::integration
