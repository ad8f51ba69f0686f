#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"
#include "common/net/transport.h"
#include "common/profile_paths.h"
#include "common/random.h"
#include "common/time.h"

namespace prometheus {
class Registry;
}

namespace tokura::node {

struct NodeOptions {
  std::string name = "node-0";
  net::Address listen{"127.0.0.1", 0};
  net::Address admin{"127.0.0.1", 0};
  uint64_t host_bytes = uint64_t{1} << 30;
  // Take all of host_bytes from the system before serving: no put waits for fresh pages. Programs
  // do; simulations and tests, which make thousands of nodes, do not.
  bool prefault = false;
  int64_t io_threads = 1;
  double high_watermark = 0.95;  // of host_bytes: evict above it, down to
  double low_watermark = 0.90;
  Duration lease_age = std::chrono::seconds(10);
  Duration lease_age_max = std::chrono::seconds(60);
  Duration incomplete_age = std::chrono::seconds(60);
  uint64_t part_bytes_max = uint64_t{64} << 20;
  uint32_t keys_max = 16384;
  uint32_t blocks_max = 4096;
  uint32_t connections_max = 1024;
  uint32_t requests_max = 256;  // outstanding per connection
  uint64_t inflight_bytes_max = uint64_t{256}
                                << 20;  // payload bytes being sent or received, whole node
  Duration heartbeat = std::chrono::milliseconds(250);
  Duration dead_after = std::chrono::milliseconds(1000);
  Duration drain_timeout = std::chrono::seconds(5);
  bool verify_on_put = true;
  // Model profiles that the process reads and names under /version; one that cannot be used keeps
  // it from starting. Storing and serving blocks takes none: their bytes are not decoded here.
  ProfilePaths profiles;
  uint64_t incarnation = 0;  // 0: the clock's microseconds since the epoch
  // Coordinators to register with; none: the node is found by its address only.
  std::vector<net::Address> coordinators;
  // What coordinators and, through them, clients are told; a port of 0, or an empty host: as
  // listened on.
  net::Address advertise;
  uint64_t change_log_max = uint64_t{1} << 20;  // changes that coordinators may lag behind
  uint32_t inventory_keys_max = 1024;           // of one batch, and so of a chunk of a snapshot
};

// INVALID_ARGUMENT names the option and the rule it breaks.
absl::Status ValidateNodeOptions(const NodeOptions& options);

// Planted bugs, for the simulation's own test only: each must be found by its checker.
struct PlantedBugs {
  bool skip_crc = false;
  bool evict_pinned = false;
  bool accept_late_write = false;
  bool skip_delta = false;            // leave a change out of the inventory, without a gap
  bool accept_old_placement = false;  // take puts placed before the node began to leave
  bool accept_old_orphans = false;    // apply orphans that are about another incarnation
  bool release_twice = false;         // a lease's second release lets go of pins again
  bool remove_unchecked = false;      // take clients' word for it that a block is damaged
  bool keep_damaged = false;          // find damage, and leave it where it is
};

// A cache node on given transports (one per I/O thread; all share the store). Handed its time,
// randomness and network, so that the simulation runs it unchanged. The admin HTTP server and the
// threads belong to the program (main.cc).
class Node {
 public:
  struct Dependencies {
    std::vector<net::Transport*> transports;  // ≥ 1; the first one's executor runs the maintenance
    const Clock& clock;
    RandomSource& random;
    WorkerPool& pool;  // checksum verification
    std::shared_ptr<prometheus::Registry> metrics;
    // Runs at most once, on the first transport's thread, when superseded() becomes true.
    std::function<void()> maybe_on_superseded = nullptr;
  };
  // On the first transport's thread. INVALID_ARGUMENT: an option; RESOURCE_EXHAUSTED: the arena
  // could not be allocated or registered.
  static absl::StatusOr<std::unique_ptr<Node>> Create(Dependencies dependencies,
                                                      NodeOptions options, PlantedBugs bugs = {});
  // Only after Drain's callback ran (or the transports' threads have stopped).
  virtual ~Node() = default;

  // Listen. On the first transport's thread. UNAVAILABLE: the address is in use or not local.
  virtual absl::Status Start() = 0;
  virtual net::Address address() const = 0;
  // May rise once after the start, when a coordinator hands out a higher one.
  virtual uint64_t incarnation() const = 0;
  // A newer process of this name is known to a coordinator: this one serves nobody any more and
  // should end. Ready() says why and what to do. Any thread.
  virtual bool superseded() const = 0;
  // Stop accepting, say GOODBYE, let outstanding requests finish (bounded by drain_timeout), close.
  // `done` runs on the first transport's thread.
  virtual void Drain(Task done) = 0;
  // For /healthz and /readyz. Any thread.
  virtual absl::Status Healthy() const = 0;
  virtual absl::Status Ready() const = 0;
  // Invariants that tests check when everything is idle. Any thread.
  struct Accounting {
    uint64_t used_bytes = 0, pinned_forms = 0, leases = 0, blocks = 0, incomplete_blocks = 0,
             connections = 0;
    uint64_t largest_free_bytes = 0;
    uint64_t orphaned_blocks = 0;  // of `blocks`: their prefix is gone, they go first
    uint64_t checks = 0;           // blocks being checked for damage, which pins their forms
    uint64_t damaged_forms = 0;    // removed since the start because their bytes were wrong
  };
  virtual Accounting accounting() const = 0;
};

// A whole node process: transports, threads, admin server. What tokura-node's main and `tokura up`
// run.
class NodeProcess {
 public:
  struct Addresses {
    net::Address data, admin;
  };
  // `maybe_on_failure` runs once, on a thread of the process, when failure() is not OK any more.
  static absl::StatusOr<std::unique_ptr<NodeProcess>> Start(
      NodeOptions options, std::function<void()> maybe_on_failure = nullptr);
  virtual ~NodeProcess() = default;
  virtual Addresses addresses() const = 0;
  // Why the process serves nobody any more and has to end, with what to do about it:
  // FAILED_PRECONDITION, a newer process of its name is known (Node::superseded). Any thread.
  virtual absl::Status failure() const = 0;
  // Drain and stop; returns when done.
  virtual void Shutdown() = 0;
};

}  // namespace tokura::node
