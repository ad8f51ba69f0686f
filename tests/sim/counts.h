#pragma once

// What runs of the simulated cluster did, added up and printed.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/coverage.h"

namespace tokura::sim {

// Outcomes by absl::StatusCode.
using Statuses = std::array<uint64_t, 17>;

// What happened in one run or in many. Trivially copyable, so that processes can share it.
struct ClusterSimCounts {
  uint64_t runs = 0;
  uint64_t events = 0;
  uint64_t operations = 0;
  uint64_t faults = 0;
  uint64_t two_loop_runs = 0;        // of nodes with two I/O loops
  uint64_t direct_runs = 0;          // without coordinators
  uint64_t blocks_verified = 0;      // returned by a get and compared with what was put
  uint64_t joint_verified = 0;       // of those, put by two writers, one shard each
  uint64_t sharded_puts = 0;         // by two writers
  uint64_t half_puts = 0;            // of those, one writer never came or died
  uint64_t contested_puts = 0;       // while another put of the same chain was under way
  uint64_t shared_leases = 0;        // acquired by one process, loaded by two others
  uint64_t carried_gets = 0;         // of another process's lease that nothing had disturbed
  uint64_t parts_audited = 0;        // stored parts read in the nodes' memory
  uint64_t writers_gone = 0;         // dead clients that a node was seen to let go of
  uint64_t wire_flips = 0;           // bits
  uint64_t memory_flips = 0;         // bits
  uint64_t memory_flips_met = 0;     // DATA_LOSS answers of gets that damaged memory alone explains
  uint64_t blocks_healed = 0;        // put again at the end after damage, and had
  uint64_t probes = 0;               // lookups after which nothing was pinned or leased
  uint64_t leases_probed = 0;        // at the end, of two processes over the same blocks
  uint64_t snapshots = 0;            // begun
  uint64_t snapshot_chunks = 0;      // after a snapshot's first one
  uint64_t orphans_told = 0;         // keys, by coordinators to nodes
  uint64_t touches_told = 0;         // likewise
  uint64_t incarnations_raised = 0;  // nodes whose own was not above the last of their name
  uint64_t old_placements = 0;       // puts refused because the plan was made before the node left
  uint64_t superseded = 0;           // zombies that heard that they are
  Statuses puts{};                   // blocks by outcome
  Statuses gets{};
  Coverage coverage{};

  void Add(const ClusterSimCounts& other);
  // A readable report: every count, the outcomes, the table fault × stage.
  std::string Format() const;
  // The counts and cells fault × stage that are zero: what no run has tested.
  std::vector<std::string> Missing() const;
};

}  // namespace tokura::sim
