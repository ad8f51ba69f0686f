#pragma once

#include <memory>
#include <vector>

#include "cache-node/server_context.h"
#include "common/executor.h"
#include "common/time.h"

namespace tokura::node {

class ServerLoop;

// The node's periodic work: leases and reservations past their age, incomplete blocks, eviction
// above the watermark in bounded slices, and the metrics that are copied from the store. Owned by
// the first I/O thread. Shared by its tick and by slices posted to it.
class ServerMaintenance : public std::enable_shared_from_this<ServerMaintenance> {
 public:
  ServerMaintenance(std::shared_ptr<ServerContext> context, Executor& executor);

  // The I/O threads to tell about overdue connections. Once, before the first tick.
  void SetLoops(std::vector<std::weak_ptr<ServerLoop>> loops) { loops_ = std::move(loops); }
  void Tick(TimePoint now);

 private:
  void SweepLeases(TimePoint now);
  void MaintainStore(TimePoint now);

  const std::shared_ptr<ServerContext> context_;  // owners: see ServerContext
  Executor& executor_;
  std::vector<std::weak_ptr<ServerLoop>> loops_;
  bool slice_posted_ = false;
};

}  // namespace tokura::node
