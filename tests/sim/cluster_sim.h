#pragma once

// A whole cluster under a random workload and random faults, checked at every answer. One seed is
// one run; the same seed is the same run.

#include <cstdint>
#include <string>
#include <vector>

#include "cache-node/node.h"
#include "coordinator/coordinator.h"
#include "tests/sim/counts.h"
#include "tokura/client_core.h"

namespace tokura::sim {

struct ClusterSimOptions {
  uint64_t seed = 1;
  uint32_t operations = 500;
  uint32_t faults_min = 10;
  node::PlantedBugs node_bugs;
  ClientPlantedBugs client_bugs;
  coordinator::PlantedBugs coordinator_bugs;
  enum class Trace { kOff, kOn } trace = Trace::kOff;
};

struct ClusterSimResult {
  std::vector<std::string> violations;  // empty: nothing wrong
  uint64_t hash = 0;                    // of the event log
  ClusterSimCounts counts;
};

ClusterSimResult RunClusterSim(const ClusterSimOptions& options);

}  // namespace tokura::sim
