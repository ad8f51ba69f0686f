// tokura-node: one cache node as a process.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cache-node/node.h"
#include "common/config.h"
#include "common/log.h"
#include "common/net/address_option.h"
#include "common/port_file.h"
#include "common/profile_paths.h"
#include "common/status_macros.h"
#include "common/stop_signals.h"

namespace tokura::node {
namespace {

struct Flags {
  NodeOptions node;
  std::string listen = "127.0.0.1:0";
  std::string admin = "127.0.0.1:0";
  std::string port_file;
  std::vector<std::string> coordinators;
  std::string advertise;
  int64_t change_log_max = static_cast<int64_t>(node.change_log_max);
  std::string disk_path;
  uint64_t disk_bytes = 0;
  uint64_t gpu_bytes = 0;
  bool allow_unauthenticated = false;
  // Counts, which options take as int64_t.
  int64_t keys_max = node.keys_max;
  int64_t blocks_max = node.blocks_max;
  int64_t connections_max = node.connections_max;
  int64_t requests_max = node.requests_max;
};

bool IsLoopback(const net::Address& address) {
  return absl::StartsWith(address.host, "127.") || address.host == "::1" ||
         address.host == "localhost";
}

absl::Status CheckNotYet(const Flags& flags) {
  if (!flags.disk_path.empty() || flags.disk_bytes != 0) {
    return absl::InvalidArgumentError(
        "--disk-path, --disk-bytes: this version has no disk tier; use --host-bytes");
  }
  if (flags.gpu_bytes != 0) {
    return absl::InvalidArgumentError(
        "--gpu-bytes: this version has no GPU tier; use --host-bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ToCount(const char* name, int64_t value) {
  if (value < 1 || value > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(name, " must be 1 to ", INT32_MAX));
  }
  return static_cast<uint32_t>(value);
}

// Where coordinators are and what they are told.
absl::Status ResolveCluster(Flags* flags) {
  NodeOptions& node = flags->node;
  node.coordinators.clear();
  for (const std::string& text : flags->coordinators) {
    TOKURA_ASSIGN_OR_RETURN(net::Address address, net::ParseAddressOption("coordinator", text));
    node.coordinators.push_back(std::move(address));
  }
  if (!flags->advertise.empty()) {
    TOKURA_ASSIGN_OR_RETURN(node.advertise, net::ParseAddressOption("advertise", flags->advertise));
  }
  if (flags->change_log_max < 0) {
    return absl::InvalidArgumentError("change-log-max is negative");
  }
  node.change_log_max = static_cast<uint64_t>(flags->change_log_max);
  return absl::OkStatus();
}

// Check the flags and complete the node's options.
absl::Status Resolve(Flags* flags) {
  TOKURA_RETURN_IF_ERROR(CheckNotYet(*flags));
  NodeOptions& node = flags->node;
  TOKURA_ASSIGN_OR_RETURN(node.listen, net::ParseAddressOption("listen", flags->listen));
  TOKURA_ASSIGN_OR_RETURN(node.admin, net::ParseAddressOption("admin", flags->admin));
  TOKURA_ASSIGN_OR_RETURN(node.keys_max, ToCount("keys-max", flags->keys_max));
  TOKURA_ASSIGN_OR_RETURN(node.blocks_max, ToCount("blocks-max", flags->blocks_max));
  TOKURA_ASSIGN_OR_RETURN(node.connections_max, ToCount("connections-max", flags->connections_max));
  TOKURA_ASSIGN_OR_RETURN(node.requests_max, ToCount("requests-max", flags->requests_max));
  TOKURA_RETURN_IF_ERROR(ResolveCluster(flags));
  if (!IsLoopback(node.listen) && !flags->allow_unauthenticated) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", flags->listen,
                     " is reachable from other machines and clients are not authenticated; say "
                     "--allow-unauthenticated if the network is trusted"));
  }
  return ValidateNodeOptions(node);
}

