#include "common/stop_signals.h"

#include <thread>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace tokura {

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
}

void StopSignals::RunBlocked(absl::AnyInvocable<void()> start) const {
  std::thread thread([this, &start] {
    Block();
    start();
  });
  thread.join();
}

void StopSignals::Block() const {
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int StopSignals::WaitForOne() const {
  int number = 0;
  while (sigwait(&set_, &number) != 0) {
  }
  return number;
}

void StopSignals::Raise() {
  kill(getpid(), SIGTERM);
}

void StopSignals::LetThrough() const {
  pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
}

}  // namespace tokura
