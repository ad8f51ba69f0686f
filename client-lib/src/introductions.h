#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client-lib/src/node_link.h"
#include "common/executor.h"
#include "proto/cluster.pb.h"
#include "tokura/types.h"

namespace tokura {

class ClusterMap;
class Coordinators;

// Lets operations wait for nodes that this client is about to meet: a plan or a match may name a
// member whose first connection is still being made, or one that the members known here do not have
// yet. Nodes that failed, and those that are known to be gone, are not waited for. Owned by the
// core's executor.
class Introductions {
 public:
  struct Node {
    std::string name;
    uint64_t incarnation = 0;
    friend bool operator==(const Node&, const Node&) = default;
  };
  // Everything outlives this.
  struct Environment {
    Executor& executor;
    const Coordinators& coordinators;
    ClusterMap& map;
    const std::vector<std::shared_ptr<NodeLink>>& links;
    const std::map<std::string, uint64_t>& incarnations;  // the highest seen, by node name
  };
  explicit Introductions(Environment environment) : environment_(environment) {}
  ~Introductions();

  // Whether there is no link to this life of this node, and there may be one soon.
  bool Expects(const Node& node) const;
  // Add the expected nodes that hold `block` of `match`; one that is there already once more.
  void AddExpectedHolders(const Match& match, size_t block, std::vector<Node>* to) const;
  // Call `done` once none of `nodes` is expected any more, at `until` or after half of
  // progress_timeout at the latest, so that time is left to turn to others; never inline. Returns
  // what Cancel takes, never 0.
  uint64_t Wait(std::vector<Node> nodes, TimePoint until, Task done);
  // No call any more; 0 and ids of those that were called are ignored.
  void Cancel(uint64_t id);
  // Links or members are others than before.
  void OnChange();

 private:
  struct Waiter {
    std::vector<Node> nodes;
    Task done;
    TimerId timer = 0;
  };
  bool ExpectsAny(const std::vector<Node>& nodes) const;
  void CallAt(TimePoint due, uint64_t id);
  const NodeLink* MaybeLinkTo(const proto::Member& member) const;

  const Environment environment_;
  std::map<uint64_t, Waiter> waiters_;  // at most one per operation and plan under way
  uint64_t last_id_ = 0;
};

}  // namespace tokura
