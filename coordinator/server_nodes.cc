#include "coordinator/server_nodes.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tokura::coordinator {
namespace {

// Loads are compared in units of so many bytes.
constexpr uint64_t kLoadUnit = 1024;

NodeStanding::Use UseOf(const proto::Member& member, const NodeTable::Node& node) {
  // A node that leaves refuses new requests before long. One whose connection has ended has mostly
  // died: long before it is suspected, others are better holders, and a put of what only it holds
  // is not needless.
  return member.state() == proto::Member::UP && node.connection != 0
             ? NodeStanding::Use::kUsable
             : NodeStanding::Use::kLastResort;
}

}  // namespace

NodeTable::Node& NodeTable::Register(const std::string& name, const NodeLife& life,
                                     uint64_t connection, TimePoint now) {
  Node& node = nodes_[name];
  if (node.incarnation != life.incarnation) {
    node.used_bytes = node.inflight_bytes = node.promised_bytes = 0;
  }
  node.incarnation = life.incarnation;
  node.slot = life.slot;
  node.connection = connection;
  node.last_heard = now;
  metrics_.TouchesEnded(NoteResult::kStale, node.touches.StartLife(life.incarnation));
  if (bugs_.keep_orphans_of_old_lives) {
    node.orphans.RenameLife(life.incarnation);
  } else {
    metrics_.OrphansEnded(NoteResult::kStale, node.orphans.StartLife(life.incarnation));
  }
  return node;
}

NodeTable::Node* NodeTable::Find(std::string_view name) {
  auto it = nodes_.find(name);
  return it == nodes_.end() ? nullptr : &it->second;
}

NodeTable::Node* NodeTable::Find(std::string_view name, uint64_t connection) {
  Node* node = Find(name);
  return node != nullptr && node->connection == connection ? node : nullptr;
}

std::vector<std::string> NodeTable::Erase(
    absl::FunctionRef<bool(const std::string&, const Node&)> gone) {
  std::vector<std::string> erased;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const Node& node = it->second;
    if (node.connection != 0 || !gone(it->first, node)) {
      ++it;
      continue;
    }
    metrics_.TouchesEnded(NoteResult::kStale, node.touches.size());
    metrics_.OrphansEnded(NoteResult::kStale, node.orphans.size());
    if (node.slot < slots_.size() && slots_[node.slot] == &*it) {
      slots_[node.slot] = nullptr;
    }
    erased.push_back(it->first);
    it = nodes_.erase(it);
  }
  return erased;
}

void NodeTable::Judge(const proto::ClusterState& state, const Inventory& inventory) {
  std::map<std::string_view, const proto::Member*> members;
  for (const proto::Member& member : state.members()) {
    members.emplace(member.node(), &member);
  }
  standings_.assign(inventory.slots(), NodeStanding());
  slots_.assign(inventory.slots(), nullptr);
  for (const NodeLife* life : inventory.Lives()) {
    auto node = nodes_.find(life->node);
    if (node == nodes_.end()) {
      continue;
    }
    slots_[life->slot] = &*node;
    auto member = members.find(life->node);
    if (member != members.end() && member->second->incarnation() == life->incarnation) {
      standings_[life->slot].use = UseOf(*member->second, node->second);
    }
    ShowLoad(node->second);
  }
}

const std::pair<const std::string, NodeTable::Node>* NodeTable::At(NodeSlot slot) const {
  return slot < slots_.size() ? slots_[slot] : nullptr;
}

void NodeTable::Reported(Node& node, const proto::ReportRequest& report, TimePoint now) {
  node.last_heard = now;
  node.used_bytes = report.used_bytes();
  node.inflight_bytes = report.inflight_bytes();
  node.promised_bytes = 0;
  ShowLoad(node);
}

void NodeTable::Promise(NodeSlot slot, uint64_t bytes) {
  if (slot < slots_.size() && slots_[slot] != nullptr) {
    Node& node = slots_[slot]->second;
    node.promised_bytes += bytes;
    ShowLoad(node);
  }
}

void NodeTable::ShowLoad(const Node& node) {
  if (node.slot < standings_.size()) {
    // Each counted alone, so that no sum of what peers say can wrap.
    const uint64_t load = node.inflight_bytes / kLoadUnit + node.promised_bytes / kLoadUnit;
    standings_[node.slot].load =
        static_cast<uint32_t>(std::min<uint64_t>(load, std::numeric_limits<uint32_t>::max()));
  }
}

void NodeTable::Touched(NodeSlot slot, const BlockKey& key) {
  if (slot >= slots_.size() || slots_[slot] == nullptr) {
    return;
  }
  if (!slots_[slot]->second.touches.Add(key)) {
    ++touches_dropped_;
  }
}

void NodeTable::Orphaned(NodeSlot slot, const BlockKey& key) {
  if (slot >= slots_.size() || slots_[slot] == nullptr) {
    return;
  }
  if (!slots_[slot]->second.orphans.Add(key)) {
    ++orphans_dropped_;
  }
}

void NodeTable::CountDropped() {
  metrics_.TouchesEnded(NoteResult::kDropped, std::exchange(touches_dropped_, 0));
  metrics_.OrphansEnded(NoteResult::kDropped, std::exchange(orphans_dropped_, 0));
}

size_t NodeTable::touches_waiting() const {
  size_t waiting = 0;
  for (const auto& [name, node] : nodes_) {
    waiting += node.touches.size();
  }
  return waiting;
}

size_t NodeTable::orphans_waiting() const {
  size_t waiting = 0;
  for (const auto& [name, node] : nodes_) {
    waiting += node.orphans.size();
  }
  return waiting;
}

}  // namespace tokura::coordinator
