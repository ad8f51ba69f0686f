#pragma once

// The bugs that can be planted, by name: each must be found by the simulation's checker.

#include <cstdint>
#include <span>

#include "tests/sim/cluster_sim.h"

namespace tokura::sim {

struct PlantedBug {
  const char* name;
  void (*plant)(ClusterSimOptions& options);
  uint32_t seeds_max;  // within so many seeds it must be found
};

std::span<const PlantedBug> AllPlantedBugs();

}  // namespace tokura::sim
