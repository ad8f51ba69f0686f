#include "tests/sim/cluster.h"

#include <algorithm>
#include <cstdio>
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
  options.link.pieces_max = random.Between(1, 6);
  return options;
}

// How many of something there are, given how often, in percent, there are 1, 2, … of it.
size_t Draw(SimRandom& random, std::initializer_list<uint64_t> percent) {
  uint64_t draw = random.Below(100);
  size_t count = 1;
  for (const uint64_t share : percent) {
    if (draw < share) {
      break;
    }
    draw -= share;
    ++count;
  }
  return count;
}

void MustBeOk(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
  }
  TOKURA_CHECK(status.ok());
}

void Resume(SimHost& host) {
  if (host.paused()) {
    host.Continue();
  }
  host.pool().Continue();
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      scheduler_(options.seed),
      network_(scheduler_, NetworkOptions(options.seed)) {
  net::SetFormatVersion(kernels::FormatVersionString());
  ChooseOptions();
  SimRandom& draw = scheduler_.random();
  const bool direct = draw.Permille(250);
  coordinators_.resize(direct ? 0 : Draw(draw, {40, 40, 20}));
  nodes_.resize(direct ? Draw(draw, {40, 40, 20}) : Draw(draw, {0, 40, 30, 20, 10}));
  clients_.resize(2 + draw.Below(2));
  if (options.shape) {
    coordinators_.resize(options.shape->coordinators);
    nodes_.resize(options.shape->nodes);
    clients_.resize(options.shape->clients);
  }
  for (size_t i = 0; i < coordinators_.size(); ++i) {
    AddCoordinator(i);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    AddNode(i, {absl::StrCat("10.1.", i, ".1"), kPort});
  }
  for (size_t i = 0; i < clients_.size(); ++i) {
    AddClient(i, client_options_);
  }
}

Cluster::~Cluster() = default;

void Cluster::ChooseOptions() {
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
  // So small that a coordinator that is out of reach for long needs a snapshot.
  node_options_.change_log_max = uint64_t{16} << draw.Below(4);
  // So small that a snapshot takes several chunks, with changes between them.
  node_options_.inventory_keys_max = 1 << draw.Below(4);
  client_options_.ring_bytes = (32 + draw.Below(64)) * 1024;
  client_options_.part_bytes_max = 4096;
  client_options_.operations_max = 64;
  client_options_.inline_decode_bytes = draw.Permille(300) ? 64 * 1024 : 0;
  step_delay_max_ = microseconds(50 << draw.Below(7));
  node_loops_ = draw.Permille(300) ? 2 : 1;
  node_options_.io_threads = node_loops_;
  coordinator_options_.segment_blocks = static_cast<uint32_t>(draw.Between(1, 4));
  coordinator_options_.join_ramp = draw.Permille(600) ? Duration{0} : milliseconds(300);
  coordinator_options_.replicas = static_cast<uint32_t>(draw.Between(1, 2));
  coordinator_options_.hot_lookups = draw.Permille(500) ? 5 : 600;
  coordinator_options_.blocks_max = 1 << 16;
  coordinator_options_.report_interval = milliseconds(draw.Between(40, 100));
  coordinator_options_.suspect_after = milliseconds(draw.Between(200, 400));
  coordinator_options_.remove_after = milliseconds(draw.Between(400, 1200));
  coordinator_options_.forming = milliseconds(draw.Between(100, 400));
  coordinator_options_.keys_max = 64;
  coordinator_options_.requests_max = 32;
  coordinator_options_.drain_timeout = milliseconds(300);
  coordinator_options_.policy_file = options_.policy_file;
  if (options_.shape) {
    node_options_.host_bytes = options_.shape->host_bytes;
    // Each block at one node, from the beginning at all of them.
    coordinator_options_.replicas = 1;
    coordinator_options_.join_ramp = Duration{0};
  }
}

Duration Cluster::settling() const {
  return std::chrono::seconds(5);
}

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
  options.coordinators = CoordinatorList();
  if (coordinated() && !holder_crashed_ && random().Permille(200)) {
    // The machine's clock is behind the one before: the holder, while it remembers that one, hands
    // out a higher incarnation.
    options.incarnation = process->host->WallMicros() - random().Below(5'000'000);
    holder_must_remember_ = true;
  }
  process->host->loop().Enter([&] {
    auto node =
        node::Node::Create({transports, *process->host, process->host->random(),
                            process->host->pool(), std::make_shared<prometheus::Registry>()},
                           options, options_.node_bugs);
    MustBeOk(node.status());
    process->node = std::move(node).value();
    MustBeOk(process->node->Start());
  });
  nodes_[index] = std::move(process);
}

