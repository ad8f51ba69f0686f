#pragma once

#include "common/executor.h"
#include "common/mutex.h"

namespace tokura {

// Stands between codec steps and the caller's memory: a step touches the memory only while it is
// inside, and once the gate has been closed and is quiet, nothing touches it any more. This is what
// lets an operation end on time while its jobs are still queued. Thread-safe. Shared by the
// operation and its jobs, because jobs outlive the operation.
class ViewGate {
 public:
  // Whether the caller may touch the memory until Leave. False once closed.
  bool Enter() TOKURA_EXCLUDES(mutex_);
  void Leave() TOKURA_EXCLUDES(mutex_);

  // Let nobody in any more and call `on_quiet` when the last step has left: inline when nobody is
  // inside, else from `executor`. Only a step that is already inside is waited for. Executor thread
  // only; once.
  void Close(Executor& executor, Task on_quiet) TOKURA_EXCLUDES(mutex_);

 private:
  Mutex mutex_;  // a leaf: no other lock is taken while it is held
  int inside_ TOKURA_GUARDED_BY(mutex_) = 0;
  bool closed_ TOKURA_GUARDED_BY(mutex_) = false;
  Executor* maybe_executor_ TOKURA_GUARDED_BY(mutex_) = nullptr;
  Task on_quiet_ TOKURA_GUARDED_BY(mutex_);
};

}  // namespace tokura
