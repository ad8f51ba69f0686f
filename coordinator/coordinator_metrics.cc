#include "coordinator/coordinator_metrics.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace tokura::coordinator {
namespace {

constexpr net::Op kOps[] = {net::Op::kLocate,   net::Op::kPlan,     net::Op::kWatch,
                            net::Op::kNodes,    net::Op::kRegister, net::Op::kReport,
                            net::Op::kInventory};

// Every code that a request or a connection can end with. Anything else is counted as UNKNOWN.
constexpr absl::StatusCode kResults[] = {
    absl::StatusCode::kOk,
    absl::StatusCode::kInvalidArgument,
    absl::StatusCode::kResourceExhausted,
    absl::StatusCode::kNotFound,
    absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kCancelled,
    absl::StatusCode::kUnavailable,
    absl::StatusCode::kDataLoss,
    absl::StatusCode::kUnimplemented,
    absl::StatusCode::kInternal,
    absl::StatusCode::kUnknown,
};

constexpr const char* kConnectionEndNames[kConnectionEnds] = {"limit", "refused", "violation"};
constexpr const char* kNoteNames[kNoteResults] = {"sent", "dropped", "stale"};
constexpr const char* kPlanNames[kPlanResults] = {"placed", "held", "unplaced"};
constexpr const char* kTurnNames[kTurns] = {"inventory", "maintenance"};

std::string CodeName(absl::StatusCode code) {
  std::string name = absl::StatusCodeToString(code);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

template <typename Counter, size_t kSize>
void AddEach(prometheus::Family<Counter>& family, const char* label,
             const char* const (&names)[kSize], Counter* (&counters)[kSize]) {
  for (size_t i = 0; i < kSize; ++i) {
    counters[i] = &family.Add({{label, names[i]}});
  }
}

void Count(prometheus::Counter* counter, uint64_t count) {
  counter->Increment(static_cast<double>(count));
}

void Show(prometheus::Gauge* gauge, uint64_t value) {
  gauge->Set(static_cast<double>(value));
}

}  // namespace

CoordinatorMetrics::CoordinatorMetrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)) {
  AddRequests();
  AddConnections();
  AddIndex();
  AddCluster();
}

prometheus::Family<prometheus::Counter>& CoordinatorMetrics::Counters(const char* name,
                                                                      const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
}

prometheus::Family<prometheus::Gauge>& CoordinatorMetrics::Gauges(const char* name,
                                                                  const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
}

prometheus::Gauge* CoordinatorMetrics::Single(const char* name, const char* help) {
  return &Gauges(name, help).Add({});
}

void CoordinatorMetrics::AddRequests() {
  inflight_ = Single("tokura_coordinator_inflight_requests",
                     "Requests under way, those that wait for a change included.");
  auto& requests = Counters("tokura_coordinator_requests_total",
                            "Requests that ended, by operation and result.");
  auto& durations = prometheus::BuildHistogram()
                        .Name("tokura_coordinator_request_duration_seconds")
                        .Help(
                            "From the arrival of a request to its reply; a watch waits for a "
                            "change or for half its deadline.")
                        .Register(*registry_);
  for (net::Op op : kOps) {
    for (absl::StatusCode code : kResults) {
      requests_[{op, code}] = &requests.Add({{"op", net::OpName(op)}, {"result", CodeName(code)}});
    }
    durations_[op] = &durations.Add({{"op", net::OpName(op)}}, LatencyBuckets());
  }
  auto& lookups = Counters("tokura_coordinator_lookup_blocks_total",
                           "Blocks looked up, by whether they belong to the usable prefix.");
  lookup_hits_ = &lookups.Add({{"result", "hit"}});
  lookup_misses_ = &lookups.Add({{"result", "miss"}});
  AddEach(Counters("tokura_coordinator_plan_blocks_total", "Blocks of plans, by what they need."),
          "result", kPlanNames, planned_);
  AddEach(Gauges("tokura_coordinator_longest_turn_cpu_seconds",
                 "Most CPU time since the start that one batch of inventory, or one slice of "
                 "maintenance, took; a lookup waits for one of each at most."),
          "turn", kTurnNames, longest_turns_);
}

