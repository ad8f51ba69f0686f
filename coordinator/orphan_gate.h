#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/time.h"
#include "coordinator/inventory.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// Decides when nodes may be told of orphans. A block that seems to be held nowhere may lie on a
// node of which this coordinator knows little: one that has registered and not told its whole
// inventory, or a member that has not registered here since this process began. Such a node holds
// back everybody's orphans, but not for ever. Owned by one thread.
class OrphanGate {
 public:
  // How long one node holds back orphans at most: many times what a large inventory takes.
  static constexpr Duration kWaitMax = std::chrono::seconds(60);

  // Whether orphans may be told at `now`, when `state` is in force: not before there is one.
  // Remembers who is incomplete since when, so it is to be asked often enough to see each become
  // complete.
  bool Open(const proto::ClusterState& state, const Inventory& inventory, TimePoint now);

 private:
  // By name: a node that starts again and again is one that waits.
  std::map<std::string, TimePoint, std::less<>> incomplete_since_;
};

}  // namespace tokura::coordinator
