#include "tests/sim/coverage.h"

namespace tokura::sim {

const char* FaultName(Fault fault) {
  static constexpr const char* kNames[kFaults] = {
      "node_crash",        "node_pause",   "client_crash",  "client_pause", "partition_both",
      "partition_one_way", "reset",        "zombie",        "bit_flips",    "lossy_frames",
      "pool_pause",        "memory_flip",  "node_leave",    "node_join",    "coordinator_crash",
      "coordinator_pause", "node_cut_off", "client_cut_off"};
  return kNames[static_cast<size_t>(fault)];
}

const char* StageName(Stage stage) {
  static constexpr const char* kNames[kStages] = {"idle",     "lookup", "acquire", "get",
                                                  "put",      "other",  "lease",   "offer",
                                                  "transfer", "codec",  "snapshot"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace tokura::sim
