#pragma once

// A simulated cluster: nodes, clients and, but for some seeds, coordinators; started, killed and
// taken down.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/processes.h"

namespace tokura::sim {

// What a seed would choose otherwise, for scenarios that are about something else.
struct ClusterShape {
  size_t coordinators = 1;
  size_t nodes = 2;
  size_t clients = 2;
  uint64_t host_bytes = 32 * 1024;  // of each node
};

struct ClusterOptions {
  uint64_t seed = 1;
  node::PlantedBugs node_bugs = {};
  ClientPlantedBugs client_bugs = {};
  coordinator::PlantedBugs coordinator_bugs = {};
  std::optional<ClusterShape> shape = std::nullopt;
  std::string policy_file = "";  // of the holder; empty: no rules
};

class Cluster {
 public:
  static constexpr size_t kNodesMax = 5;

  explicit Cluster(const ClusterOptions& options);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster();

  SimScheduler& scheduler() { return scheduler_; }
  SimRandom& random() { return scheduler_.random(); }
  SimNetwork& network() { return network_; }
  size_t nodes() const { return nodes_.size(); }
  size_t clients() const { return clients_.size(); }
  // 0: clients know the nodes' addresses themselves.
  size_t coordinators() const { return coordinators_.size(); }
  bool coordinated() const { return !coordinators_.empty(); }
  int node_loops() const { return node_loops_; }
  // The process in a place; a ghost while the place waits for its next process.
  NodeProcess& node(size_t index) { return *nodes_[index]; }
  CoordinatorProcess& coordinator(size_t index) { return *coordinators_[index]; }
  ClientProcess& client(size_t index) { return *clients_[index]; }
  // Machines of everything, for links.
  std::vector<std::string> machines() const;
  // Called with the host of every process that is killed.
  void set_on_death(std::function<void(const SimHost&)> on_death) {
    on_death_ = std::move(on_death);
  }

  // Kill the process; after `down`, or when the cluster heals, another one starts in its place
  // (empty, with a higher incarnation).
  void CrashNode(size_t index, SimNetwork::Death death, Duration down);
  void CrashCoordinator(size_t index, Duration down);
  // Some node's clock went back: a holder that forgets the last incarnation of its name could hand
  // out one below it (proto/WIRE.md names this limit), so this run's holder does not crash.
  bool holder_must_remember() const { return holder_must_remember_; }
  void CrashClient(size_t index);
  // Drain the process as for a restart; `down` after it has ended another one starts in its place.
  void LeaveNode(size_t index, Duration down);
  // Start one more node, while there are less than kNodesMax.
  void JoinNode();
  // Clients that were killed, in that order.
  const std::vector<const ClientProcess*>& crashed_clients() const { return crashed_clients_; }
  // Start a replacement of node `index` on another machine; returns the old process, which lives
  // on. Clients that know addresses are given the new one, and the old one too.
  enum class OldAddress { kForgotten, kListed };
  NodeProcess& ReplaceNode(size_t index, OldAddress old_address);
  void Kill(NodeProcess& process, SimNetwork::Death death);

  // The end: every process continues, every place has one, every link is as it should be.
  void Heal();
  void StopClients();
  void StopNodes();
  void StopCoordinators();
  bool AllEnded() const;
  // A client that asks coordinator `index` only.
  void StartAuditor(size_t index = 0);
  // A client that knows node `index` only and asks no coordinator; its place among the clients.
  size_t StartNodeClient(size_t index);
  // Nodes that had heard, when they were killed, that a newer process has their name.
  uint64_t superseded() const { return superseded_; }
  // How long everything takes to settle after Heal, at most.
  Duration settling() const;

 private:
  void ChooseOptions();
  void AddNode(size_t index, net::Address address);
  void AddCoordinator(size_t index);
  void AddClient(size_t index, const ClientOptions& options);
  void Relist();
  std::vector<std::string> NodeList() const;
  std::vector<net::Address> CoordinatorList() const;
  SimHost::Options HostOptions(std::string name, std::string ip);
  void Bury(SimHost& host, SimNetwork::Death death);
  void Shutdown(ClientProcess& client);
  void Drain(NodeProcess& node);
  void Drain(CoordinatorProcess& coordinator);
  void AwaitLeave(size_t index, const NodeProcess& process, Duration down);
  void Reoccupy(size_t index, const NodeProcess& former);
  void Reoccupy(size_t index, const CoordinatorProcess& former);

  const ClusterOptions options_;
  SimScheduler scheduler_;
  SimNetwork network_;
  node::NodeOptions node_options_;
  coordinator::CoordinatorOptions coordinator_options_;
  ClientOptions client_options_;
  Duration step_delay_max_{0};
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
  std::vector<std::unique_ptr<CoordinatorProcess>> coordinators_;
  std::vector<std::unique_ptr<ClientProcess>> clients_;
  std::vector<std::unique_ptr<NodeProcess>> former_nodes_;  // ghosts and zombies
  std::vector<std::unique_ptr<CoordinatorProcess>> former_coordinators_;
  std::vector<std::unique_ptr<ClientProcess>> former_clients_;
  std::vector<std::string> old_addresses_;             // of zombies, still listed
  std::vector<const ClientProcess*> crashed_clients_;  // of former_clients_
  std::function<void(const SimHost&)> on_death_;
  int node_loops_ = 1;
  int processes_ = 0;
  uint64_t superseded_ = 0;
  int replacements_ = 0;  // each on a machine of its own
  bool holder_crashed_ = false;
  bool holder_must_remember_ = false;
  bool healed_ = false;
};

}  // namespace tokura::sim