void Cluster::AddCoordinator(size_t index) {
  auto process = std::make_unique<CoordinatorProcess>();
  process->name = absl::StrCat("coordinator-", index);
  process->address = CoordinatorList()[index];
  process->host =
      std::make_unique<SimHost>(scheduler_, HostOptions(process->name, process->address.host));
  process->transport = std::make_unique<SimTransport>(network_, process->host->loop());
  coordinator::CoordinatorOptions options = coordinator_options_;
  options.name = process->name;
  options.listen = process->address;
  if (index > 0) {
    options.policy_file.clear();  // The holder's alone.
    options.metadata = absl::StrCat("coordinator://", CoordinatorList()[0].ToString());
  }
  process->host->loop().Enter([&] {
    auto coordinator = coordinator::Coordinator::Create(
        {*process->transport, *process->host, process->host->random(),
         std::make_shared<prometheus::Registry>()},
        options, options_.coordinator_bugs);
    MustBeOk(coordinator.status());
    process->coordinator = std::move(coordinator).value();
    MustBeOk(process->coordinator->Start());
  });
  coordinators_[index] = std::move(process);
}

std::vector<net::Address> Cluster::CoordinatorList() const {
  std::vector<net::Address> list;
  for (size_t i = 0; i < coordinators_.size(); ++i) {
    list.push_back({absl::StrCat("10.3.", i, ".1"), kPort});
  }
  return list;
}

std::vector<std::string> Cluster::NodeList() const {
  std::vector<std::string> list = old_addresses_;
  for (const auto& process : nodes_) {
    list.push_back(process->address.ToString());
  }
  return list;
}

void Cluster::AddClient(size_t index, const ClientOptions& client_options) {
  auto process = std::make_unique<ClientProcess>();
  process->host = std::make_unique<SimHost>(
      scheduler_,
      HostOptions(absl::StrCat("client-", ++processes_), absl::StrCat("10.2.0.", index)));
  process->transport = std::make_unique<SimTransport>(network_, process->host->loop());
  for (size_t i = 0; i < kBuffersPerClient; ++i) {
    process->free_buffers.push_back(std::make_shared<KvBuffer>());
  }
  process->disturbed = scheduler_.Now();
  ClientOptions options = client_options;
  options.name = process->host->name();
  if (!coordinated()) {
    options.nodes = NodeList();
  } else if (options.coordinators.empty() && options.nodes.empty()) {
    // Each begins with another one.
    const std::vector<net::Address> list = CoordinatorList();
    for (size_t i = 0; i < list.size(); ++i) {
      options.coordinators.push_back(list[(index + i) % list.size()].ToString());
    }
  }
  process->host->loop().Enter([&] {
    auto core =
        ClientCore::Create({*process->transport, process->host->pool(), process->host->random(),
                            std::make_shared<prometheus::Registry>()},
                           options, options_.client_bugs);
    MustBeOk(core.status());
    process->core = std::move(core).value();
  });
  clients_[index] = std::move(process);
}

