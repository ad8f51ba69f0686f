#include "client-lib/src/view_gate.h"

#include <utility>

#include "common/check.h"

namespace tokura {

bool ViewGate::Enter() {
  MutexLock lock(mutex_);
  if (closed_) {
    return false;
  }
  ++inside_;
  return true;
}

void ViewGate::Leave() {
  Executor* maybe_executor = nullptr;
  Task on_quiet;
  {
    MutexLock lock(mutex_);
    TOKURA_CHECK(inside_ > 0);
    --inside_;
    if (inside_ > 0 || !closed_) {
      return;
    }
    maybe_executor = std::exchange(maybe_executor_, nullptr);
    on_quiet = std::move(on_quiet_);
  }
  if (maybe_executor != nullptr) {
    maybe_executor->Post(std::move(on_quiet));
  }
}

void ViewGate::Close(Executor& executor, Task on_quiet) {
  {
    MutexLock lock(mutex_);
    TOKURA_CHECK(!closed_);
    closed_ = true;
    if (inside_ > 0) {
      maybe_executor_ = &executor;
      on_quiet_ = std::move(on_quiet);
      return;
    }
  }
  on_quiet();
}

}  // namespace tokura