void CoordinatorMetrics::AddConnections() {
  open_endpoints_ =
      &Gauges("tokura_transport_endpoints", "Connections by state.").Add({{"state", "open"}});
  auto& errors = Counters("tokura_transport_errors_total",
                          "Connections that ended otherwise than by an orderly close of ours.");
  for (absl::StatusCode code : kResults) {
    if (code != absl::StatusCode::kOk) {
      transport_errors_[code] = &errors.Add({{"status", CodeName(code)}});
    }
  }
  AddEach(Counters("tokura_coordinator_connections_ended_total",
                   "Connections refused or ended by this coordinator."),
          "reason", kConnectionEndNames, connection_ends_);
}

void CoordinatorMetrics::AddIndex() {
  auto& batches = Counters("tokura_coordinator_inventory_batches_total",
                           "Batches of inventory from nodes, by what became of them.");
  batches_applied_ = &batches.Add({{"result", "applied"}});
  batches_stale_ = &batches.Add({{"result", "stale"}});
  batches_gap_ = &batches.Add({{"result", "gap"}});
  batches_refused_ = &batches.Add({{"result", "refused"}});
  records_ = &Counters("tokura_coordinator_inventory_records_total",
                       "Keys of batches of inventory that were applied.")
                  .Add({});
  auto& snapshots = Counters("tokura_coordinator_inventory_snapshots_total",
                             "Full inventories, by what became of them.");
  snapshots_started_ = &snapshots.Add({{"event", "started"}});
  snapshots_finished_ = &snapshots.Add({{"event", "finished"}});
  snapshots_restarted_ = &snapshots.Add({{"event", "restarted"}});
  auto& refused = Counters("tokura_coordinator_index_refused_total",
                           "What the index had no room for; it is not found.");
  refused_blocks_ = &refused.Add({{"what", "blocks"}});
  refused_forms_ = &refused.Add({{"what", "forms"}});
  refused_classes_ = &refused.Add({{"what", "classes"}});
  blocks_ = Single("tokura_coordinator_index_blocks", "Blocks in the index.");
  vanished_ = Single("tokura_coordinator_index_vanished_blocks",
                     "Blocks held nowhere that are kept as parents of others.");
  forms_ = Single("tokura_coordinator_index_forms", "Forms of blocks in the index.");
  index_bytes_ = Single("tokura_coordinator_index_bytes", "Memory that the index takes.");
  auto& inventories = Gauges("tokura_coordinator_inventories", "Inventories of nodes, by state.");
  inventories_ = &inventories.Add({{"state", "complete"}});
  inventories_incomplete_ = &inventories.Add({{"state", "incomplete"}});
  inventories_swept_ = &inventories.Add({{"state", "dropped"}});
}

void CoordinatorMetrics::AddCluster() {
  AddEach(Counters("tokura_coordinator_touches_total",
                   "Keys in use that nodes are to be told of, by what became of them."),
          "result", kNoteNames, touches_);
  AddEach(Counters("tokura_coordinator_orphans_total",
                   "Keys without their prefix that nodes are to be told of, by what became of "
                   "them."),
          "result", kNoteNames, orphans_);
  auto& depths = Gauges("tokura_queue_depth", "Entries that wait, by queue.");
  touches_waiting_ = &depths.Add({{"queue", "touches"}});
  orphans_waiting_ = &depths.Add({{"queue", "orphans"}});
  watches_ = &depths.Add({{"queue", "watches"}});
  watches_rejected_ =
      &Counters("tokura_queue_rejected_total", "Work turned away because a queue was full.")
           .Add({{"queue", "watches"}});
  epoch_ = Single("tokura_placement_epoch", "Epoch of the members; 0: none known yet.");
  policy_version_ = Single("tokura_coordinator_policy_version", "Version of the policy's rules.");
  auto& nodes = Gauges("tokura_coordinator_nodes", "Members of the cluster, by state.");
  nodes_up_ = &nodes.Add({{"state", "up"}});
  nodes_suspect_ = &nodes.Add({{"state", "suspect"}});
  nodes_leaving_ = &nodes.Add({{"state", "leaving"}});
}

