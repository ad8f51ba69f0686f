#include "client-lib/src/c_abi/route.h"

#include <atomic>
#include <mutex>
#include <utility>

#include <pthread.h>

namespace tokura::c_abi {
namespace {

// Forks between the first use of this library and now, as seen from this process.
std::atomic<uint32_t> fork_generation{0};
// Generation of the process that made the first client; -1: nobody has.
std::atomic<int64_t> client_generation{-1};

void WatchForks() {
  static std::once_flag once;
  // The child runs only what is safe after a fork of a process with threads.
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { ++fork_generation; }); });
}

}  // namespace

ForkStamp::ForkStamp() {
  WatchForks();
  generation_ = fork_generation;
}

bool ForkStamp::forked() const {
  return generation_ != fork_generation;
}

absl::Status ForkStamp::Check() const {
  return forked() ? absl::FailedPreconditionError(
                        "the client belongs to the process that this one was forked from")
                  : absl::OkStatus();
}

absl::Status CheckFirstUseAfterFork() {
  WatchForks();
  const int64_t now = fork_generation;
  int64_t first = -1;
  if (client_generation.compare_exchange_strong(first, now) || first == now) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "this process was forked from one that had made a client; fork first, or start processes by "
      "exec (in Python: multiprocessing's \"spawn\")");
}

absl::Status Route::Submit(absl::AnyInvocable<void(ClientCore&)> task) {
  if (const absl::Status status = stamp_.Check(); !status.ok()) {
    return status;
  }
  const MutexLock lock(mutex_);
  if (maybe_client_ == nullptr) {
    return absl::FailedPreconditionError("the client is closed");
  }
  ClientCore* core = &maybe_client_->core();
  const bool posted =
      maybe_client_->executor().TryPost([core, task = std::move(task)]() mutable { task(*core); });
  return posted
             ? absl::OkStatus()
             : absl::ResourceExhaustedError("too many calls wait for the client's progress thread");
}

void Route::Post(absl::AnyInvocable<void(ClientCore&)> task) {
  if (stamp_.forked()) {
    return;
  }
  const MutexLock lock(mutex_);
  if (maybe_client_ != nullptr) {
    ClientCore* core = &maybe_client_->core();
    maybe_client_->executor().Post([core, task = std::move(task)]() mutable { task(*core); });
  }
}

void Route::Close() {
  const MutexLock lock(mutex_);
  maybe_client_ = nullptr;
}

}  // namespace tokura::c_abi
