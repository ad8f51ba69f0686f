#pragma once

// The processes of a simulated cluster. One that has been killed is a ghost: the rest of the world
// has lost it, and it is taken down in its own time, because its objects may only be destroyed in
// their own ways.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache-node/node.h"
#include "coordinator/coordinator.h"
#include "tests/sim/host.h"
#include "tests/sim/kv_universe.h"
#include "tests/sim/transport.h"
#include "tokura/client_core.h"

namespace tokura::sim {

struct NodeProcess {
  std::string name;
  net::Address address;
  std::unique_ptr<SimHost> host;
  std::vector<std::unique_ptr<SimTransport>> transports;  // one for each of its loops
  std::unique_ptr<node::Node> node;
  bool ghost = false;
  bool leaving = false;
  bool ended = false;
};

struct CoordinatorProcess {
  std::string name;
  net::Address address;
  std::unique_ptr<SimHost> host;
  std::unique_ptr<SimTransport> transport;
  std::unique_ptr<coordinator::Coordinator> coordinator;
  bool ghost = false;
  bool ended = false;
};

struct ClientProcess;

// What a client has acquired.
struct Lease {
  const ClientProcess* owner = nullptr;
  Match match;
  TimePoint asked;  // when the acquire began
  bool released = false;
};

struct ClientProcess {
  std::unique_ptr<SimHost> host;
  std::unique_ptr<SimTransport> transport;
  std::unique_ptr<ClientCore> core;
  std::vector<std::shared_ptr<KvBuffer>> free_buffers;  // shared with operations that use them
  std::vector<std::shared_ptr<Lease>> leases;           // shared with their readers
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

}  // namespace tokura::sim
