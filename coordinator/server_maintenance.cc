#include "coordinator/server_maintenance.h"

#include "common/cpu_time.h"

namespace tokura::coordinator {
namespace {

// Records of the index that one slice looks at: well below a millisecond.
constexpr size_t kSliceSteps = 512;

CoordinatorGauges Gauges(const ServerContext& context) {
  CoordinatorGauges gauges;
  gauges.epoch = context.state.epoch();
  gauges.policy_version = context.state.policy_version();
  for (const proto::Member& member : context.state.members()) {
    gauges.nodes_up += member.state() == proto::Member::UP ? 1 : 0;
    gauges.nodes_suspect += member.state() == proto::Member::SUSPECT ? 1 : 0;
    gauges.nodes_leaving += member.state() == proto::Member::LEAVING ? 1 : 0;
  }
  gauges.index_bytes = context.index->memory_bytes();
  gauges.watches = context.watches->size();
  gauges.touches_waiting = context.nodes.touches_waiting();
  gauges.orphans_waiting = context.nodes.orphans_waiting();
  return gauges;
}

}  // namespace

void ServerMaintenance::Wake() {
  if (posted_) {
    return;
  }
  posted_ = true;
  // Behind what has come in meanwhile.
  executor_.Post([weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->posted_ = false;
      self->Slice();
    }
  });
}

void ServerMaintenance::Slice() {
  const Duration before = ThreadCpuTime();
  // With many members it takes as long as a slice to find out whether orphans may be told.
  const bool waiting = context_->index->stats().orphans_waiting > 0;
  const bool told =
      waiting && orphans_.Open(context_->state, *context_->inventory, executor_.Now());
  if (context_->index->Work(kSliceSteps,
                            told ? PrefixIndex::Orphans::kTell : PrefixIndex::Orphans::kHold)) {
    Wake();
  }
  context_->metrics.TurnEnded(Turn::kMaintenance, ThreadCpuTime() - before);
}

void ServerMaintenance::Tick() {
  orphans_.Open(context_->state, *context_->inventory, executor_.Now());
  Wake();
  context_->nodes.CountDropped();
  context_->metrics.Sample(Gauges(*context_), context_->index->stats(),
                           context_->inventory->stats());
}

}  // namespace tokura::coordinator
