#pragma once

// A whole cluster under a random workload and random faults, checked at every answer. One seed is
// one run; the same seed is the same run.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/faults.h"
#include "tests/sim/workload.h"

namespace tokura::sim {

struct ClusterSimOptions {
  uint64_t seed = 1;
  uint32_t operations = 500;
  uint32_t faults_min = 10;
  node::PlantedBugs node_bugs;
  ClientPlantedBugs client_bugs;
  enum class Trace { kOff, kOn } trace = Trace::kOff;
};

// What happened in one run or in many. Trivially copyable, so that processes can share it.
struct ClusterSimCounts {
  uint64_t runs = 0;
  uint64_t events = 0;
  uint64_t operations = 0;
  uint64_t faults = 0;
  uint64_t two_loop_runs = 0;     // of nodes with two I/O loops
  uint64_t blocks_verified = 0;   // returned by a get and compared with what was put
  uint64_t joint_verified = 0;    // of those, put by two writers, one shard each
  uint64_t sharded_puts = 0;      // by two writers
  uint64_t half_puts = 0;         // of those, one writer never came or died
  uint64_t contested_puts = 0;    // while another put of the same chain was under way
  uint64_t parts_audited = 0;     // stored parts read in the nodes' memory
  uint64_t writers_gone = 0;      // dead clients that a node was seen to let go of
  uint64_t wire_flips = 0;        // bits
  uint64_t memory_flips = 0;      // bits
  uint64_t memory_flips_met = 0;  // DATA_LOSS answers of gets that damaged memory alone explains
  uint64_t probes = 0;            // lookups after which nothing was pinned or leased
  Workload::Statuses puts{};      // blocks by outcome
  Workload::Statuses gets{};
  Coverage coverage{};

  void Add(const ClusterSimCounts& other);
  // A readable report: every count, the outcomes, the table fault × stage.
  std::string Format() const;
  // The counts and cells fault × stage that are zero: what no run has tested.
  std::vector<std::string> Missing() const;
};

struct ClusterSimResult {
  std::vector<std::string> violations;  // empty: nothing wrong
  uint64_t hash = 0;                    // of the event log
  ClusterSimCounts counts;
};

ClusterSimResult RunClusterSim(const ClusterSimOptions& options);

}  // namespace tokura::sim
