#include "tests/unit/node/server_testing.h"

#include <cstring>
#include <utility>

#include "common/check.h"

namespace tokura::node {
namespace {

sim::SimHost::Options HostOptions(const std::string& name, const std::string& ip, int loops) {
  sim::SimHost::Options options;
  options.name = name;
  options.ip = ip;
  options.loops = loops;
  return options;
}

}  // namespace

std::string ToString(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<std::byte> MakePart(const kernels::PartIdentity& identity, uint64_t seed,
                                uint32_t heads) {
  constexpr uint32_t kDim = 16;
  kernels::PartShape shape;
  shape.dtype = DType::kFloat16;
  shape.layers = kTestLayers;
  shape.heads = heads;
  shape.k_head_dim = kDim;
  shape.v_head_dim = kDim;
  shape.tokens = kTestTokens;
  const size_t side = size_t{heads} * kTestTokens * kDim;
  // [layers, 2 (k, v), heads, tokens, dim], float16; small finite values.
  std::vector<uint16_t> values(kTestLayers * 2 * side);
  sim::SimRandom random(seed);
  for (uint16_t& value : values) {
    value = static_cast<uint16_t>(0x3000 + random.Below(0x800));
  }
  std::vector<kernels::KvLayer> layers;
  for (uint32_t i = 0; i < kTestLayers; ++i) {
    auto* base = reinterpret_cast<std::byte*>(values.data() + i * 2 * side);
    layers.push_back({base, base + side * sizeof(uint16_t)});
  }
  const kernels::KvView view =
      kernels::ContiguousView(DType::kFloat16, heads, kDim, kTestTokens, std::move(layers));
  kernels::EncodeOptions options;
  options.codec = "raw";
  options.record = kernels::EncodeOptions::Record::kSkip;
  const auto bytes_max = kernels::PartBytesMax(shape, "raw");
  TOKURA_CHECK(bytes_max.ok());
  // The encoder wants aligned memory; the vector that is returned need not be.
  std::vector<std::byte> storage(*bytes_max + kernels::kPartAlignment);
  const auto address = reinterpret_cast<uintptr_t>(storage.data());
  const size_t skip =
      (kernels::kPartAlignment - address % kernels::kPartAlignment) % kernels::kPartAlignment;
  auto encoder = kernels::PartEncoder::Create(identity, shape, {&view, 0, 0}, options,
                                              std::span(storage).subspan(skip));
  TOKURA_CHECK(encoder.ok());
  while (!encoder->done()) {
    encoder->EncodeLayer();
  }
  const size_t bytes = encoder->Finish();
  return std::vector<std::byte>(storage.begin() + static_cast<ptrdiff_t>(skip),
                                storage.begin() + static_cast<ptrdiff_t>(skip + bytes));
}

double MetricValue(prometheus::Registry& registry, const std::string& name,
                   const std::map<std::string, std::string>& labels) {
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name != name) {
      continue;
    }
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::map<std::string, std::string> found;
      for (const auto& label : metric.label) {
        found[label.name] = label.value;
      }
      if (found != labels) {
        continue;
      }
      switch (family.type) {
        case prometheus::MetricType::Counter:
          return metric.counter.value;
        case prometheus::MetricType::Histogram:
          return static_cast<double>(metric.histogram.sample_count);
        default:
          return metric.gauge.value;
      }
    }
  }
  ADD_FAILURE() << "no metric " << name << " with " << labels.size() << " labels";
  return -1;
}

void TestCall::OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) {
  EXPECT_FALSE(answered()) << "a payload after the reply";
  auto entry = std::make_unique<Payload>();
  entry->frame = frame;
  entry->offer = std::move(payload);
  payloads_.push_back(std::move(entry));
  if (mode_ == Payloads::kReceive) {
    Receive(*payloads_.back());
  }
}

void TestCall::Receive(Payload& payload) {
  payload.bytes.resize(payload.offer.size());
  auto region = transport_.Register(payload.bytes);
  TOKURA_CHECK(region.ok());
  payload.region = std::move(*region);
  payload.offer.Receive({payload.region.get(), payload.bytes.data(), payload.bytes.size()},
                        [&payload](absl::Status status) { payload.done = std::move(status); });
}

void TestCall::OnReply(absl::Status status, std::span<const std::byte> body) {
  EXPECT_FALSE(answered()) << "two replies";
  status_ = std::move(status);
  body_ = ToString(body);
}

TestClient::TestClient(sim::SimNetwork& network, const net::Address& node, Options options)
    : host_(network.scheduler(), HostOptions(options.name, options.ip, 1)),
      transport_(network, host_.loop()) {
  host_.loop().Enter([&] {
    const std::vector<std::byte> instance(16, std::byte{1});
    net::ClientChannel::Options channel;
    channel.hello = net::MakeHello(transport_, "client", options.name, instance);
    channel.hello.set_tenant(options.tenant);
    channel.hello.set_expected_node(options.expected_node);
    channel.hello.set_fenced_below(options.fenced_below);
    channel_ = net::ClientChannel::Start(transport_, node, channel, *this);
  });
}

