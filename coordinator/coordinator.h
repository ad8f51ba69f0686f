#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"
#include "common/net/transport.h"
#include "common/random.h"
#include "common/time.h"

namespace prometheus {
class Registry;
}

namespace tokura::coordinator {

struct CoordinatorOptions {
  std::string name = "coordinator-0";
  net::Address listen{"127.0.0.1", 0};
  net::Address admin{"127.0.0.1", 0};
  // "memory": this one holds membership and policy. "coordinator://H:P": follow the one there.
  std::string metadata = "memory";
  std::string policy_file;       // YAML, read by the holder at its start; empty: no rules
  uint32_t segment_blocks = 32;  // blocks of a chain that are placed together; the holder's counts
  Duration join_ramp =
      std::chrono::seconds(60);  // a new node's share grows to all of it; 0: at once
  uint32_t replicas = 2;         // nodes that get the blocks of hot segments
  uint32_t hot_lookups =
      600;  // lookups of a block per minute that make its segment hot; 0: none is
  uint64_t blocks_max = uint64_t{1} << 26;  // that the index knows; more are refused and counted
  Duration report_interval = std::chrono::milliseconds(250);
  Duration suspect_after = std::chrono::milliseconds(1000);
  Duration remove_after = std::chrono::seconds(10);
  // A holder that starts again waits so long for the nodes it had before it publishes.
  Duration forming = std::chrono::milliseconds(1500);
  uint32_t keys_max = 16384;  // per request
  uint32_t connections_max = 4096;
  uint32_t requests_max = 256;  // outstanding per connection
  Duration heartbeat = std::chrono::milliseconds(250);
  Duration dead_after = std::chrono::milliseconds(1000);
  Duration drain_timeout = std::chrono::seconds(2);
  uint64_t incarnation = 0;  // 0: the clock's microseconds since the epoch
};

// INVALID_ARGUMENT names the option and the rule it breaks; for a policy file, its line.
absl::Status ValidateCoordinatorOptions(const CoordinatorOptions& options);

// Planted bugs, for the simulation's own test only: each must be found by its checker.
struct PlantedBugs {
  bool ignore_gaps = false;                // take a delta that does not follow the last one
  bool keep_orphans_of_old_lives = false;  // name a node's queued orphans by its new incarnation
  bool accept_lower_incarnation = false;   // let a zombie register
  bool restart_epoch_at_one = false;       // do not go on above what others have seen
};

// A coordinator on a given transport: finds the longest cached prefix, keeps the members, places
// puts. One thread, the transport's; handed its time, randomness and network, so that the
// simulation runs it unchanged. The admin HTTP server belongs to the program.
class Coordinator {
 public:
  struct Dependencies {
    net::Transport& transport;
    const Clock& clock;
    RandomSource& random;
    std::shared_ptr<prometheus::Registry> metrics;
  };
  // On the transport's thread. INVALID_ARGUMENT: an option, or the policy file.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(Dependencies dependencies,
                                                             CoordinatorOptions options,
                                                             PlantedBugs bugs = {});
  // Only after Drain's callback ran (or the transport's thread has stopped).
  virtual ~Coordinator() = default;

  // Listen. UNAVAILABLE: the address is in use or not local.
  virtual absl::Status Start() = 0;
  virtual net::Address address() const = 0;
  // Say GOODBYE, answer what is outstanding (bounded by drain_timeout), close; then call `done`.
  virtual void Drain(Task done) = 0;
  // For /healthz and /readyz: ready once it has a cluster state. Any thread.
  virtual absl::Status Healthy() const = 0;
  virtual absl::Status Ready() const = 0;
  // What tests compare when everything is idle. The transport's thread.
  struct Accounting {
    uint64_t epoch = 0;
    uint64_t members = 0, blocks = 0, forms = 0, connections = 0;
    uint64_t sources_dropped = 0;  // lives of nodes whose forms are still being swept
  };
  virtual Accounting accounting() const = 0;
};

// A whole coordinator process: transport, thread, admin server. What tokura-coordinator's main and
// `tokura up` run.
class CoordinatorProcess {
 public:
  struct Addresses {
    net::Address data, admin;
  };
  static absl::StatusOr<std::unique_ptr<CoordinatorProcess>> Start(CoordinatorOptions options);
  virtual ~CoordinatorProcess() = default;
  virtual Addresses addresses() const = 0;
  // Drain and stop; returns when done.
  virtual void Shutdown() = 0;
};

}  // namespace tokura::coordinator
