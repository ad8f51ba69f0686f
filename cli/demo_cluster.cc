#include "cli/demo_cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura::cli {

absl::StatusOr<std::unique_ptr<DemoCluster>> DemoCluster::Start(
    const std::vector<std::string>& nodes) {
  std::unique_ptr<DemoCluster> cluster(new DemoCluster);
  TOKURA_RETURN_IF_ERROR(cluster->StartCoordinator("127.0.0.1:0"));
  for (const std::string& name : nodes) {
    TOKURA_RETURN_IF_ERROR(cluster->StartNode(name));
  }
  return cluster;
}

void DemoCluster::KeepLog(const std::string& name, const ServerProcess* maybe_server) {
  if (maybe_server != nullptr) {
    absl::StrAppend(&ended_logs_, name, "'s log:\n", maybe_server->Log());
  }
}

void DemoCluster::KillNode(const std::string& name) {
  KeepLog(name, nodes_[name].get());
  nodes_.erase(name);
}

absl::Status DemoCluster::StartCoordinator(const std::string& listen) {
  // Small segments and no ramp: a short prompt is to lie on both nodes from the start.
  TOKURA_ASSIGN_OR_RETURN(
      coordinator_, ServerProcess::Start({.program = "tokura-coordinator",
                                          .name = "coordinator",
                                          .flags = {"--segment-blocks", "4", "--join-ramp", "0s"},
                                          .listen = listen}));
  address_ = coordinator_->ports().data;
  return absl::OkStatus();
}

absl::Status DemoCluster::StartNode(const std::string& name) {
  TOKURA_ASSIGN_OR_RETURN(
      nodes_[name],
      ServerProcess::Start({.program = "tokura-node",
                            .name = name,
                            .flags = {"--coordinator", address_, "--host-bytes", "256MiB"}}));
  return absl::OkStatus();
}

absl::Status DemoCluster::RestartCoordinator() {
  KeepLog("coordinator", coordinator_.get());
  coordinator_.reset();
  return StartCoordinator(address_);
}

std::string DemoCluster::Logs() const {
  std::string text = ended_logs_;
  if (coordinator_ != nullptr) {
    absl::StrAppend(&text, "coordinator's log:\n", coordinator_->Log());
  }
  for (const auto& [name, node] : nodes_) {
    absl::StrAppend(&text, name, "'s log:\n", node != nullptr ? node->Log() : "");
  }
  return text;
}

}  // namespace tokura::cli
