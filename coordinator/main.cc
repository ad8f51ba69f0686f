// tokura-coordinator: one coordinator as a process.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config.h"
#include "common/log.h"
#include "common/net/address_option.h"
#include "common/port_file.h"
#include "common/status_macros.h"
#include "common/stop_signals.h"
#include "coordinator/coordinator.h"
#include "coordinator/policy.h"

namespace tokura::coordinator {
namespace {

struct Flags {
  CoordinatorOptions coordinator;
  std::string listen = "127.0.0.1:0";
  std::string admin = "127.0.0.1:0";
  std::string port_file;
  bool allow_unauthenticated = false;
  // Counts, which options take as int64_t.
  int64_t segment_blocks = coordinator.segment_blocks;
  int64_t replicas = coordinator.replicas;
  int64_t hot_lookups = coordinator.hot_lookups;
  int64_t blocks_max = static_cast<int64_t>(coordinator.blocks_max);
  int64_t keys_max = coordinator.keys_max;
  int64_t connections_max = coordinator.connections_max;
  int64_t requests_max = coordinator.requests_max;
  int64_t incarnation = 0;
};

bool IsLoopback(const net::Address& address) {
  return absl::StartsWith(address.host, "127.") || address.host == "::1" ||
         address.host == "localhost";
}

absl::StatusOr<uint32_t> ToCount(const char* name, int64_t value, int64_t min) {
  if (value < min || value > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(name, " must be ", min, " to ", INT32_MAX));
  }
  return static_cast<uint32_t>(value);
}

absl::Status ResolveCounts(Flags* flags) {
  CoordinatorOptions& options = flags->coordinator;
  TOKURA_ASSIGN_OR_RETURN(options.segment_blocks,
                          ToCount("segment-blocks", flags->segment_blocks, 1));
  TOKURA_ASSIGN_OR_RETURN(options.replicas, ToCount("replicas", flags->replicas, 1));
  TOKURA_ASSIGN_OR_RETURN(options.hot_lookups, ToCount("hot-lookups", flags->hot_lookups, 0));
  TOKURA_ASSIGN_OR_RETURN(options.blocks_max, ToCount("blocks-max", flags->blocks_max, 1));
  TOKURA_ASSIGN_OR_RETURN(options.keys_max, ToCount("keys-max", flags->keys_max, 1));
  TOKURA_ASSIGN_OR_RETURN(options.connections_max,
                          ToCount("connections-max", flags->connections_max, 1));
  TOKURA_ASSIGN_OR_RETURN(options.requests_max, ToCount("requests-max", flags->requests_max, 1));
  if (flags->incarnation < 0) {
    return absl::InvalidArgumentError("incarnation must not be negative");
  }
  options.incarnation = static_cast<uint64_t>(flags->incarnation);
  return absl::OkStatus();
}

// Check the flags and complete the coordinator's options.
absl::Status Resolve(Flags* flags) {
  CoordinatorOptions& options = flags->coordinator;
  TOKURA_ASSIGN_OR_RETURN(options.listen, net::ParseAddressOption("listen", flags->listen));
  TOKURA_ASSIGN_OR_RETURN(options.admin, net::ParseAddressOption("admin", flags->admin));
  TOKURA_RETURN_IF_ERROR(ResolveCounts(flags));
  if (!IsLoopback(options.listen) && !flags->allow_unauthenticated) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", flags->listen,
                     " is reachable from other machines and peers are not authenticated; say "
                     "--allow-unauthenticated if the network is trusted"));
  }
  TOKURA_RETURN_IF_ERROR(ValidateCoordinatorOptions(options));
  // So that --check-config finds what is wrong with the rules, with the line.
  return options.policy_file.empty() ? absl::OkStatus()
                                     : ReadPolicyFile(options.policy_file).status();
}

void AddCluster(OptionTable& options, Flags& flags) {
  CoordinatorOptions& coordinator = flags.coordinator;
  options.AddInt("segment-blocks", &flags.segment_blocks,
                 "blocks of a chain that are placed together; the holder's counts");
  options.AddDuration("join-ramp", &coordinator.join_ramp,
                      "time in which a new node's share of puts grows to all of it; 0: at once");
  options.AddInt("replicas", &flags.replicas, "nodes that get the blocks of hot segments");
  options.AddInt("hot-lookups", &flags.hot_lookups,
                 "lookups per minute that make a segment hot; 0: none is");
  options.AddDuration("report-interval", &coordinator.report_interval,
                      "how often nodes are asked to report");
  options.AddDuration("suspect-after", &coordinator.suspect_after,
                      "nothing is placed on a node that has been silent for so long");
  options.AddDuration("remove-after", &coordinator.remove_after,
                      "a node that has been silent for so long is no member");
  options.AddDuration("forming", &coordinator.forming,
                      "how long a restarted holder waits for the nodes it had before it publishes");
}

