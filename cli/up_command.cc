#include "cli/up_command.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cache-node/node.h"
#include "cli/output.h"
#include "common/config.h"
#include "common/net/transport.h"
#include "common/port_file.h"
#include "common/status_macros.h"
#include "common/stop_signals.h"

namespace tokura::cli {
namespace {

struct UpFlags {
  std::string listen = "127.0.0.1:0";
  std::string admin = "127.0.0.1:0";
  std::string port_file;
  bool allow_unauthenticated = false;
  node::NodeOptions node;
};

// Check the flags and complete the node's options.
absl::Status Resolve(UpFlags* flags) {
  TOKURA_ASSIGN_OR_RETURN(flags->node.listen, net::Address::Parse(flags->listen));
  TOKURA_ASSIGN_OR_RETURN(flags->node.admin, net::Address::Parse(flags->admin));
  const std::string& host = flags->node.listen.host;
  const bool loopback = host.rfind("127.", 0) == 0 || host == "::1" || host == "localhost";
  if (!loopback && !flags->allow_unauthenticated) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", flags->listen,
                     " is reachable from other machines and clients are not authenticated; say "
                     "--allow-unauthenticated if the network is trusted"));
  }
  return node::ValidateNodeOptions(flags->node);
}

std::string ReadyText(const node::NodeProcess::Addresses& addresses) {
  const std::string data = addresses.data.ToString();
  const std::string http = "http://" + addresses.admin.ToString();
  return absl::StrCat("ready: a cache node listens on ", data, "\n  metrics   ", http,
                      "/metrics\n  health    ", http, "/healthz\n  try it    tokura put --node ",
                      data, " --kv tests/data/kv/prefix.kvcap\nStop it with Ctrl-C or SIGTERM.\n");
}

absl::Status Serve(const UpFlags& flags) {
  OwnPortFile port_file(flags.port_file);
  const StopSignals signals;
  absl::StatusOr<std::unique_ptr<node::NodeProcess>> process = absl::UnknownError("not started");
  signals.RunBlocked([&] { process = node::NodeProcess::Start(flags.node); });
  TOKURA_RETURN_IF_ERROR(process.status());
  signals.Block();
  const node::NodeProcess::Addresses addresses = (*process)->addresses();
  TOKURA_RETURN_IF_ERROR(port_file.Write(
      {{"data", addresses.data.ToString()}, {"admin", addresses.admin.ToString()}}));
  const Output output("");
  output.Print(ReadyText(addresses));
  signals.WaitForOne();
  output.Print("stopping: finishing what is under way (a second signal ends at once)\n");
  signals.LetThrough();
  (*process)->Shutdown();
  return absl::OkStatus();
}

}  // namespace

int RunUp(const std::vector<std::string>& args) {
  UpFlags flags;
  OptionTable options("tokura up", "Run a cache node in this process, until SIGTERM or Ctrl-C.");
  flags.node.prefault = true;
  options.AddBytes("host-bytes", &flags.node.host_bytes, "host memory for blocks");
  options.AddString("listen", &flags.listen, "host:port for clients; port 0: a free one");
  options.AddString("admin", &flags.admin, "host:port for HTTP: metrics, health, version");
  options.AddString("port-file", &flags.port_file,
                    "write the addresses to this file when ready, NAME=HOST:PORT a line");
  options.AddString("name", &flags.node.name, "of the node; at most one is up under a name");
  options.AddInt("io-threads", &flags.node.io_threads, "threads for clients' connections");
  options.AddBool("allow-unauthenticated", &flags.allow_unauthenticated,
                  "listen beyond loopback although clients are not authenticated");
  options.AddExample("tokura up --host-bytes 4GiB --listen 127.0.0.1:7421",
                     "a node with 4 GiB for blocks");
  options.AddCheck([&] { return Resolve(&flags); });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const absl::Status status = Serve(flags);
  return status.ok() ? kExitOk : Fail("up", status);
}

}  // namespace tokura::cli
