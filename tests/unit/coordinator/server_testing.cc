#include "tests/unit/coordinator/server_testing.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace tokura::coordinator {
namespace {

constexpr uint16_t kPort = 7411;

sim::SimHost::Options HostOptions(const std::string& name, const std::string& ip) {
  sim::SimHost::Options options;
  options.name = name;
  options.ip = ip;
  return options;
}

// Adds blocks of a chain to a batch, each with one form of class 0.
void AddHeld(uint64_t chain, uint64_t first, uint64_t count, proto::InventoryBatch* batch) {
  if (batch->classes_size() == 0) {
    proto::FormClass* form_class = batch->add_classes();
    form_class->set_codec("raw");
    form_class->set_group_mask(1);
    form_class->set_shards(1);
    form_class->set_fidelity(1);
  }
  for (uint64_t block = first; block < first + count; ++block) {
    batch->mutable_keys()->append(KeyBytes(ChainKey(chain, block)));
    batch->mutable_parents()->append(block == 0 ? std::string(BlockKey::kBytes, '\0')
                                                : KeyBytes(ChainKey(chain, block - 1)));
    batch->add_forms(1);
    batch->add_form_class(0);
    batch->add_stored_bytes(1000);
    batch->add_error_mean(0);
    batch->add_error_max(0);
  }
}

}  // namespace