void AddLimits(OptionTable& options, Flags& flags) {
  CoordinatorOptions& coordinator = flags.coordinator;
  options.AddInt("blocks-max", &flags.blocks_max,
                 "blocks that the index knows, about 100 bytes each; more are not found");
  options.AddInt("keys-max", &flags.keys_max, "keys per lookup or plan");
  options.AddInt("connections-max", &flags.connections_max, "connections at the same time");
  options.AddInt("requests-max", &flags.requests_max, "requests under way per connection");
  options.AddDuration("heartbeat", &coordinator.heartbeat, "ask a silent peer whether it is there");
  options.AddDuration("dead-after", &coordinator.dead_after,
                      "close a connection after so much silence");
  options.AddDuration("drain-timeout", &coordinator.drain_timeout,
                      "how long SIGTERM lets answers go out");
  options.AddInt("incarnation", &flags.incarnation,
                 "number of this life, higher than any before; 0: the start in microseconds");
}

void AddOptions(OptionTable& options, Flags& flags) {
  options.AddString("listen", &flags.listen,
                    "host:port for clients, nodes and coordinators; port 0: a free one");
  options.AddString("admin", &flags.admin, "host:port for HTTP: metrics, health, version");
  options.AddString("port-file", &flags.port_file,
                    "write the addresses here when ready: data=HOST:PORT, admin=HOST:PORT");
  options.AddString("name", &flags.coordinator.name, "of this coordinator");
  options.AddString(
      "metadata", &flags.coordinator.metadata,
      "memory: hold members and policy; coordinator://HOST:PORT: follow the one there");
  options.AddString("policy", &flags.coordinator.policy_file,
                    "YAML file with the rules of the policy; the holder's counts");
  options.AddBool("allow-unauthenticated", &flags.allow_unauthenticated,
                  "listen beyond loopback although peers are not authenticated");
  AddCluster(options, flags);
  AddLimits(options, flags);
  options.AddExample("tokura-coordinator --listen 127.0.0.1:7411 --admin 127.0.0.1:7412",
                     "the coordinator that holds members and policy");
  options.AddExample(
      "tokura-coordinator --listen 127.0.0.1:7413 --metadata coordinator://127.0.0.1:7411",
      "a second one that follows it; give clients and nodes --coordinator with both addresses");
  options.AddExample("tokura-coordinator --policy policy.yaml --check-config",
                     "look whether the options and the policy are sound");
  options.AddCheck([&flags] { return Resolve(&flags); });
}

absl::Status Serve(const Flags& flags) {
  OwnPortFile port_file(flags.port_file);
  const StopSignals signals;
  absl::StatusOr<std::unique_ptr<CoordinatorProcess>> process = absl::UnknownError("not started");
  signals.RunBlocked([&] { process = CoordinatorProcess::Start(flags.coordinator); });
  TOKURA_RETURN_IF_ERROR(process.status());
  signals.Block();
  const CoordinatorProcess::Addresses addresses = (*process)->addresses();
  TOKURA_RETURN_IF_ERROR(port_file.Write(
      {{"data", addresses.data.ToString()}, {"admin", addresses.admin.ToString()}}));
  const int signal = signals.WaitForOne();
  signals.LetThrough();
  (*process)->Shutdown();
  Log(LogLevel::kInfo, "coordinator", "stopped", {{"signal", signal}});
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& args) {
  Flags flags;
  OptionTable options("tokura-coordinator",
                      "Find cached blocks on all nodes, keep the members, place new blocks.");
  AddOptions(options, flags);
  if (const OptionTable::Outcome outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  if (absl::Status status = Serve(flags); !status.ok()) {
    Log(LogLevel::kError, "coordinator", "failed", {{"reason", status.ToString()}});
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tokura::coordinator

int main(int argc, char** argv) {
  return tokura::coordinator::Main(std::vector<std::string>(argv + 1, argv + argc));
}
