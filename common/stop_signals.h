#pragma once

#include <csignal>

#include "absl/functional/any_invocable.h"

namespace tokura {

// SIGTERM and SIGINT of this process, waited for instead of handled. Used by the main thread of a
// program, while it is the only one:
//   1. RunBlocked(start): all threads of the program are made here, and never see the signals. The
//      main thread leaves them alone meanwhile, so one that comes during the start ends the
//      process.
//   2. Block: from here on they wait.
//   3. WaitForOne, LetThrough: the next one ends the process at once.
class StopSignals {
 public:
  StopSignals();

  // Run `start` to its end on a thread of its own; it and every thread that it makes have the
  // signals blocked.
  void RunBlocked(absl::AnyInvocable<void()> start) const;
  void Block() const;
  // Returns the signal's number. Blocks.
  int WaitForOne() const;
  // Let WaitForOne return, as if SIGTERM had come: the program has to end by itself. Any thread.
  static void Raise();
  void LetThrough() const;

 private:
  sigset_t set_;
};

}  // namespace tokura
