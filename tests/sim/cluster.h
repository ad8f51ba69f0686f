#pragma once

// The processes of a simulated cluster: nodes and clients, started, killed and taken down.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache-node/node.h"
#include "tests/sim/host.h"
#include "tests/sim/kv_universe.h"
#include "tests/sim/transport.h"
#include "tokura/client_core.h"

namespace tokura::sim {

// A process that has been killed is a ghost: the rest of the world has lost it, and it is taken
// down in its own time, because its objects may only be destroyed in their own ways.
struct NodeProcess {
  std::string name;
  net::Address address;
  std::unique_ptr<SimHost> host;
  std::vector<std::unique_ptr<SimTransport>> transports;  // one for each of its loops
  std::unique_ptr<node::Node> node;
  bool ghost = false;
  bool ended = false;
};

struct ClientProcess {
  std::unique_ptr<SimHost> host;
  std::unique_ptr<SimTransport> transport;
  std::unique_ptr<ClientCore> core;
  std::vector<std::shared_ptr<KvBuffer>> free_buffers;  // shared with operations that use them
  std::vector<Match> held;                              // leases
  struct Seen {
    uint64_t highest = 0;
    TimePoint since;  // when it was first heard of
  };
  std::map<std::string, Seen> incarnations;  // by node name
  TimePoint disturbed;                       // of the last fault that touched it
  TimePoint continued;                       // end of its last pause
  bool ghost = false;
  bool ended = false;
};

struct ClusterOptions {
  uint64_t seed = 1;
  node::PlantedBugs node_bugs;
  ClientPlantedBugs client_bugs;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster();

  SimScheduler& scheduler() { return scheduler_; }
  SimRandom& random() { return scheduler_.random(); }
  SimNetwork& network() { return network_; }
  size_t nodes() const { return nodes_.size(); }
  size_t clients() const { return clients_.size(); }
  int node_loops() const { return node_loops_; }
  NodeProcess& node(size_t index) { return *nodes_[index]; }
  ClientProcess& client(size_t index) { return *clients_[index]; }
  // Machines of everything, for links.
  std::vector<std::string> machines() const;

  // Kill the process and start a new one in its place (empty arena, higher incarnation).
  void CrashNode(size_t index, SimNetwork::Death death);
  void CrashClient(size_t index);
  // Clients that were killed, in that order.
  const std::vector<const ClientProcess*>& crashed_clients() const { return crashed_clients_; }
  // Start a replacement of node `index` on another machine and give it to the clients; returns the
  // old process, which lives on.
  NodeProcess& ReplaceNode(size_t index, bool keep_old_address);
  void Kill(NodeProcess& process, SimNetwork::Death death);

  // The end: every process continues, every link is as it should be.
  void Heal();
  void StopClients();
  void StopNodes();
  bool AllEnded() const;
  void StartAuditor();

 private:
  void AddNode(size_t index, net::Address address);
  void AddClient(size_t index);
  std::vector<std::string> NodeList() const;
  SimHost::Options HostOptions(std::string name, std::string ip);
  void Shutdown(ClientProcess& client);
  void Drain(NodeProcess& node);

  const ClusterOptions options_;
  SimScheduler scheduler_;
  SimNetwork network_;
  node::NodeOptions node_options_;
  ClientOptions client_options_;
  Duration step_delay_max_{0};
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
  std::vector<std::unique_ptr<ClientProcess>> clients_;
  std::vector<std::unique_ptr<NodeProcess>> former_nodes_;  // ghosts and zombies
  std::vector<std::unique_ptr<ClientProcess>> former_clients_;
  std::vector<std::string> old_addresses_;             // of zombies, still listed
  std::vector<const ClientProcess*> crashed_clients_;  // of former_clients_
  int node_loops_ = 1;
  int processes_ = 0;
  int replacements_ = 0;  // each on a machine of its own
};

}  // namespace tokura::sim
