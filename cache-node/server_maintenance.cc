#include "cache-node/server_maintenance.h"

#include <utility>

#include "cache-node/server_loop.h"

namespace tokura::node {

ServerMaintenance::ServerMaintenance(std::shared_ptr<ServerContext> context, Executor& executor)
    : context_(std::move(context)), executor_(executor) {}

void ServerMaintenance::Tick(TimePoint now) {
  SweepLeases(now);
  MaintainStore(now);
  context_->metrics.Sample(context_->store->stats(), context_->store->counters(),
                           context_->leases.stats());
}

void ServerMaintenance::SweepLeases(TimePoint now) {
  for (const LeaseTable::Expired& lease : context_->leases.Sweep(now)) {
    for (const std::weak_ptr<ServerLoop>& weak : loops_) {
      if (auto loop = weak.lock()) {
        loop->ExpireLease(lease.token, lease.connections);
      }
    }
  }
}

void ServerMaintenance::MaintainStore(TimePoint now) {
  const Maintenance work = context_->store->Maintain(now);
  if (!work.overdue_owners.empty()) {
    for (const std::weak_ptr<ServerLoop>& weak : loops_) {
      if (auto loop = weak.lock()) {
        loop->AbortConnections(work.overdue_owners);
      }
    }
  }
  if (work.more && !slice_posted_) {
    slice_posted_ = true;
    // The next slice waits behind what has come in meanwhile, so that eviction never delays a GET
    // by more than one slice.
    executor_.Post([weak = weak_from_this()] {
      if (auto self = weak.lock()) {
        self->slice_posted_ = false;
        self->MaintainStore(self->executor_.Now());
      }
    });
  }
}

}  // namespace tokura::node