void CoordinatorMetrics::RequestEnded(net::Op op, absl::StatusCode result, Duration took) {
  inflight_->Decrement();
  auto duration = durations_.find(op);
  if (duration == durations_.end()) {
    return;  // An operation of nodes: answered UNIMPLEMENTED, not one of ours.
  }
  duration->second->Observe(Seconds(took));
  auto it = requests_.find({op, result});
  (it == requests_.end() ? requests_.at({op, absl::StatusCode::kUnknown}) : it->second)
      ->Increment();
}

void CoordinatorMetrics::TurnEnded(Turn turn, Duration cpu) {
  prometheus::Gauge* const longest = longest_turns_[static_cast<size_t>(turn)];
  if (Seconds(cpu) > longest->Value()) {
    longest->Set(Seconds(cpu));
  }
}

void CoordinatorMetrics::Disconnected(const absl::Status& why) {
  open_endpoints_->Decrement();
  if (!why.ok()) {
    auto it = transport_errors_.find(why.code());
    (it == transport_errors_.end() ? transport_errors_.at(absl::StatusCode::kUnknown) : it->second)
        ->Increment();
  }
}

void CoordinatorMetrics::ConnectionEnded(ConnectionEnd why) {
  connection_ends_[static_cast<size_t>(why)]->Increment();
}

void CoordinatorMetrics::LookedUp(uint64_t hits, uint64_t misses) {
  Count(lookup_hits_, hits);
  Count(lookup_misses_, misses);
}

void CoordinatorMetrics::Planned(PlanResult result, uint64_t blocks) {
  Count(planned_[static_cast<size_t>(result)], blocks);
}

void CoordinatorMetrics::TouchesEnded(NoteResult result, uint64_t keys) {
  Count(touches_[static_cast<size_t>(result)], keys);
}

void CoordinatorMetrics::OrphansEnded(NoteResult result, uint64_t keys) {
  Count(orphans_[static_cast<size_t>(result)], keys);
}

void CoordinatorMetrics::Sample(const CoordinatorGauges& gauges, const PrefixIndexStats& index,
                                const InventoryStats& inventory) {
  Show(epoch_, gauges.epoch);
  Show(policy_version_, gauges.policy_version);
  Show(nodes_up_, gauges.nodes_up);
  Show(nodes_suspect_, gauges.nodes_suspect);
  Show(nodes_leaving_, gauges.nodes_leaving);
  Show(watches_, gauges.watches);
  Show(touches_waiting_, gauges.touches_waiting);
  Show(orphans_waiting_, gauges.orphans_waiting);
  Show(index_bytes_, gauges.index_bytes);
  SampleInventory(index, inventory);
}

void CoordinatorMetrics::SampleInventory(const PrefixIndexStats& index,
                                         const InventoryStats& inventory) {
  Show(blocks_, index.blocks);
  Show(vanished_, index.vanished);
  Show(forms_, index.forms);
  Show(inventories_, inventory.lives - inventory.incomplete);
  Show(inventories_incomplete_, inventory.incomplete);
  Show(inventories_swept_, index.sources_swept);
  const InventoryStats& before = inventory_sampled_;
  Count(batches_applied_, inventory.batches - before.batches);
  Count(batches_stale_, inventory.stale_batches - before.stale_batches);
  Count(batches_gap_, inventory.gaps - before.gaps);
  Count(batches_refused_, inventory.refused_batches - before.refused_batches);
  Count(records_, inventory.records - before.records);
  Count(snapshots_started_, inventory.snapshots_started - before.snapshots_started);
  Count(snapshots_finished_, inventory.snapshots_finished - before.snapshots_finished);
  Count(snapshots_restarted_, inventory.snapshots_restarted - before.snapshots_restarted);
  Count(refused_blocks_, index.refused_blocks - index_sampled_.refused_blocks);
  Count(refused_forms_, index.refused_forms - index_sampled_.refused_forms);
  Count(refused_classes_, inventory.refused_classes - before.refused_classes);
  inventory_sampled_ = inventory;
  index_sampled_ = index;
}

}  // namespace tokura::coordinator