BlockKey ChainKey(uint64_t chain, uint64_t block) {
  sim::SimRandom random(chain * 1'000'003 + block + 1);
  BlockKey key;
  random.Fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

std::string KeyBytes(const BlockKey& key) {
  return std::string(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
}

std::string ChainKeys(uint64_t chain, uint64_t first, uint64_t count) {
  std::string keys;
  for (uint64_t block = first; block < first + count; ++block) {
    keys += KeyBytes(ChainKey(chain, block));
  }
  return keys;
}

void TestCall::OnPayload(const net::FrameHeader&, net::IncomingPayload) {
  ADD_FAILURE() << "a coordinator offers no payload";
}

void TestCall::OnReply(absl::Status status, std::span<const std::byte> body) {
  EXPECT_FALSE(answered()) << "two replies";
  status_ = std::move(status);
  body_.assign(reinterpret_cast<const char*>(body.data()), body.size());
  answered_at_ = executor->Now();
  if (on_reply) {
    on_reply(*this);
  }
}

TestPeer::TestPeer(sim::SimNetwork& network, const net::Address& coordinator, Options options)
    : host_(network.scheduler(), HostOptions(options.name, options.ip)),
      transport_(network, host_.loop()) {
  host_.loop().Enter([&] {
    const std::vector<std::byte> instance(16, std::byte{1});
    net::ClientChannel::Options channel;
    channel.hello = net::MakeHello(transport_, options.role, options.name, instance);
    channel.hello.set_tenant(options.tenant);
    channel_ = net::ClientChannel::Start(transport_, coordinator, channel, *this);
  });
}

TestPeer::~TestPeer() = default;

absl::Status TestPeer::OnWelcome(net::ClientChannel&, const proto::Welcome& welcome) {
  welcome_ = welcome;
  return absl::OkStatus();
}

TestPeer::Sent TestPeer::Send(net::Op op, const google::protobuf::MessageLite& body,
                              Duration deadline) {
  Sent sent;
  sent.call = std::make_shared<TestCall>();
  sent.call->executor = &host_.loop();
  calls_.push_back(sent.call);
  host_.loop().Enter(
      [&] { sent.id = channel_->Send(op, body, host_.loop().Now() + deadline, sent.call); });
  return sent;
}

void TestPeer::Cancel(uint64_t request_id) {
  host_.loop().Enter([&] { channel_->Cancel(request_id); });
}

void TestPeer::Close(net::CloseMode mode) {
  host_.loop().Enter([&] { channel_->Close(mode); });
}

proto::RegisterRequest TestNode::RegisterMessage() const {
  proto::RegisterRequest request;
  request.set_node(name);
  request.set_incarnation(incarnation);
  request.set_instance(instance);
  request.set_starting(starting);
  request.set_address(name + ":7421");
  request.set_admin(name + ":7422");
  request.set_capacity_bytes(uint64_t{1} << 30);
  request.set_highest_epoch(highest_epoch);
  return request;
}

proto::ReportRequest TestNode::ReportMessage() const {
  proto::ReportRequest request;
  request.set_incarnation(incarnation);
  request.set_highest_epoch(highest_epoch);
  request.set_leaving(leaving);
  request.set_used_bytes(used_bytes);
  request.set_inflight_bytes(inflight_bytes);
  request.set_batches_max(4096);
  return request;
}

proto::InventoryBatch TestNode::Holds(uint64_t chain, uint64_t first, uint64_t count) {
  proto::InventoryBatch batch;
  batch.set_node(name);
  batch.set_incarnation(incarnation);
  batch.set_first_seq(sequence);
  sequence += count;
  batch.set_last_seq(sequence);
  AddHeld(chain, first, count, &batch);
  return batch;
}

proto::InventoryBatch TestNode::Drops(uint64_t chain, uint64_t first, uint64_t count) {
  proto::InventoryBatch batch;
  batch.set_node(name);
  batch.set_incarnation(incarnation);
  batch.set_first_seq(sequence);
  sequence += count;
  batch.set_last_seq(sequence);
  batch.set_removed(ChainKeys(chain, first, count));
  return batch;
}

proto::InventoryBatch TestNode::Snapshot(uint64_t chain, uint64_t first, uint64_t count) {
  proto::InventoryBatch batch;
  batch.set_node(name);
  batch.set_incarnation(incarnation);
  batch.set_first_seq(sequence);
  batch.set_last_seq(sequence);
  batch.set_snapshot(++snapshots);
  batch.set_last_chunk(true);
  AddHeld(chain, first, count, &batch);
  return batch;
}

ServerTest::ServerTest() : scheduler_(1), network_(scheduler_, {}) {
  net::SetFormatVersion("0.1");
}

ServerTest::~ServerTest() {
  for (const auto& peer : peers_) {
    if (peer->host().paused()) {
      peer->host().Continue();
    }
    peer->Close(net::CloseMode::kAbort);
  }
  EXPECT_TRUE(RunUntil([&] {
    for (const auto& peer : peers_) {
      if (!peer->down()) {
        return false;
      }
    }
    return true;
  }));
  for (const auto& coordinator : coordinators_) {
    if (coordinator->coordinator != nullptr) {
      Stop(*coordinator);
    }
  }
}

CoordinatorOptions ServerTest::SmallOptions() {
  CoordinatorOptions options;
  options.name = "coordinator-a";
  options.segment_blocks = 4;
  options.join_ramp = Duration::zero();
  options.blocks_max = 1 << 20;
  options.report_interval = std::chrono::milliseconds(100);
  options.suspect_after = std::chrono::milliseconds(400);
  options.remove_after = std::chrono::seconds(2);
  options.forming = std::chrono::milliseconds(300);
  return options;
}

TestCoordinator& ServerTest::StartCoordinator(CoordinatorOptions options, const std::string& ip,
                                              PlantedBugs bugs) {
  coordinators_.push_back(std::make_unique<TestCoordinator>());
  TestCoordinator& made = *coordinators_.back();
  made.address = {ip, kPort};
  made.host = std::make_unique<sim::SimHost>(scheduler_, HostOptions(options.name, ip));
  made.transport = std::make_unique<sim::SimTransport>(network_, made.host->loop());
  made.registry = std::make_shared<prometheus::Registry>();
  options.listen = made.address;
  made.host->loop().Enter([&] {
    auto coordinator = Coordinator::Create(
        {*made.transport, *made.host, made.host->random(), made.registry}, options, bugs);
    TOKURA_CHECK(coordinator.ok());
    made.coordinator = *std::move(coordinator);
    const absl::Status started = made.coordinator->Start();
    TOKURA_CHECK(started.ok());
  });
  return made;
}

void ServerTest::Stop(TestCoordinator& coordinator) {
  bool drained = false;
  coordinator.host->loop().Enter([&] { coordinator.coordinator->Drain([&] { drained = true; }); });
  EXPECT_TRUE(RunUntil([&] { return drained; })) << "the drain does not end";
  coordinator.host->loop().Enter([&] { coordinator.coordinator.reset(); });
}

void ServerTest::Kill(TestCoordinator& coordinator) {
  network_.Kill(*coordinator.host, sim::SimNetwork::Death::kProcess);
  Stop(coordinator);
}

TestPeer& ServerTest::Connect(TestPeer::Options options, const TestCoordinator* maybe_to) {
  const TestCoordinator& to = maybe_to == nullptr ? *coordinators_.front() : *maybe_to;
  ++last_ip_;
  options.ip = absl::StrCat("10.1.", last_ip_ / 250, ".", last_ip_ % 250 + 1);
  peers_.push_back(std::make_unique<TestPeer>(network_, to.address, std::move(options)));
  TestPeer& peer = *peers_.back();
  EXPECT_TRUE(RunUntil([&] { return peer.welcome().has_value() || peer.down().has_value(); }));
  return peer;
}

TestNode ServerTest::MakeNode(const std::string& name, uint64_t incarnation,
                              const TestCoordinator* maybe_to) {
  TestNode node;
  node.name = name;
  node.incarnation = incarnation;
  node.instance = std::string(16, '\0');
  sim::SimRandom(incarnation * 31 + name.back())
      .Fill(std::as_writable_bytes(std::span<char>(node.instance)));
  Reconnect(node, maybe_to);
  return node;
}

void ServerTest::Reconnect(TestNode& node, const TestCoordinator* maybe_to) {
  TestPeer::Options options;
  options.name = node.name;
  options.role = "node";
  node.peer = &Connect(options, maybe_to);
}

proto::RegisterReply ServerTest::Register(TestNode& node) {
  const auto reply =
      Await(node.peer->Send(net::Op::kRegister, node.RegisterMessage())).As<proto::RegisterReply>();
  node.incarnation = reply.incarnation();
  if (reply.holder()) {
    node.starting = false;
  }
  return reply;
}

proto::ReportReply ServerTest::Report(TestNode& node, uint32_t batches_max) {
  proto::ReportRequest request = node.ReportMessage();
  request.set_batches_max(batches_max);
  return Await(node.peer->Send(net::Op::kReport, request)).As<proto::ReportReply>();
}

void ServerTest::ReportFor(const std::vector<TestNode*>& nodes, Duration duration) {
  const TimePoint end = scheduler_.Now() + duration;
  while (scheduler_.Now() < end) {
    RunFor(std::chrono::milliseconds(100));
    for (TestNode* node : nodes) {
      Report(*node, 0);
    }
  }
}

proto::InventoryReply ServerTest::Inventory(TestNode& node, const proto::InventoryBatch& batch) {
  return Await(node.peer->Send(net::Op::kInventory, batch)).As<proto::InventoryReply>();
}

TestNode ServerTest::StartNode(const std::string& name, uint64_t incarnation,
                               const TestCoordinator* maybe_to) {
  TestNode node = MakeNode(name, incarnation, maybe_to);
  Register(node);
  Inventory(node, node.Snapshot(0, 0, 0));
  return node;
}

proto::LocateRequest ServerTest::LocateMessage(uint64_t chain, uint64_t count) {
  proto::LocateRequest request;
  request.set_keys(ChainKeys(chain, 0, count));
  return request;
}

proto::LocateReply ServerTest::Locate(TestPeer& client, const proto::LocateRequest& request) {
  return Await(client.Send(net::Op::kLocate, request)).As<proto::LocateReply>();
}

proto::WatchRequest ServerTest::WatchMessage(const proto::ClusterState& known) {
  proto::WatchRequest request;
  request.set_known_epoch(known.epoch());
  request.set_known_policy_version(known.policy_version());
  return request;
}

proto::ClusterState ServerTest::Watch(TestPeer& client, uint64_t known_epoch) {
  proto::WatchRequest request;
  request.set_known_epoch(known_epoch);
  return Await(client.Send(net::Op::kWatch, request)).As<proto::ClusterState>();
}

std::string ServerTest::Members(const proto::ClusterState& state) {
  std::string text;
  for (const proto::Member& member : state.members()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", member.node(), ":",
                    proto::Member::State_Name(member.state()));
  }
  return text;
}

bool ServerTest::RunUntil(const std::function<bool()>& condition, Duration limit) {
  const TimePoint end = scheduler_.Now() + limit;
  while (!condition()) {
    if (scheduler_.Now() > end || !scheduler_.Step()) {
      return false;
    }
  }
  return true;
}

TestCall& ServerTest::Await(const TestPeer::Sent& sent) {
  EXPECT_TRUE(RunUntil([&] { return sent.call->answered(); }));
  return *sent.call;
}

double ServerTest::Metric(const std::string& name, const std::map<std::string, std::string>& labels,
                          const TestCoordinator* maybe_of) {
  const TestCoordinator& of = maybe_of == nullptr ? *coordinators_.front() : *maybe_of;
  for (const prometheus::MetricFamily& family : of.registry->Collect()) {
    if (family.name != name) {
      continue;
    }
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::map<std::string, std::string> found;
      for (const auto& label : metric.label) {
        found[label.name] = label.value;
      }
      if (found == labels) {
        return family.type == prometheus::MetricType::Counter     ? metric.counter.value
               : family.type == prometheus::MetricType::Histogram ? metric.histogram.sample_count
                                                                  : metric.gauge.value;
      }
    }
  }
  ADD_FAILURE() << "no metric " << name << " with " << labels.size() << " labels";
  return -1;
}

}  // namespace tokura::coordinator
