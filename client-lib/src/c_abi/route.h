#pragma once

#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "tokura/client.h"

namespace tokura::c_abi {

// Tells whether the process was forked since the stamp was made. Thread-safe.
class ForkStamp {
 public:
  ForkStamp();
  bool forked() const;
  // FAILED_PRECONDITION: it was.
  absl::Status Check() const;

 private:
  uint32_t generation_;
};

// FAILED_PRECONDITION: a parent of this process had made a client when it forked. UCX does not
// survive that, whatever becomes of the parent's client. Else notes that this process has one.
absl::Status CheckFirstUseAfterFork();

// The way from an operation to its client, which it may outlive. Thread-safe.
class Route {
 public:
  explicit Route(Client& client) : maybe_client_(&client) {}

  // Run `task` on the client's progress thread. RESOURCE_EXHAUSTED: too many wait there;
  // FAILED_PRECONDITION: the client is gone.
  absl::Status Submit(absl::AnyInvocable<void(ClientCore&)> task) TOKURA_EXCLUDES(mutex_);
  // The same without a limit, for what must not be lost. Nothing once the client is gone: it has
  // ended every operation.
  void Post(absl::AnyInvocable<void(ClientCore&)> task) TOKURA_EXCLUDES(mutex_);
  // Before the client goes.
  void Close() TOKURA_EXCLUDES(mutex_);

  const ForkStamp& stamp() const { return stamp_; }

 private:
  const ForkStamp stamp_;
  Mutex mutex_;  // before the executor's own lock
  Client* maybe_client_ TOKURA_GUARDED_BY(mutex_);
};

}  // namespace tokura::c_abi