TestClient::~TestClient() = default;

absl::Status TestClient::OnWelcome(net::ClientChannel&, const proto::Welcome& welcome) {
  welcome_ = welcome;
  return absl::OkStatus();
}

TestClient::Sent TestClient::Send(net::Op op, const google::protobuf::MessageLite& body,
                                  Duration deadline, TestCall::Payloads payloads) {
  Sent sent;
  sent.call = std::make_shared<TestCall>(transport_, payloads);
  calls_.push_back(sent.call);
  host_.loop().Enter(
      [&] { sent.id = channel_->Send(op, body, host_.loop().Now() + deadline, sent.call); });
  return sent;
}

std::shared_ptr<std::optional<absl::Status>> TestClient::Offer(uint64_t request_id, uint32_t index,
                                                               PartId part,
                                                               std::vector<std::byte> bytes) {
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->bytes = std::move(bytes);
  auto region = transport_.Register(outgoing->bytes);
  TOKURA_CHECK(region.ok());
  outgoing->region = std::move(*region);
  auto outcome = std::make_shared<std::optional<absl::Status>>();
  host_.loop().Enter([&] {
    const net::RegisteredSpan piece{outgoing->region.get(), outgoing->bytes.data(),
                                    outgoing->bytes.size()};
    channel_->SendPayload(request_id, net::Op::kPut, index, part, std::span(&piece, 1),
                          [outcome](absl::Status status) { *outcome = std::move(status); });
  });
  outgoing_.push_back(std::move(outgoing));
  return outcome;
}

void TestClient::Cancel(uint64_t request_id) {
  host_.loop().Enter([&] { channel_->Cancel(request_id); });
}

void TestClient::Close(net::CloseMode mode) {
  host_.loop().Enter([&] { channel_->Close(mode); });
}

ServerTest::ServerTest() : scheduler_(1), network_(scheduler_, {}) {
  net::SetFormatVersion(kernels::FormatVersionString());
}

ServerTest::~ServerTest() {
  for (const auto& client : clients_) {
    if (client->host().paused()) {
      client->host().Continue();
    }
    client->Close(net::CloseMode::kAbort);
  }
  EXPECT_TRUE(RunUntil([&] {
    for (const auto& client : clients_) {
      if (!client->down()) {
        return false;
      }
    }
    return true;
  }));
  if (node_ != nullptr) {
    bool drained = false;
    node_host_->loop().Enter([&] { node_->Drain([&] { drained = true; }); });
    EXPECT_TRUE(RunUntil([&] { return drained; })) << "the drain does not end";
    node_host_->loop().Enter([&] { node_.reset(); });
  }
}

NodeOptions ServerTest::SmallOptions() {
  NodeOptions options;
  options.name = "node-a";
  options.host_bytes = uint64_t{4} << 20;
  options.part_bytes_max = uint64_t{1} << 20;
  options.inflight_bytes_max = uint64_t{1} << 20;
  options.lease_age = std::chrono::seconds(2);
  options.lease_age_max = std::chrono::seconds(6);
  options.incomplete_age = std::chrono::seconds(5);
  return options;
}

void ServerTest::StartNode(NodeOptions options, PlantedBugs bugs, int loops) {
  node_host_ = std::make_unique<sim::SimHost>(scheduler_, HostOptions("node", "10.0.0.1", loops));
  registry_ = std::make_shared<prometheus::Registry>();
  Node::Dependencies dependencies{
      {}, *node_host_, node_host_->random(), node_host_->pool(), registry_};
  for (int i = 0; i < loops; ++i) {
    node_transports_.push_back(
        std::make_unique<sim::SimTransport>(network_, node_host_->loop(static_cast<size_t>(i))));
    dependencies.transports.push_back(node_transports_.back().get());
  }
  options.listen = address_;
  node_host_->loop().Enter([&] {
    auto node = Node::Create(dependencies, options, bugs);
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = std::move(*node);
    const absl::Status started = node_->Start();
    ASSERT_TRUE(started.ok()) << started;
  });
}

TestClient& ServerTest::Connect(TestClient::Options options) {
  clients_.push_back(std::make_unique<TestClient>(network_, address_, std::move(options)));
  TestClient& client = *clients_.back();
  EXPECT_TRUE(RunUntil([&] { return client.welcome().has_value() || client.down().has_value(); }));
  return client;
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

TestCall& ServerTest::Await(const TestClient::Sent& sent) {
  EXPECT_TRUE(RunUntil([&] { return sent.call->answered(); }));
  return *sent.call;
}

void ServerTest::ExpectIdle() {
  EXPECT_TRUE(RunUntil([&] {
    const Node::Accounting accounting = node_->accounting();
    return accounting.pinned_forms == 0 && accounting.leases == 0;
  })) << "pins or leases are left";
  EXPECT_TRUE(RunUntil([&] { return Metric("tokura_node_inflight_requests") == 0; }));
  EXPECT_TRUE(RunUntil([&] {
    return Metric("tokura_tier_reserved_bytes", {{"tier", "host"}}) == 0;
  })) << "reservations are left";
}

}  // namespace tokura::node
