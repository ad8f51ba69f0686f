#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client-lib/src/node_link.h"
#include "common/ids.h"
#include "tokura/types.h"

namespace tokura {

// Which nodes an operation should turn to. Lookups and puts know nothing else about where blocks
// live, so that a coordinator's answer can stand behind the same interface. Every link returned is
// usable at the time of the call and borrowed for it. Owned by the core's executor.
class NodeDirectory {
 public:
  virtual ~NodeDirectory() = default;
  // The nodes to ask for a chain that begins with `root`, most likely holder first.
  virtual std::vector<NodeLink*> ForLookup(const BlockKey& root) const = 0;
  // The nodes that may store a chain that begins with `root`, the right one first. All writers that
  // reach the same nodes agree.
  virtual std::vector<NodeLink*> ForPut(const BlockKey& root) const = 0;
  // The usable link to this node and incarnation; null when there is none.
  virtual NodeLink* Find(const std::string& node, uint64_t incarnation) const = 0;
};

// The listed nodes themselves, in the order of rendezvous hashing by node name: every writer picks
// the same node, and a node that is lost moves only its own chains.
class StaticDirectory final : public NodeDirectory {
 public:
  // `links` outlives the directory.
  explicit StaticDirectory(const std::vector<std::shared_ptr<NodeLink>>& links) : links_(links) {}
  std::vector<NodeLink*> ForLookup(const BlockKey& root) const override;
  std::vector<NodeLink*> ForPut(const BlockKey& root) const override;
  NodeLink* Find(const std::string& node, uint64_t incarnation) const override;

 private:
  const std::vector<std::shared_ptr<NodeLink>>& links_;
};

// Where coordinators say where blocks are and belong: nobody else is worth asking, and only the
// named node is found.
class ClusterDirectory final : public NodeDirectory {
 public:
  // `links`, to the members, outlives the directory.
  explicit ClusterDirectory(const std::vector<std::shared_ptr<NodeLink>>& links) : links_(links) {}
  std::vector<NodeLink*> ForLookup(const BlockKey& root) const override;
  std::vector<NodeLink*> ForPut(const BlockKey& root) const override;
  NodeLink* Find(const std::string& node, uint64_t incarnation) const override;

 private:
  const std::vector<std::shared_ptr<NodeLink>>& links_;
};

// The holder of a block that is connected: the first by the match's runs, else by its alternates;
// null when none is. Those that `passes` refuses do not count.
const Match::Holder* ConnectedHolder(const NodeDirectory& directory, const Match& match,
                                     size_t block,
                                     const std::function<bool(const std::string&)>& passes = {});

// Rendezvous weight of a node for a key: equal on every machine and in every version.
uint64_t RendezvousWeight(const BlockKey& key, const std::string& node);

}  // namespace tokura
