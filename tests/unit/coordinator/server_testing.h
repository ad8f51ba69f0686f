#pragma once

// Coordinators, nodes and clients on the simulator, driven by a test: real coordinators, requests
// of the others by hand.

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

#include "common/net/channel.h"
#include "coordinator/coordinator.h"
#include "proto/cluster.pb.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/transport.h"

namespace tokura::coordinator {

// A key of a chain of the tests: the same numbers, the same key.
BlockKey ChainKey(uint64_t chain, uint64_t block);
std::string KeyBytes(const BlockKey& key);
// Blocks [first, first + count) of a chain, concatenated.
std::string ChainKeys(uint64_t chain, uint64_t first, uint64_t count);

// One request as the peer that asked saw it.
class TestCall final : public net::Call {
 public:
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override;
  void OnReply(absl::Status status, std::span<const std::byte> body) override;

  bool answered() const { return status_.has_value(); }
  const absl::Status& status() const { return status_.value(); }
  TimePoint answered_at() const { return answered_at_; }
  template <typename Message>
  Message As() const {
    Message message;
    EXPECT_TRUE(status().ok()) << status();
    EXPECT_TRUE(message.ParseFromString(body_));
    return message;
  }
  // Run when it is answered.
  std::function<void(const TestCall&)> on_reply;
  // For answered_at.
  const Executor* executor = nullptr;

 private:
  std::optional<absl::Status> status_;
  std::string body_;
  TimePoint answered_at_;
};

// A process with one channel to a coordinator.
class TestPeer : public net::ClientChannelOwner {
 public:
  struct Options {
    std::string name = "client";
    std::string ip = "10.0.1.1";
    std::string role = "client";
    std::string tenant;
  };
  TestPeer(sim::SimNetwork& network, const net::Address& coordinator, Options options);
  ~TestPeer() override;

  absl::Status OnWelcome(net::ClientChannel&, const proto::Welcome& welcome) override;
  void OnGoodbye(net::ClientChannel&) override { goodbye_ = true; }
  void OnDown(net::ClientChannel&, absl::Status why) override { down_ = why; }

  struct Sent {
    uint64_t id = 0;
    std::shared_ptr<TestCall> call;  // shared with the peer and its channel
  };
  Sent Send(net::Op op, const google::protobuf::MessageLite& body,
            Duration deadline = std::chrono::seconds(5));
  void Cancel(uint64_t request_id);
  void Close(net::CloseMode mode);

  sim::SimHost& host() { return host_; }
  const std::optional<proto::Welcome>& welcome() const { return welcome_; }
  const std::optional<absl::Status>& down() const { return down_; }
  bool goodbye() const { return goodbye_; }

 private:
  sim::SimHost host_;
  sim::SimTransport transport_;
  std::vector<std::shared_ptr<TestCall>> calls_;  // kept for tests that look at them later
  std::unique_ptr<net::ClientChannel> channel_;
  std::optional<proto::Welcome> welcome_;
  std::optional<absl::Status> down_;
  bool goodbye_ = false;
};

// A node as a coordinator sees it: what it says is up to the test.
struct TestNode {
  TestPeer* peer = nullptr;
  std::string name;
  uint64_t incarnation = 0;
  std::string instance;
  bool starting = true;
  uint64_t highest_epoch = 0;
  uint64_t sequence = 0;  // of its change log
  uint64_t snapshots = 0;
  uint64_t used_bytes = 0;
  uint64_t inflight_bytes = 0;
  bool leaving = false;

  proto::RegisterRequest RegisterMessage() const;
  proto::ReportRequest ReportMessage() const;
  // The next changes: blocks of a chain that are held from now on, in codec `raw`.
  proto::InventoryBatch Holds(uint64_t chain, uint64_t first, uint64_t count);
  // Likewise that are held no more.
  proto::InventoryBatch Drops(uint64_t chain, uint64_t first, uint64_t count);
  // A whole inventory in one chunk.
  proto::InventoryBatch Snapshot(uint64_t chain, uint64_t first, uint64_t count);
};

// A coordinator as a process.
struct TestCoordinator {
  std::unique_ptr<sim::SimHost> host;
  std::unique_ptr<sim::SimTransport> transport;
  std::shared_ptr<prometheus::Registry> registry;  // shared with the coordinator
  std::unique_ptr<Coordinator> coordinator;
  net::Address address;
};

// Base of the tests: a simulated network with coordinators and those who ask them.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest();
  ~ServerTest() override;

  static CoordinatorOptions SmallOptions();
  TestCoordinator& StartCoordinator(CoordinatorOptions options, const std::string& ip = "10.0.0.1",
                                    PlantedBugs bugs = {});
  // Drain it and wait until that is done; its address is free then.
  void Stop(TestCoordinator& coordinator);
  // As a process that is killed.
  void Kill(TestCoordinator& coordinator);

  TestPeer& Connect(TestPeer::Options options, const TestCoordinator* maybe_to = nullptr);
  TestPeer& Connect() { return Connect(TestPeer::Options()); }
  // A node with a connection, not registered.
  TestNode MakeNode(const std::string& name, uint64_t incarnation,
                    const TestCoordinator* maybe_to = nullptr);
  // Another connection of the same process.
  void Reconnect(TestNode& node, const TestCoordinator* maybe_to = nullptr);
  // Register, adopting what is answered.
  proto::RegisterReply Register(TestNode& node);
  proto::ReportReply Report(TestNode& node, uint32_t batches_max = 4096);
  // Report again and again for `duration`, as nodes do.
  void ReportFor(const std::vector<TestNode*>& nodes, Duration duration);
  proto::InventoryReply Inventory(TestNode& node, const proto::InventoryBatch& batch);
  // Registered, with a complete inventory of nothing.
  TestNode StartNode(const std::string& name, uint64_t incarnation,
                     const TestCoordinator* maybe_to = nullptr);

  proto::LocateReply Locate(TestPeer& client, const proto::LocateRequest& request);
  static proto::LocateRequest LocateMessage(uint64_t chain, uint64_t count);
  uint32_t Prefix(TestPeer& client, uint64_t chain, uint64_t count) {
    return Locate(client, LocateMessage(chain, count)).prefix_blocks();
  }
  proto::ClusterState Watch(TestPeer& client, uint64_t known_epoch);
  // Of somebody to whom only what comes after `known` is news.
  static proto::WatchRequest WatchMessage(const proto::ClusterState& known);
  // The members' names with their states, "a:UP b:SUSPECT".
  static std::string Members(const proto::ClusterState& state);

  bool RunUntil(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(10));
  void RunFor(Duration duration) { scheduler_.RunFor(duration); }
  TestCall& Await(const TestPeer::Sent& sent);
  absl::StatusCode Code(const TestPeer::Sent& sent) { return Await(sent).status().code(); }
  double Metric(const std::string& name, const std::map<std::string, std::string>& labels = {},
                const TestCoordinator* maybe_of = nullptr);
  double Requests(const std::string& op, const std::string& result) {
    return Metric("tokura_coordinator_requests_total", {{"op", op}, {"result", result}});
  }

  sim::SimScheduler scheduler_;
  sim::SimNetwork network_;
  std::vector<std::unique_ptr<TestCoordinator>> coordinators_;
  std::vector<std::unique_ptr<TestPeer>> peers_;
  uint32_t last_ip_ = 0;
};

}  // namespace tokura::coordinator
