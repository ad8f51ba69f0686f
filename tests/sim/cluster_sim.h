#pragma once

// A whole cluster under a random workload and random faults, checked at every answer. One seed is
// one run; the same seed is the same run.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/faults.h"

namespace tokura::sim {

struct ClusterSimOptions {
  uint64_t seed = 1;
  uint32_t operations = 500;
  uint32_t faults_min = 10;
  node::PlantedBugs node_bugs;
  ClientPlantedBugs client_bugs;
  enum class Trace { kOff, kOn } trace = Trace::kOff;
};

struct ClusterSimResult {
  std::vector<std::string> violations;  // empty: nothing wrong
  uint64_t hash = 0;                    // of the event log
  uint64_t events = 0;
  uint64_t operations = 0;
  uint64_t faults = 0;
  uint64_t blocks_verified = 0;
  uint64_t blocks_missed = 0;
  uint64_t blocks_stored = 0;
  uint64_t blocks_refused = 0;    // RESOURCE_EXHAUSTED puts
  uint64_t blocks_cancelled = 0;  // CANCELLED puts
  uint64_t flipped_bits = 0;
  uint64_t data_losses = 0;
  Coverage coverage{};

  void Add(const ClusterSimResult& other);
};

ClusterSimResult RunClusterSim(const ClusterSimOptions& options);

// The table fault × stage, one line per fault.
std::string FormatCoverage(const Coverage& coverage);
// The cells that no run reached, "fault × stage".
std::vector<std::string> MissingCoverage(const Coverage& coverage);

}  // namespace tokura::sim