std::vector<std::string> Cluster::machines() const {
  std::vector<std::string> all;
  for (const auto& process : nodes_) {
    all.push_back(process->host->ip());
  }
  for (const auto& process : coordinators_) {
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

void Cluster::Drain(CoordinatorProcess& process) {
  process.host->loop().Enter(
      [&] { process.coordinator->Drain([&process] { process.ended = true; }); });
}

void Cluster::Shutdown(ClientProcess& process) {
  process.host->loop().Enter([&] { process.core->Shutdown([&process] { process.ended = true; }); });
}

// The rest of the world has lost it; it runs on to be taken down.
void Cluster::Bury(SimHost& host, SimNetwork::Death death) {
  network_.Kill(host, death);
  if (on_death_) {
    on_death_(host);
  }
  Resume(host);
}

void Cluster::Kill(NodeProcess& process, SimNetwork::Death death) {
  process.ghost = true;
  superseded_ += process.node->superseded() ? 1 : 0;
  Bury(*process.host, death);
  if (!process.leaving) {
    Drain(process);
  }
}

void Cluster::CrashNode(size_t index, SimNetwork::Death death, Duration down) {
  NodeProcess& process = *nodes_[index];
  Kill(process, death);
  scheduler_.After(down, [this, index, &process] { Reoccupy(index, process); });
}

void Cluster::LeaveNode(size_t index, Duration down) {
  NodeProcess& process = *nodes_[index];
  process.leaving = true;
  Drain(process);
  AwaitLeave(index, process, down);
}

void Cluster::AwaitLeave(size_t index, const NodeProcess& process, Duration down) {
  if (process.ghost) {
    return;  // Killed before it had left, and replaced for that.
  }
  if (!process.ended) {
    scheduler_.After(milliseconds(5),
                     [this, index, &process, down] { AwaitLeave(index, process, down); });
    return;
  }
  NodeProcess& left = *nodes_[index];
  TOKURA_CHECK(&left == &process);
  left.ghost = true;
  Bury(*left.host, SimNetwork::Death::kProcess);
  scheduler_.After(healed_ ? Duration{0} : down,
                   [this, index, &process] { Reoccupy(index, process); });
}

void Cluster::Reoccupy(size_t index, const NodeProcess& former) {
  if (index >= nodes_.size() || nodes_[index].get() != &former) {
    return;  // Somebody else has.
  }
  const net::Address address = former.address;
  former_nodes_.push_back(std::move(nodes_[index]));
  AddNode(index, address);
}

void Cluster::JoinNode() {
  TOKURA_CHECK(nodes_.size() < kNodesMax);
  const size_t index = nodes_.size();
  nodes_.emplace_back();
  AddNode(index, {absl::StrCat("10.1.", index, ".1"), kPort});
  Relist();
}

void Cluster::CrashCoordinator(size_t index, Duration down) {
  CoordinatorProcess& process = *coordinators_[index];
  process.ghost = true;
  holder_crashed_ = holder_crashed_ || index == 0;
  Bury(*process.host, SimNetwork::Death::kProcess);
  Drain(process);
  scheduler_.After(down, [this, index, &process] { Reoccupy(index, process); });
}

void Cluster::Reoccupy(size_t index, const CoordinatorProcess& former) {
  if (index >= coordinators_.size() || coordinators_[index].get() != &former) {
    return;  // Somebody else has.
  }
  former_coordinators_.push_back(std::move(coordinators_[index]));
  AddCoordinator(index);
}

void Cluster::CrashClient(size_t index) {
  former_clients_.push_back(std::move(clients_[index]));
  ClientProcess& ghost = *former_clients_.back();
  ghost.ghost = true;
  crashed_clients_.push_back(&ghost);
  Bury(*ghost.host, SimNetwork::Death::kProcess);
  Shutdown(ghost);
  AddClient(index, client_options_);
}

NodeProcess& Cluster::ReplaceNode(size_t index, OldAddress old_address) {
  const net::Address old = nodes_[index]->address;
  former_nodes_.push_back(std::move(nodes_[index]));
  AddNode(index, {absl::StrCat("10.1.", index, ".", ++replacements_ + 1), kPort});
  old_addresses_.clear();
  if (old_address == OldAddress::kListed) {
    old_addresses_.push_back(old.ToString());
  }
  Relist();
  return *former_nodes_.back();
}

// Tell clients that know addresses.
void Cluster::Relist() {
  for (size_t i = 0; i < clients_.size() && !coordinated(); ++i) {
    ClientProcess& client = *clients_[i];
    client.host->loop().Enter([&] { TOKURA_CHECK(client.core->SetNodes(NodeList()).ok()); });
  }
}

void Cluster::Heal() {
  healed_ = true;
  for (const std::string& from : machines()) {
    for (const std::string& to : machines()) {
      LinkConditions& link = network_.link(from, to);
      link.drop_permille = link.reorder_permille = 0;
      link.flip_permille = link.flip_payload_permille = 0;
      network_.Mend(from, to);
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Resume(*nodes_[i]->host);
    if (nodes_[i]->ghost) {
      Reoccupy(i, *nodes_[i]);
    }
  }
  for (size_t i = 0; i < coordinators_.size(); ++i) {
    Resume(*coordinators_[i]->host);
    if (coordinators_[i]->ghost) {
      Reoccupy(i, *coordinators_[i]);
    }
  }
  for (const auto& process : clients_) {
    if (process->host->paused()) {
      process->continued = scheduler_.Now();
    }
    Resume(*process->host);
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

void Cluster::StartAuditor(size_t index) {
  ClientOptions options = client_options_;
  options.operations_max = 1024;
  if (coordinated()) {
    options.coordinators = {CoordinatorList()[index].ToString()};
  }
  clients_.emplace_back();
  AddClient(clients_.size() - 1, options);
}

size_t Cluster::StartNodeClient(size_t index) {
  ClientOptions options = client_options_;
  options.nodes = {nodes_[index]->address.ToString()};
  clients_.emplace_back();
  AddClient(clients_.size() - 1, options);
  return clients_.size() - 1;
}

void Cluster::StopNodes() {
  for (auto& node : nodes_) {
    node->leaving = true;
    Drain(*node);
    former_nodes_.push_back(std::move(node));
  }
  nodes_.clear();
}

void Cluster::StopCoordinators() {
  for (auto& coordinator : coordinators_) {
    Drain(*coordinator);
    former_coordinators_.push_back(std::move(coordinator));
  }
  coordinators_.clear();
}

bool Cluster::AllEnded() const {
  const auto ended = [](const auto& process) { return process->ended; };
  return std::all_of(former_clients_.begin(), former_clients_.end(), ended) &&
         std::all_of(former_nodes_.begin(), former_nodes_.end(), ended) &&
         std::all_of(former_coordinators_.begin(), former_coordinators_.end(), ended);
}

}  // namespace tokura::sim
