#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/executor.h"
#include "common/log.h"
#include "common/random.h"
#include "common/time.h"
#include "coordinator/cluster_view.h"
#include "coordinator/coordinator.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/inventory.h"
#include "coordinator/placement.h"
#include "coordinator/prefix_index.h"
#include "coordinator/server_nodes.h"
#include "coordinator/server_watch.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// What all requests of a coordinator work on. Owned by the transport's thread, but for the atomics.
// Shared by the coordinator, its loop and tasks posted to the executor.
struct ServerContext {
  ServerContext(CoordinatorOptions coordinator_options, PlantedBugs planted_bugs,
                const Clock& coordinator_clock, std::shared_ptr<prometheus::Registry> registry)
      : options(std::move(coordinator_options)),
        bugs(planted_bugs),
        clock(coordinator_clock),
        metrics(std::move(registry)),
        peer_log(clock, LogLimiter::Options{}),
        nodes(bugs, metrics) {}

  const CoordinatorOptions options;
  const PlantedBugs bugs;
  const Clock& clock;
  CoordinatorMetrics metrics;
  LogLimiter peer_log;  // of lines that peers can trigger
  uint64_t incarnation = 0;

  std::unique_ptr<ClusterView> view;
  // What the view said last: everything below goes by this state until it is replaced as a whole.
  proto::ClusterState state;
  Placement placement;
  NodeTable nodes;
  std::unique_ptr<PrefixIndex> index;  // tells nodes
  std::unique_ptr<Inventory> inventory;
  std::shared_ptr<WatchList> watches;  // owners: this, and its own timers and slices
  uint64_t connections = 0;            // welcomed

  std::atomic<uint64_t> epoch{0};  // of `state`
  std::atomic<bool> draining{false};
  std::atomic<int64_t> last_tick{0};  // nanoseconds of the clock
};

}  // namespace tokura::coordinator
