#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/server_process.h"

namespace tokura::cli {

// The demo's cluster: a coordinator and some cache nodes, each a process of its own. All of them
// end with this object. Thread-compatible.
class DemoCluster {
 public:
  // Start a coordinator and nodes of these names, and wait until each serves. UNAVAILABLE: one did
  // not start; the message has its log.
  static absl::StatusOr<std::unique_ptr<DemoCluster>> Start(const std::vector<std::string>& nodes);

  // Of the coordinator, the same after RestartCoordinator.
  const std::string& coordinator() const { return address_; }
  // As a machine dies: without a word.
  void KillNode(const std::string& name);
  // A new process of that name, with nothing in it.
  absl::Status StartNode(const std::string& name);
  // Kill the coordinator and start a new one at its address.
  absl::Status RestartCoordinator();
  // What all processes logged, for a message about a failure.
  std::string Logs() const;

 private:
  DemoCluster() = default;
  absl::Status StartCoordinator(const std::string& listen);
  void KeepLog(const std::string& name, const ServerProcess* maybe_server);

  std::string address_;
  std::unique_ptr<ServerProcess> coordinator_;
  std::map<std::string, std::unique_ptr<ServerProcess>> nodes_;  // by name
  std::string ended_logs_;                                       // of processes that are gone
};

}  // namespace tokura::cli
