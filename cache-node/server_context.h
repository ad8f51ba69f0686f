#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <prometheus/registry.h>

#include "cache-node/block_store.h"
#include "cache-node/check_budget.h"
#include "cache-node/cluster_metrics.h"
#include "cache-node/lease.h"
#include "cache-node/node.h"
#include "cache-node/node_metrics.h"
#include "common/executor.h"
#include "common/log.h"
#include "common/net/transport.h"
#include "common/random.h"
#include "common/time.h"

namespace tokura::node {

// What all connections of a node share. Shared by the node and by every connection, so that the
// store outlives whatever holds a pin or a reservation. Thread-safe: the members are, or are fixed
// before the first connection.
struct ServerContext {
  ServerContext(NodeOptions node_options, PlantedBugs planted_bugs, const Clock& node_clock,
                RandomSource& random, WorkerPool& worker_pool,
                std::shared_ptr<prometheus::Registry> registry)
      : options(std::move(node_options)),
        bugs(planted_bugs),
        clock(node_clock),
        pool(worker_pool),
        metrics(registry),
        cluster_metrics(options.coordinators.empty() ? std::make_shared<prometheus::Registry>()
                                                     : std::move(registry)),
        client_log(clock, LogLimiter::Options{}),
        leases(LeaseOptions(options, bugs), random) {}

  static LeaseTable::Options LeaseOptions(const NodeOptions& options, const PlantedBugs& bugs) {
    LeaseTable::Options leases;
    leases.lease_age = options.lease_age;
    leases.lease_age_max = options.lease_age_max;
    leases.release_twice = bugs.release_twice;
    return leases;
  }

  const NodeOptions options;
  const PlantedBugs bugs;
  const Clock& clock;
  WorkerPool& pool;
  NodeMetrics metrics;
  ClusterMetrics cluster_metrics;  // shown where there are coordinators
  LogLimiter client_log;           // of lines that clients can trigger
  // Rises at most when a coordinator hands out a higher one; connections carry the one that they
  // began with, and older ones are closed.
  std::atomic<uint64_t> incarnation{0};
  // Puts that an older membership than this placed are refused.
  std::atomic<uint64_t> refuse_below_epoch{0};
  std::unique_ptr<BlockStore> store;
  std::unique_ptr<net::MemoryRegion> region;    // the store's arena, registered
  LeaseTable leases;                            // holds pins of the store: destroyed before it
  CheckBudget check_budget;                     // of blocks that clients suspect
  std::atomic<bool> leaving{false};             // coordinators are being told; then it drains
  std::atomic<bool> draining{false};            // nothing new is taken
  std::atomic<uint64_t> connections{0};         // established, all I/O threads
  std::atomic<uint64_t> next_connection_id{1};  // ids are unique in the node
};

}  // namespace tokura::node
