#include "tests/sim/planted_bugs.h"

namespace tokura::sim {
namespace {

using Options = ClusterSimOptions;

constexpr PlantedBug kBugs[] = {
    {"node-skip-crc", [](Options& o) { o.node_bugs.skip_crc = true; }, 400},
    {"node-evict-pinned", [](Options& o) { o.node_bugs.evict_pinned = true; }, 400},
    {"node-accept-late-write", [](Options& o) { o.node_bugs.accept_late_write = true; }, 400},
    {"client-skip-crc", [](Options& o) { o.client_bugs.skip_crc = true; }, 400},
    {"client-write-after-deadline", [](Options& o) { o.client_bugs.write_after_deadline = true; },
     400},
    {"client-accept-lower-incarnation",
     [](Options& o) { o.client_bugs.accept_lower_incarnation = true; }, 400},
    {"node-skip-delta", [](Options& o) { o.node_bugs.skip_delta = true; }, 100},
    {"node-accept-old-placement", [](Options& o) { o.node_bugs.accept_old_placement = true; }, 400},
    {"node-release-twice", [](Options& o) { o.node_bugs.release_twice = true; }, 400},
    {"node-remove-unchecked", [](Options& o) { o.node_bugs.remove_unchecked = true; }, 400},
    {"node-keep-damaged", [](Options& o) { o.node_bugs.keep_damaged = true; }, 100},
    {"coordinator-accept-lower-incarnation",
     [](Options& o) { o.coordinator_bugs.accept_lower_incarnation = true; }, 400},
    {"coordinator-restart-epoch-at-one",
     [](Options& o) { o.coordinator_bugs.restart_epoch_at_one = true; }, 400},
    // The coordinator names the new life, and the node would take the old one's as well.
    {"orphans-of-old-lives",
     [](Options& o) {
       o.coordinator_bugs.keep_orphans_of_old_lives = true;
       o.node_bugs.accept_old_orphans = true;
     },
     400},
};

}  // namespace

std::span<const PlantedBug> AllPlantedBugs() {
  return kBugs;
}

}  // namespace tokura::sim
