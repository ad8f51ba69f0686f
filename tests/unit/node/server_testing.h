#pragma once

// A node and its clients on the simulator, driven by a test: real parts, requests by hand, payloads
// received or held as the test says.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "cache-node/node.h"
#include "common/net/channel.h"
#include "kernels/part.h"
#include "proto/tokura.pb.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/transport.h"

namespace tokura::node {

// Layers of every part that MakePart makes, and their tokens.
inline constexpr uint32_t kTestLayers = 3;
inline constexpr uint32_t kTestTokens = 16;

// A valid part in codec `raw`; different seeds give different bytes. `heads` makes it larger.
std::vector<std::byte> MakePart(const kernels::PartIdentity& identity, uint64_t seed,
                                uint32_t heads = 1);
std::string ToString(std::span<const std::byte> bytes);
template <typename IdType>
std::string IdBytes(const IdType& id) {
  return ToString(id.span());
}

// Value of the series `name{labels}` in the registry; fails the test when there is none.
double MetricValue(prometheus::Registry& registry, const std::string& name,
                   const std::map<std::string, std::string>& labels);

// One request as the client saw it.
class TestCall : public net::Call {
 public:
  enum class Payloads { kReceive, kHold };
  struct Payload {
    net::FrameHeader frame;
    net::IncomingPayload offer;    // held
    std::vector<std::byte> bytes;  // received into
    std::unique_ptr<net::MemoryRegion> region;
    std::optional<absl::Status> done;
  };

  TestCall(net::Transport& transport, Payloads mode) : transport_(transport), mode_(mode) {}
  void OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) override;
  void OnReply(absl::Status status, std::span<const std::byte> body) override;
  // Receive a held payload.
  void Receive(Payload& payload);

  bool answered() const { return status_.has_value(); }
  const absl::Status& status() const { return *status_; }
  template <typename Message>
  Message As() const {
    Message message;
    EXPECT_TRUE(status().ok()) << status();
    EXPECT_TRUE(message.ParseFromString(body_));
    return message;
  }
  std::vector<std::unique_ptr<Payload>>& payloads() { return payloads_; }

 private:
  net::Transport& transport_;
  const Payloads mode_;
  std::optional<absl::Status> status_;
  std::string body_;
  std::vector<std::unique_ptr<Payload>> payloads_;
};

class SimNode;

// A client process with one channel to the node.
class TestClient : public net::ClientChannelOwner {
 public:
  struct Options {
    std::string name = "client";
    std::string ip = "10.0.0.2";
    std::string tenant = "tenant";
    std::string expected_node;
    uint64_t fenced_below = 0;
  };
  TestClient(sim::SimNetwork& network, const net::Address& node, Options options);
  ~TestClient() override;

  absl::Status OnWelcome(net::ClientChannel&, const proto::Welcome& welcome) override;
  void OnGoodbye(net::ClientChannel&) override { goodbye_ = true; }
  void OnDown(net::ClientChannel&, absl::Status why) override { down_ = why; }

  struct Sent {
    uint64_t id = 0;
    std::shared_ptr<TestCall> call;  // shared with the client and its channel
  };
  Sent Send(net::Op op, const google::protobuf::MessageLite& body,
            Duration deadline = std::chrono::seconds(5),
            TestCall::Payloads payloads = TestCall::Payloads::kReceive);
  // Offer the bytes of a part. The client keeps them for as long as it lives. Returns where the
  // outcome appears.
  std::shared_ptr<std::optional<absl::Status>> Offer(uint64_t request_id, uint32_t index,
                                                     PartId part, std::vector<std::byte> bytes);
  void Cancel(uint64_t request_id);
  void Close(net::CloseMode mode);

  sim::SimHost& host() { return host_; }
  net::Transport& transport() { return transport_; }
  net::ClientChannel& channel() { return *channel_; }
  const std::optional<proto::Welcome>& welcome() const { return welcome_; }
  const std::optional<absl::Status>& down() const { return down_; }
  bool goodbye() const { return goodbye_; }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::unique_ptr<net::MemoryRegion> region;
  };
  sim::SimHost host_;
  sim::SimTransport transport_;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  std::vector<std::shared_ptr<TestCall>> calls_;  // kept: transfers outlive their replies
  std::unique_ptr<net::ClientChannel> channel_;
  std::optional<proto::Welcome> welcome_;
  std::optional<absl::Status> down_;
  bool goodbye_ = false;
};

// Base of the tests: a simulated cluster of one node.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest();
  ~ServerTest() override;

  // Start the node; once, before any client. `loops` I/O threads.
  void StartNode(NodeOptions options, PlantedBugs bugs = {}, int loops = 1);
  static NodeOptions SmallOptions();
  TestClient& Connect(TestClient::Options options);
  TestClient& Connect() { return Connect(TestClient::Options()); }

  // Run the simulation until `condition` holds; false when it does not within `limit` of its time.
  bool RunUntil(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(10));
  void RunFor(Duration duration) { scheduler_.RunFor(duration); }
  // Run until the call is answered.
  TestCall& Await(const TestClient::Sent& sent);
  double Metric(const std::string& name, const std::map<std::string, std::string>& labels = {}) {
    return MetricValue(*registry_, name, labels);
  }
  // No request, transfer, pin, reservation or lease is left.
  void ExpectIdle();

  sim::SimScheduler scheduler_;
  sim::SimNetwork network_;
  std::unique_ptr<sim::SimHost> node_host_;
  std::vector<std::unique_ptr<sim::SimTransport>> node_transports_;
  std::shared_ptr<prometheus::Registry> registry_;  // shared with the node
  std::unique_ptr<Node> node_;
  std::vector<std::unique_ptr<TestClient>> clients_;
  const net::Address address_{"10.0.0.1", 7421};
};

}  // namespace tokura::node
