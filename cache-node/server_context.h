#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cache-node/block_store.h"
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
        metrics(std::move(registry)),
        client_log(clock, LogLimiter::Options{}),
        leases({options.lease_age, options.lease_age_max}, random) {}

  const NodeOptions options;
  const PlantedBugs bugs;
  const Clock& clock;
  WorkerPool& pool;
  NodeMetrics metrics;
  LogLimiter client_log;  // of lines that clients can trigger
  uint64_t incarnation = 0;
  std::unique_ptr<BlockStore> store;
  std::unique_ptr<net::MemoryRegion> region;  // the store's arena, registered
  LeaseTable leases;                          // holds pins of the store: destroyed before it
  std::atomic<bool> draining{false};
  std::atomic<uint64_t> connections{0};         // established, all I/O threads
  std::atomic<uint64_t> next_connection_id{1};  // ids are unique in the node
};

}  // namespace tokura::node
