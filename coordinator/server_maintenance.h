#pragma once

#include <memory>

#include "common/executor.h"
#include "coordinator/orphan_gate.h"
#include "coordinator/server_context.h"

namespace tokura::coordinator {

// The coordinator's work between requests: sweeping lives that are gone, telling orphans, in slices
// that no lookup notices; and the metrics that are copied. Owned by the transport's thread. Shared
// by the server's loop and by slices posted.
class ServerMaintenance : public std::enable_shared_from_this<ServerMaintenance> {
 public:
  ServerMaintenance(std::shared_ptr<ServerContext> context, Executor& executor)
      : context_(std::move(context)), executor_(executor) {}

  // There may be work in the index: do it soon.
  void Wake();
  // Look for work that nobody told of, and copy the metrics.
  void Tick();

 private:
  void Slice();

  const std::shared_ptr<ServerContext> context_;  // owners: see ServerContext
  Executor& executor_;
  OrphanGate orphans_;
  bool posted_ = false;
};

}  // namespace tokura::coordinator