void AddLimits(OptionTable& options, Flags& flags) {
  NodeOptions& node = flags.node;
  options.AddDuration("lease-age", &node.lease_age,
                      "leases and reservations end after so long without progress");
  options.AddDuration("lease-age-max", &node.lease_age_max, "leases end after so long in all");
  options.AddDuration("incomplete-age", &node.incomplete_age,
                      "blocks that miss parts for so long are dropped");
  options.AddBytes("part-bytes-max", &node.part_bytes_max, "largest part that is stored");
  options.AddInt("keys-max", &flags.keys_max, "keys per lookup, acquire or remove");
  options.AddInt("blocks-max", &flags.blocks_max, "blocks per get or put");
  options.AddInt("change-log-max", &flags.change_log_max,
                 "changes that a coordinator may miss without a full inventory; 16 bytes each");
  options.AddInt("connections-max", &flags.connections_max, "connections at the same time");
  options.AddInt("requests-max", &flags.requests_max, "requests under way per connection");
  options.AddBytes("inflight-bytes-max", &node.inflight_bytes_max,
                   "payload bytes being sent or received at the same time; raised to twice "
                   "part-bytes-max for every I/O thread");
  options.AddDuration("heartbeat", &node.heartbeat, "ask a silent peer whether it is there");
  options.AddDuration("dead-after", &node.dead_after, "close a connection after so much silence");
  options.AddDuration("drain-timeout", &node.drain_timeout,
                      "how long SIGTERM lets outstanding requests finish");
  options.AddDouble("high-watermark", &node.high_watermark,
                    "share of host-bytes above which blocks are evicted");
  options.AddDouble("low-watermark", &node.low_watermark, "share of host-bytes to evict down to");
  node.prefault = true;
  options.AddBool("prefault", &node.prefault,
                  "take all of host-bytes from the system before serving; refuses to start when "
                  "the machine or a control group does not have them");
  options.AddBool("verify-on-put", &node.verify_on_put,
                  "check every layer's checksum before a part is stored");
}

void AddOptions(OptionTable& options, Flags& flags) {
  options.AddString("listen", &flags.listen, "host:port for clients; port 0: a free one");
  options.AddString("admin", &flags.admin, "host:port for HTTP: metrics, health, version");
  options.AddString("port-file", &flags.port_file,
                    "write the addresses here when ready: data=HOST:PORT, admin=HOST:PORT");
  options.AddString("name", &flags.node.name, "of this node, unique in the cluster");
  options.AddBytes("host-bytes", &flags.node.host_bytes, "host memory for blocks");
  options.AddInt("io-threads", &flags.node.io_threads, "threads for clients' connections");
  options.AddStrings("coordinator", &flags.coordinators,
                     "host:port of every coordinator; none: clients name this node themselves");
  options.AddString("advertise", &flags.advertise,
                    "host:port that coordinators tell clients; by default the one listened on");
  options.AddString("disk-path", &flags.disk_path,
                    "directory of the disk tier (not in this version)");
  options.AddBytes("disk-bytes", &flags.disk_bytes, "size of the disk tier (not in this version)");
  options.AddBytes("gpu-bytes", &flags.gpu_bytes, "GPU memory for blocks (not in this version)");
  options.AddBool("allow-unauthenticated", &flags.allow_unauthenticated,
                  "listen beyond loopback although clients are not authenticated");
  AddProfileOptions(&options, &flags.node.profiles);
  AddLimits(options, flags);
  options.AddExample("tokura-node --host-bytes 4GiB --listen 127.0.0.1:7421 --admin 127.0.0.1:7422",
                     "a node with 4 GiB for blocks, metrics on port 7422");
  options.AddExample("tokura-node --coordinator 127.0.0.1:7400 --name node-1",
                     "a node of a cluster, found through its coordinator");
  options.AddExample("tokura-node --port-file /run/tokura.ports",
                     "a node on free ports, written to a file once it is ready");
  options.AddCheck([&flags] { return Resolve(&flags); });
}

absl::Status Serve(const Flags& flags) {
  OwnPortFile port_file(flags.port_file);
  const StopSignals signals;
  absl::StatusOr<std::unique_ptr<NodeProcess>> process = absl::UnknownError("not started");
  signals.RunBlocked([&] { process = NodeProcess::Start(flags.node, StopSignals::Raise); });
  TOKURA_RETURN_IF_ERROR(process.status());
  signals.Block();
  const NodeProcess::Addresses addresses = (*process)->addresses();
  TOKURA_RETURN_IF_ERROR(port_file.Write(
      {{"data", addresses.data.ToString()}, {"admin", addresses.admin.ToString()}}));
  const int signal = signals.WaitForOne();
  signals.LetThrough();
  const absl::Status failure = (*process)->failure();
  (*process)->Shutdown();
  TOKURA_RETURN_IF_ERROR(failure);
  Log(LogLevel::kInfo, "node", "stopped", {{"signal", signal}});
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& args) {
  Flags flags;
  OptionTable options("tokura-node", "Hold KV blocks in memory and serve them to clients.");
  AddOptions(options, flags);
  if (const OptionTable::Outcome outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  if (absl::Status status = Serve(flags); !status.ok()) {
    Log(LogLevel::kError, "node", "failed", {{"reason", status.ToString()}});
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tokura::node

int main(int argc, char** argv) {
  return tokura::node::Main(std::vector<std::string>(argv + 1, argv + argc));
}
