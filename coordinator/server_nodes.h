#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/coordinator_metrics.h"
#include "coordinator/inventory.h"
#include "coordinator/prefix_index.h"
#include "coordinator/server_notes.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// The nodes that are registered here, beside what the membership says of them: their connection,
// load and what they are to be told. Owned by the transport's thread.
class NodeTable final : public PrefixIndexSink {
 public:
  // Keys that wait for one node's next reports, of each kind.
  static constexpr size_t kNotesMax = size_t{1} << 16;

  struct Node {
    Node() : touches(kNotesMax), orphans(kNotesMax) {}

    uint64_t incarnation = 0;
    NodeSlot slot = 0;        // of that life in the index
    uint64_t connection = 0;  // that it is registered on; 0: it has closed
    TimePoint last_heard;
    uint64_t used_bytes = 0;      // as it reported
    uint64_t inflight_bytes = 0;  // likewise
    uint64_t promised_bytes = 0;  // that lookups since then have sent readers for
    NoteQueue touches;
    NoteQueue orphans;
  };

  // `metrics` is borrowed and outlives the table.
  NodeTable(PlantedBugs bugs, CoordinatorMetrics& metrics) : bugs_(bugs), metrics_(metrics) {}

  // A life of a node has registered on a connection. What waited for an earlier life is forgotten.
  Node& Register(const std::string& name, const NodeLife& life, uint64_t connection, TimePoint now);
  Node* Find(std::string_view name);
  // The node that is registered on this connection; null: it is not, or not any more.
  Node* Find(std::string_view name, uint64_t connection);
  // Take out all nodes that `gone` says so of; those who are registered on a connection stay.
  // Returns their names.
  std::vector<std::string> Erase(absl::FunctionRef<bool(const std::string&, const Node&)> gone);

  // How lookups treat each life from here on: by `state`, where it is a member of it, else it is
  // hidden. Call it after every change of lives or members.
  void Judge(const proto::ClusterState& state, const Inventory& inventory);
  // By slot.
  const std::vector<NodeStanding>& standings() const { return standings_; }
  // The name and life in a slot; null: none.
  const std::pair<const std::string, Node>* At(NodeSlot slot) const;

  // The load of `node` has changed to what it reports; what was promised before is in it.
  void Reported(Node& node, const proto::ReportRequest& report, TimePoint now);
  // A lookup has sent somebody to read so much there.
  void Promise(NodeSlot slot, uint64_t bytes);

  // PrefixIndexSink.
  void Touched(NodeSlot slot, const BlockKey& key) override;
  void Orphaned(NodeSlot slot, const BlockKey& key) override;

  // Count what was dropped since the last call, for the metrics: a counter each time would cost a
  // lookup more than the index does.
  void CountDropped();

  size_t touches_waiting() const;
  size_t orphans_waiting() const;

 private:
  using Nodes = std::map<std::string, Node, std::less<>>;

  void ShowLoad(const Node& node);

  const PlantedBugs bugs_;
  CoordinatorMetrics& metrics_;
  uint64_t touches_dropped_ = 0;  // that CountDropped has not counted yet
  uint64_t orphans_dropped_ = 0;  // likewise
  Nodes nodes_;
  std::vector<NodeStanding> standings_;    // by slot
  std::vector<Nodes::value_type*> slots_;  // by slot; null: no registered life
};

}  // namespace tokura::coordinator
