#include "cli/up_command.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache-node/node.h"
#include "cli/output.h"
#include "common/config.h"
#include "common/net/address_option.h"
#include "common/net/transport.h"
#include "common/port_file.h"
#include "common/profile_paths.h"
#include "common/status_macros.h"
#include "common/stop_signals.h"
#include "coordinator/coordinator.h"

namespace tokura::cli {
namespace {

struct UpFlags {
  std::string listen = "127.0.0.1:0";
  std::string admin = "127.0.0.1:0";
  std::string node_listen = "127.0.0.1:0";
  std::string coordinator_admin = "127.0.0.1:0";
  std::string port_file;
  bool allow_unauthenticated = false;
  node::NodeOptions node;
  coordinator::CoordinatorOptions coordinator;
};

bool IsLoopback(const net::Address& address) {
  return address.host.rfind("127.", 0) == 0 || address.host == "::1" || address.host == "localhost";
}

// Check the flags and complete the options of both servers.
absl::Status Resolve(UpFlags* flags) {
  TOKURA_ASSIGN_OR_RETURN(flags->coordinator.listen,
                          net::ParseAddressOption("listen", flags->listen));
  TOKURA_ASSIGN_OR_RETURN(flags->coordinator.admin,
                          net::ParseAddressOption("coordinator-admin", flags->coordinator_admin));
  TOKURA_ASSIGN_OR_RETURN(flags->node.listen,
                          net::ParseAddressOption("node-listen", flags->node_listen));
  TOKURA_ASSIGN_OR_RETURN(flags->node.admin, net::ParseAddressOption("admin", flags->admin));
  // The only node takes all from the start.
  flags->coordinator.join_ramp = Duration::zero();
  for (const net::Address& address : {flags->coordinator.listen, flags->node.listen}) {
    if (!IsLoopback(address) && !flags->allow_unauthenticated) {
      return absl::InvalidArgumentError(
          absl::StrCat(address.ToString(),
                       " is reachable from other machines and clients are not authenticated; say "
                       "--allow-unauthenticated if the network is trusted"));
    }
  }
  TOKURA_RETURN_IF_ERROR(coordinator::ValidateCoordinatorOptions(flags->coordinator));
  return node::ValidateNodeOptions(flags->node);
}

std::string ReadyText(const coordinator::CoordinatorProcess::Addresses& coordinator,
                      const node::NodeProcess::Addresses& node) {
  const std::string data = coordinator.data.ToString();
  const std::string http = "http://" + node.admin.ToString();
  return absl::StrCat("ready: a coordinator listens on ", data, ", a cache node on ",
                      node.data.ToString(), "\n  metrics   ", http, "/metrics (node)  http://",
                      coordinator.admin.ToString(), "/metrics (coordinator)\n  health    ", http,
                      "/healthz\n  try it    tokura put --coordinator ", data,
                      " --kv tests/data/kv/prefix.kvcap\nStop it with Ctrl-C or SIGTERM.\n");
}

// A coordinator and the node that knows it, in one process.
struct UpProcess {
  std::unique_ptr<coordinator::CoordinatorProcess> coordinator;
  std::unique_ptr<node::NodeProcess> node;

  static absl::StatusOr<UpProcess> Start(const UpFlags& flags) {
    UpProcess up;
    TOKURA_ASSIGN_OR_RETURN(up.coordinator,
                            coordinator::CoordinatorProcess::Start(flags.coordinator));
    node::NodeOptions node = flags.node;
    node.coordinators = {up.coordinator->addresses().data};
    TOKURA_ASSIGN_OR_RETURN(up.node, node::NodeProcess::Start(std::move(node), StopSignals::Raise));
    return up;
  }
  // The node first: it tells the coordinator that it leaves.
  void Shutdown() {
    node->Shutdown();
    coordinator->Shutdown();
  }
};

absl::Status Serve(const UpFlags& flags) {
  OwnPortFile port_file(flags.port_file);
  const StopSignals signals;
  absl::StatusOr<UpProcess> process = absl::UnknownError("not started");
  signals.RunBlocked([&] { process = UpProcess::Start(flags); });
  TOKURA_RETURN_IF_ERROR(process.status());
  signals.Block();
  const auto coordinator = process->coordinator->addresses();
  const auto node = process->node->addresses();
  TOKURA_RETURN_IF_ERROR(port_file.Write({{"data", coordinator.data.ToString()},
                                          {"node", node.data.ToString()},
                                          {"admin", node.admin.ToString()},
                                          {"coordinator_admin", coordinator.admin.ToString()}}));
  const Output output("");
  output.Print(ReadyText(coordinator, node));
  signals.WaitForOne();
  const absl::Status failure = process->node->failure();
  output.Print("stopping: finishing what is under way (a second signal ends at once)\n");
  signals.LetThrough();
  process->Shutdown();
  return failure;
}

}  // namespace

int RunUp(const std::vector<std::string>& args) {
  UpFlags flags;
  OptionTable options(
      "tokura up", "Run a coordinator and a cache node in this process, until SIGTERM or Ctrl-C.");
  flags.node.prefault = true;
  options.AddBytes("host-bytes", &flags.node.host_bytes, "host memory for blocks");
  options.AddString("listen", &flags.listen,
                    "host:port of the coordinator, where clients begin; port 0: a free one");
  options.AddString("node-listen", &flags.node_listen, "host:port of the node");
  options.AddString("admin", &flags.admin, "host:port for HTTP of the node: metrics, health");
  options.AddString("coordinator-admin", &flags.coordinator_admin,
                    "host:port for HTTP of the coordinator");
  options.AddString("policy", &flags.coordinator.policy_file,
                    "YAML file with the rules for clients (deploy/policy.yaml shows one)");
  options.AddString("port-file", &flags.port_file,
                    "write the addresses to this file when ready, NAME=HOST:PORT a line");
  options.AddString("name", &flags.node.name, "of the node; at most one is up under a name");
  options.AddInt("io-threads", &flags.node.io_threads, "threads for clients' connections");
  AddProfileOptions(&options, &flags.node.profiles);
  options.AddBool("allow-unauthenticated", &flags.allow_unauthenticated,
                  "listen beyond loopback although clients are not authenticated");
  options.AddExample("tokura up --host-bytes 4GiB --listen 127.0.0.1:7421",
                     "a coordinator on port 7421 and a node with 4 GiB for blocks");
  options.AddCheck([&] { return Resolve(&flags); });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const absl::Status status = Serve(flags);
  return status.ok() ? kExitOk : Fail("up", status);
}

}  // namespace tokura::cli
