#include "tests/sim/cluster.h"

#include <utility>

#include <prometheus/registry.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/net/channel.h"
#include "kernels/part.h"

namespace tokura::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint16_t kPort = 7000;
constexpr size_t kBuffersPerClient = 24;

SimNetwork::Options NetworkOptions(uint64_t seed) {
  // Every seed has its own network: from a fast switch to a slow, jittery path.
  SimRandom random(seed ^ 0x6e6574);
  SimNetwork::Options options;
  options.link.latency = microseconds(20 << random.Below(6));
  options.link.jitter = options.link.latency * static_cast<int64_t>(random.Below(3));
  options.completion_delay_max = microseconds(200 << random.Below(5));
  options.pieces_max = random.Between(1, 6);
  return options;
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      scheduler_(options.seed),
      network_(scheduler_, NetworkOptions(options.seed)) {
  net::SetFormatVersion(kernels::FormatVersionString());
  SimRandom& draw = scheduler_.random();
  node_options_.host_bytes = (16 + draw.Below(32)) * 1024;
  node_options_.part_bytes_max = 4096;
  node_options_.lease_age = milliseconds(500);
  node_options_.lease_age_max = milliseconds(2000);
  node_options_.incomplete_age = milliseconds(700);
  node_options_.high_watermark = 0.9;
  node_options_.low_watermark = 0.7;
  node_options_.keys_max = 64;
  node_options_.blocks_max = 32;
  node_options_.requests_max = 16;
  node_options_.drain_timeout = milliseconds(500);
  client_options_.ring_bytes = (32 + draw.Below(64)) * 1024;
  client_options_.part_bytes_max = 4096;
  client_options_.operations_max = 64;
  client_options_.inline_decode_bytes = draw.Permille(300) ? 64 * 1024 : 0;
  step_delay_max_ = microseconds(50 << draw.Below(7));
  node_loops_ = draw.Permille(300) ? 2 : 1;
  node_options_.io_threads = node_loops_;
  for (size_t i = 0; i < 1 + draw.Below(2); ++i) {
    nodes_.emplace_back();
    AddNode(i, {absl::StrCat("10.1.", i, ".1"), kPort});
  }
  for (size_t i = 0; i < 2 + draw.Below(2); ++i) {
    clients_.emplace_back();
    AddClient(i);
  }
}

Cluster::~Cluster() = default;

SimHost::Options Cluster::HostOptions(std::string name, std::string ip) {
  SimHost::Options host;
  host.name = std::move(name);
  host.ip = std::move(ip);
  host.pool_threads = 2;
  host.step_delay_max = step_delay_max_;
  host.clock_offset = milliseconds(random().Below(100'000));
  host.clock_drift_ppm = static_cast<int64_t>(random().Below(200)) - 100;
  return host;
}

void Cluster::AddNode(size_t index, net::Address address) {
  auto process = std::make_unique<NodeProcess>();
  process->name = absl::StrCat("node-", index);
  process->address = address;
  SimHost::Options host = HostOptions(process->name, address.host);
  host.loops = node_loops_;
  process->host = std::make_unique<SimHost>(scheduler_, std::move(host));
  std::vector<net::Transport*> transports;
  for (int loop = 0; loop < node_loops_; ++loop) {
    process->transports.push_back(
        std::make_unique<SimTransport>(network_, process->host->loop(static_cast<size_t>(loop))));
    transports.push_back(process->transports.back().get());
  }
  node::NodeOptions options = node_options_;
  options.name = process->name;
  options.listen = address;
  process->host->loop().Enter([&] {
    auto node =
        node::Node::Create({transports, *process->host, process->host->random(),
                            process->host->pool(), std::make_shared<prometheus::Registry>()},
                           options, options_.node_bugs);
    TOKURA_CHECK(node.ok());
    process->node = std::move(node).value();
    TOKURA_CHECK(process->node->Start().ok());
  });
  nodes_[index] = std::move(process);
}

std::vector<std::string> Cluster::NodeList() const {
  std::vector<std::string> list = old_addresses_;
  for (const auto& process : nodes_) {
    list.push_back(process->address.ToString());
  }
  return list;
}

void Cluster::AddClient(size_t index) {
  auto process = std::make_unique<ClientProcess>();
  process->host = std::make_unique<SimHost>(
      scheduler_,
      HostOptions(absl::StrCat("client-", ++processes_), absl::StrCat("10.2.0.", index)));
  process->transport = std::make_unique<SimTransport>(network_, process->host->loop());
  for (size_t i = 0; i < kBuffersPerClient; ++i) {
    process->free_buffers.push_back(std::make_shared<KvBuffer>());
  }
  process->disturbed = scheduler_.Now();
  ClientOptions options = client_options_;
  options.name = process->host->name();
  options.nodes = NodeList();
  process->host->loop().Enter([&] {
    auto core =
        ClientCore::Create({*process->transport, process->host->pool(), process->host->random(),
                            std::make_shared<prometheus::Registry>()},
                           options, options_.client_bugs);
    TOKURA_CHECK(core.ok());
    process->core = std::move(core).value();
  });
  clients_[index] = std::move(process);
}

std::vector<std::string> Cluster::machines() const {
  std::vector<std::string> all;
  for (const auto& process : nodes_) {
    all.push_back(process->host->ip());
  }
  for (const auto& process : clients_) {
    all.push_back(process->host->ip());
  }
  return all;
}

void Cluster::Drain(NodeProcess& process) {
  process.host->loop().Enter([&] { process.node->Drain([&process] { process.ended = true; }); });
}

void Cluster::Shutdown(ClientProcess& process) {
  process.host->loop().Enter([&] { process.core->Shutdown([&process] { process.ended = true; }); });
}

void Cluster::Kill(NodeProcess& process, SimNetwork::Death death) {
  process.ghost = true;
  network_.Kill(*process.host, death);
  if (process.host->paused()) {
    process.host->Continue();
  }
  process.host->pool().Continue();
  Drain(process);
}

void Cluster::CrashNode(size_t index, SimNetwork::Death death) {
  const net::Address address = nodes_[index]->address;
  former_nodes_.push_back(std::move(nodes_[index]));
  Kill(*former_nodes_.back(), death);
  AddNode(index, address);
}

void Cluster::CrashClient(size_t index) {
  former_clients_.push_back(std::move(clients_[index]));
  ClientProcess& ghost = *former_clients_.back();
  ghost.ghost = true;
  crashed_clients_.push_back(&ghost);
  network_.Kill(*ghost.host, SimNetwork::Death::kProcess);
  if (ghost.host->paused()) {
    ghost.host->Continue();
  }
  ghost.host->pool().Continue();
  Shutdown(ghost);
  AddClient(index);
}

NodeProcess& Cluster::ReplaceNode(size_t index, bool keep_old_address) {
  const net::Address old = nodes_[index]->address;
  former_nodes_.push_back(std::move(nodes_[index]));
  AddNode(index, {absl::StrCat("10.1.", index, ".", ++replacements_ + 1), kPort});
  if (keep_old_address) {
    old_addresses_.assign({old.ToString()});
  } else {
    old_addresses_.clear();
  }
  for (const auto& client : clients_) {
    client->host->loop().Enter([&] { TOKURA_CHECK(client->core->SetNodes(NodeList()).ok()); });
  }
  return *former_nodes_.back();
}

void Cluster::Heal() {
  for (const std::string& from : machines()) {
    for (const std::string& to : machines()) {
      LinkConditions& link = network_.link(from, to);
      link.drop_permille = link.reorder_permille = 0;
      link.flip_permille = link.flip_payload_permille = 0;
      network_.Mend(from, to);
    }
  }
  for (const auto& process : nodes_) {
    if (process->host->paused()) {
      process->host->Continue();
    }
    process->host->pool().Continue();
  }
  for (const auto& process : clients_) {
    if (process->host->paused()) {
      process->host->Continue();
      process->continued = scheduler_.Now();
    }
    process->host->pool().Continue();
  }
  for (const auto& process : former_nodes_) {
    if (!process->ghost) {
      Kill(*process, SimNetwork::Death::kProcess);
    }
  }
}

void Cluster::StopClients() {
  for (auto& client : clients_) {
    Shutdown(*client);
    former_clients_.push_back(std::move(client));
  }
  clients_.clear();
}

void Cluster::StartAuditor() {
  client_options_.operations_max = 1024;
  clients_.emplace_back();
  AddClient(0);
}

void Cluster::StopNodes() {
  for (auto& node : nodes_) {
    Drain(*node);
    former_nodes_.push_back(std::move(node));
  }
  nodes_.clear();
}

bool Cluster::AllEnded() const {
  for (const auto& client : former_clients_) {
    if (!client->ended) {
      return false;
    }
  }
  for (const auto& node : former_nodes_) {
    if (!node->ended) {
      return false;
    }
  }
  return true;
}

}  // namespace tokura::sim
