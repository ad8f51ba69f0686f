// The coordinator behind its protocol, on the simulator: greeting, limits, broken requests, drain,
// health, options.

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>

#include "tests/unit/coordinator/server_testing.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A body that parses as no message: a field of a wire type that does not exist.
class NoMessage final : public google::protobuf::MessageLite {
 public:
  std::string GetTypeName() const override { return "none"; }
  NoMessage* New(google::protobuf::Arena*) const override { return nullptr; }
  void Clear() override {}
  bool IsInitialized() const override { return true; }
  void CheckTypeAndMergeFrom(const google::protobuf::MessageLite&) override {}
  size_t ByteSizeLong() const override { return 1; }
  int GetCachedSize() const override { return 1; }
  uint8_t* _InternalSerialize(uint8_t* at,
                              google::protobuf::io::EpsCopyOutputStream*) const override {
    *at = 0x0f;
    return at + 1;
  }
};

// ---- HELLO ----

TEST_F(ServerTest, WelcomeNamesCoordinatorIncarnationAdminAndLimits) {
  CoordinatorOptions options = SmallOptions();
  options.admin = {"10.0.0.1", 9000};
  options.keys_max = 100;
  options.incarnation = 77;
  StartCoordinator(options);
  TestPeer& client = Connect();
  ASSERT_TRUE(client.welcome());
  EXPECT_EQ(client.welcome()->node(), "coordinator-a");
  EXPECT_EQ(client.welcome()->incarnation(), 77u);
  EXPECT_EQ(client.welcome()->admin(), "10.0.0.1:9000");
  EXPECT_EQ(client.welcome()->limits().keys_max(), 100u);
  EXPECT_EQ(client.welcome()->limits().requests_max(), options.requests_max);
  EXPECT_EQ(coordinators_[0]->coordinator->accounting().connections, 1u);
  EXPECT_EQ(Metric("tokura_transport_endpoints", {{"state", "open"}}), 1);
}

TEST_F(ServerTest, RefusesUnknownRolesAndEndlessTenants) {
  StartCoordinator(SmallOptions());
  TestPeer::Options options;
  options.role = "engine";
  TestPeer& engine = Connect(options);
  ASSERT_TRUE(RunUntil([&] { return engine.down().has_value(); }));
  EXPECT_EQ(engine.down()->code(), kInvalid);
  EXPECT_THAT(std::string(engine.down()->message()), HasSubstr("engine"));
  options.role = "client";
  options.tenant = std::string(257, 'x');
  TestPeer& tenant = Connect(options);
  ASSERT_TRUE(RunUntil([&] { return tenant.down().has_value(); }));
  EXPECT_EQ(tenant.down()->code(), kInvalid);
  EXPECT_TRUE(RunUntil([&] {
    return Metric("tokura_coordinator_connections_ended_total", {{"reason", "refused"}}) == 2;
  }));
}

TEST_F(ServerTest, RefusesConnectionsAboveTheLimitReadably) {
  CoordinatorOptions options = SmallOptions();
  options.connections_max = 1;
  StartCoordinator(options);
  TestPeer& first = Connect();
  TestPeer& second = Connect();
  ASSERT_TRUE(RunUntil([&] { return second.down().has_value(); }));
  EXPECT_EQ(second.down()->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.down()->message()), HasSubstr("at most 1 connections"));
  EXPECT_EQ(Metric("tokura_coordinator_connections_ended_total", {{"reason", "limit"}}), 1);
  first.Close(net::CloseMode::kFlush);
  ASSERT_TRUE(
      RunUntil([&] { return coordinators_[0]->coordinator->accounting().connections == 0; }));
  EXPECT_TRUE(Connect().welcome());
}

// ---- broken and oversized requests ----

TEST_F(ServerTest, RequestsOfNodesAreForConnectionsOfNodes) {
  StartCoordinator(SmallOptions());
  TestPeer& client = Connect();
  for (const net::Op op : {net::Op::kRegister, net::Op::kReport, net::Op::kInventory}) {
    EXPECT_EQ(Code(client.Send(op, proto::RegisterRequest())), kInvalid);
  }
  EXPECT_EQ(Requests("register", "invalid_argument"), 1);
}

TEST_F(ServerTest, RequestsForCacheNodesAreUnimplemented) {
  StartCoordinator(SmallOptions());
  TestPeer& client = Connect();
  for (const net::Op op : {net::Op::kLookup, net::Op::kAcquire, net::Op::kRenew, net::Op::kRelease,
                           net::Op::kGet, net::Op::kPut, net::Op::kRemove, net::Op::kStat}) {
    EXPECT_EQ(Code(client.Send(op, proto::StatRequest())), absl::StatusCode::kUnimplemented);
  }
  EXPECT_EQ(Metric("tokura_coordinator_inflight_requests"), 0);
}

TEST_F(ServerTest, MalformedRequestsAreRefusedAndTheConnectionLives) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  for (const net::Op op : {net::Op::kLocate, net::Op::kPlan, net::Op::kWatch, net::Op::kNodes,
                           net::Op::kRegister, net::Op::kReport, net::Op::kInventory}) {
    EXPECT_EQ(Code(node.peer->Send(op, NoMessage())), kInvalid) << net::OpName(op);
  }
  EXPECT_FALSE(node.peer->down());
  EXPECT_EQ(Report(node).epoch(), 1u);
}

TEST_F(ServerTest, KeysOfTheWrongSizeOrNumberAreRefused) {
  CoordinatorOptions options = SmallOptions();
  options.keys_max = 8;
  StartCoordinator(options);
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  proto::LocateRequest locate;
  EXPECT_EQ(Code(client.Send(net::Op::kLocate, locate)), kInvalid);
  locate.set_keys(std::string(17, 'k'));
  EXPECT_EQ(Code(client.Send(net::Op::kLocate, locate)), kInvalid);
  locate.set_keys(ChainKeys(1, 0, 9));
  const TestCall& oversized = Await(client.Send(net::Op::kLocate, locate));
  EXPECT_EQ(oversized.status().code(), kInvalid);
  EXPECT_THAT(std::string(oversized.status().message()), HasSubstr("takes 8"));
  locate.set_keys(ChainKeys(1, 0, 8));
  EXPECT_EQ(Locate(client, locate).prefix_blocks(), 0u);
  proto::PlanRequest plan;
  plan.set_keys(ChainKeys(1, 0, 9));
  EXPECT_EQ(Code(client.Send(net::Op::kPlan, plan)), kInvalid);
}

TEST_F(ServerTest, LocateRefusesBadRules) {
  StartCoordinator(SmallOptions());
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  proto::LocateRequest negative = LocateMessage(1, 2);
  negative.mutable_accept()->set_max_error(-1);
  EXPECT_EQ(Code(client.Send(net::Op::kLocate, negative)), kInvalid);
  proto::LocateRequest twice = LocateMessage(1, 2);
  twice.add_groups()->set_group(1);
  twice.add_groups()->set_group(1);
  EXPECT_EQ(Code(client.Send(net::Op::kLocate, twice)), kInvalid);
  proto::LocateRequest avoiding = LocateMessage(1, 2);
  for (int i = 0; i < 65; ++i) {
    avoiding.add_avoid("node");
  }
  EXPECT_EQ(Code(client.Send(net::Op::kLocate, avoiding)), kInvalid);
}

TEST_F(ServerTest, PlanRefusesPositionsBesideASegment) {
  StartCoordinator(SmallOptions());
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  proto::PlanRequest plan;
  plan.set_keys(ChainKeys(1, 4, 4));
  plan.set_first_position(3);
  const TestCall& beside = Await(client.Send(net::Op::kPlan, plan));
  EXPECT_EQ(beside.status().code(), kInvalid);
  EXPECT_THAT(std::string(beside.status().message()), HasSubstr("segment_blocks (4)"));
  plan.set_first_position(4);
  plan.set_first_block(4);
  EXPECT_EQ(Code(client.Send(net::Op::kPlan, plan)), kInvalid);
}

TEST_F(ServerTest, InventoryOfAnotherNodeOrLifeIsRefused) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  proto::InventoryBatch batch = node.Holds(1, 0, 2);
  batch.set_node("node-b");
  EXPECT_EQ(Code(node.peer->Send(net::Op::kInventory, batch)), kInvalid);
  batch.set_node("node-a");
  batch.set_incarnation(9);
  EXPECT_EQ(Code(node.peer->Send(net::Op::kInventory, batch)),
            absl::StatusCode::kFailedPrecondition);
  batch.set_incarnation(10);
  batch.mutable_forms()->Clear();
  EXPECT_EQ(Code(node.peer->Send(net::Op::kInventory, batch)), kInvalid);
  RunFor(milliseconds(150));
  EXPECT_GE(Metric("tokura_coordinator_inventory_batches_total", {{"result", "refused"}}), 1);
  EXPECT_EQ(Prefix(Connect(), 1, 2), 0u);
}

TEST_F(ServerTest, NodesMustRegisterFirstAndOnceByOneName) {
  StartCoordinator(SmallOptions());
  TestNode node = MakeNode("node-a", 10);
  EXPECT_EQ(Code(node.peer->Send(net::Op::kReport, node.ReportMessage())),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Code(node.peer->Send(net::Op::kInventory, node.Holds(1, 0, 1))),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Requests("report", "not_found"), 1);
  EXPECT_EQ(Requests("inventory", "not_found"), 1);
  Register(node);
  proto::RegisterRequest other = node.RegisterMessage();
  other.set_node("node-b");
  EXPECT_EQ(Code(node.peer->Send(net::Op::kRegister, other)), kInvalid);
}

TEST_F(ServerTest, RequestsOutstandingPerConnectionAreBounded) {
  CoordinatorOptions options = SmallOptions();
  options.requests_max = 2;
  StartCoordinator(options);
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  const proto::WatchRequest watch = WatchMessage(Watch(client, 0));
  client.Send(net::Op::kWatch, watch);
  client.Send(net::Op::kWatch, watch);
  EXPECT_EQ(Code(client.Send(net::Op::kWatch, watch)), absl::StatusCode::kResourceExhausted);
}

// ---- no state yet ----

TEST_F(ServerTest, BeforeTheFirstStateClientsAreSentElsewhere) {
  CoordinatorOptions options = SmallOptions();
  options.forming = seconds(3);
  StartCoordinator(options);
  TestPeer& client = Connect();
  EXPECT_EQ(Code(client.Send(net::Op::kLocate, LocateMessage(1, 2))),
            absl::StatusCode::kUnavailable);
  proto::PlanRequest plan;
  plan.set_keys(ChainKeys(1, 0, 2));
  EXPECT_EQ(Code(client.Send(net::Op::kPlan, plan)), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Code(client.Send(net::Op::kNodes, proto::NodesRequest())),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Code(client.Send(net::Op::kWatch, proto::WatchRequest(), seconds(1))),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(coordinators_[0]->coordinator->Ready().ok());
  EXPECT_TRUE(coordinators_[0]->coordinator->Healthy().ok());
  RunFor(seconds(3));
  EXPECT_TRUE(coordinators_[0]->coordinator->Ready().ok());
  EXPECT_EQ(Prefix(client, 1, 2), 0u);
  // A cluster without nodes takes no block.
  EXPECT_EQ(Code(client.Send(net::Op::kPlan, plan)), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Metric("tokura_coordinator_plan_blocks_total", {{"result", "unplaced"}}), 2);
}

// ---- policy ----

TEST_F(ServerTest, TheRulesOfThePolicyReachWhoWatches) {
  const std::string path = testing::TempDir() + "server_test_policy.yaml";
  std::ofstream(path) << "rules:\n  - tenant: chat\n    ingest_codec: kivi4\n";
  CoordinatorOptions options = SmallOptions();
  options.policy_file = path;
  StartCoordinator(options);
  StartNode("node-a", 10);
  const proto::ClusterState state = Watch(Connect(), 0);
  ASSERT_EQ(state.rules_size(), 1);
  EXPECT_EQ(state.rules(0).tenant(), "chat");
  EXPECT_EQ(state.rules(0).ingest_codec(), "kivi4");
  EXPECT_GT(state.policy_version(), 0u);
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_coordinator_policy_version"),
            static_cast<double>(state.policy_version()));
}

TEST_F(ServerTest, ABrokenPolicyIsToldWithItsLine) {
  const std::string path = testing::TempDir() + "server_test_broken_policy.yaml";
  std::ofstream(path) << "rules:\n  - tenant: chat\n    ingest_codec: kivi4\n    colour: red\n";
  sim::SimHost host(scheduler_, {});
  sim::SimTransport transport(network_, host.loop());
  CoordinatorOptions options = SmallOptions();
  options.policy_file = path;
  host.loop().Enter([&] {
    const auto made = Coordinator::Create(
        {transport, host, host.random(), std::make_shared<prometheus::Registry>()}, options);
    EXPECT_EQ(made.status().code(), kInvalid);
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(path + ":4:"));
  });
}

// ---- drain, health ----

TEST_F(ServerTest, DrainAnswersWhatWaitsSaysGoodbyeAndRefusesTheRest) {
  TestCoordinator& coordinator = StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  TestPeer& client = Connect();
  const proto::WatchRequest watch = WatchMessage(Watch(client, 0));
  const TestPeer::Sent waiting = client.Send(net::Op::kWatch, watch, seconds(60));
  RunFor(milliseconds(10));
  EXPECT_FALSE(waiting.call->answered());
  bool drained = false;
  coordinator.host->loop().Enter([&] { coordinator.coordinator->Drain([&] { drained = true; }); });
  EXPECT_EQ(coordinator.coordinator->Ready().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(coordinator.coordinator->Healthy().ok());
  EXPECT_EQ(Await(waiting).As<proto::ClusterState>().epoch(), watch.known_epoch());
  ASSERT_TRUE(RunUntil([&] { return client.goodbye() && node.peer->goodbye(); }));
  EXPECT_EQ(Code(client.Send(net::Op::kLocate, LocateMessage(1, 1))),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(RunUntil([&] { return drained && client.down() && node.peer->down(); }));
  EXPECT_EQ(coordinator.coordinator->accounting().connections, 0u);
  EXPECT_EQ(Metric("tokura_queue_depth", {{"queue", "watches"}}), 0);
  coordinator.host->loop().Enter([&] { coordinator.coordinator.reset(); });
}

TEST_F(ServerTest, DrainDoesNotWaitForPeersThatAreStopped) {
  TestCoordinator& coordinator = StartCoordinator(SmallOptions());
  TestPeer& client = Connect();
  client.host().Pause();
  bool drained = false;
  const TimePoint begin = scheduler_.Now();
  coordinator.host->loop().Enter([&] { coordinator.coordinator->Drain([&] { drained = true; }); });
  ASSERT_TRUE(RunUntil([&] { return drained; }));
  EXPECT_LT(scheduler_.Now() - begin, SmallOptions().drain_timeout + seconds(1));
  client.host().Continue();
  coordinator.host->loop().Enter([&] { coordinator.coordinator.reset(); });
}

TEST_F(ServerTest, ACoordinatorThatHasStoppedTickingIsNotHealthy) {
  TestCoordinator& coordinator = StartCoordinator(SmallOptions());
  RunFor(seconds(1));
  EXPECT_TRUE(coordinator.coordinator->Healthy().ok());
  coordinator.host->Pause();
  RunFor(seconds(6));
  EXPECT_EQ(coordinator.coordinator->Healthy().code(), absl::StatusCode::kUnavailable);
  coordinator.host->Continue();
  RunFor(seconds(1));
  EXPECT_TRUE(coordinator.coordinator->Healthy().ok());
}

TEST_F(ServerTest, StartSaysWhenTheAddressIsTaken) {
  StartCoordinator(SmallOptions());
  sim::SimHost::Options host_options;
  host_options.name = "other";
  host_options.ip = "10.0.0.1";
  sim::SimHost host(scheduler_, host_options);
  sim::SimTransport transport(network_, host.loop());
  host.loop().Enter([&] {
    CoordinatorOptions options = SmallOptions();
    options.listen = coordinators_[0]->address;
    auto coordinator = Coordinator::Create(
        {transport, host, host.random(), std::make_shared<prometheus::Registry>()}, options);
    ASSERT_TRUE(coordinator.ok());
    EXPECT_EQ((*coordinator)->Start().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE((*coordinator)->Healthy().ok());
  });
}

// ---- options ----

TEST(CoordinatorOptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(ValidateCoordinatorOptions(CoordinatorOptions()).ok());
}

TEST(CoordinatorOptionsTest, EachRuleIsNamed) {
  struct Case {
    const char* says;
    void (*breaks)(CoordinatorOptions&);
  };
  const Case cases[] = {
      {"name", [](CoordinatorOptions& o) { o.name.clear(); }},
      {"name", [](CoordinatorOptions& o) { o.name = std::string(257, 'n'); }},
      {"no metadata in Redis",
       [](CoordinatorOptions& o) { o.metadata = "redis://127.0.0.1:6379"; }},
      {"must be memory or", [](CoordinatorOptions& o) { o.metadata = "etcd"; }},
      {"port", [](CoordinatorOptions& o) { o.metadata = "coordinator://127.0.0.1:0"; }},
      {"metadata coordinator://nowhere: ",
       [](CoordinatorOptions& o) { o.metadata = "coordinator://nowhere"; }},
      {"holder's",
       [](CoordinatorOptions& o) {
         o.metadata = "coordinator://127.0.0.1:1";
         o.policy_file = "policy.yaml";
       }},
      {"segment-blocks", [](CoordinatorOptions& o) { o.segment_blocks = 0; }},
      {"segment-blocks", [](CoordinatorOptions& o) { o.segment_blocks = o.keys_max + 1; }},
      {"keys-max", [](CoordinatorOptions& o) { o.keys_max = 0; }},
      {"keys-max", [](CoordinatorOptions& o) { o.keys_max = 16385; }},
      {"replicas", [](CoordinatorOptions& o) { o.replicas = 0; }},
      {"replicas", [](CoordinatorOptions& o) { o.replicas = 5; }},
      {"blocks-max", [](CoordinatorOptions& o) { o.blocks_max = 0; }},
      {"connections-max", [](CoordinatorOptions& o) { o.connections_max = 0; }},
      {"requests-max", [](CoordinatorOptions& o) { o.requests_max = 0; }},
      {"24 h", [](CoordinatorOptions& o) { o.join_ramp = std::chrono::hours(25); }},
      {"suspect-after", [](CoordinatorOptions& o) { o.suspect_after = o.report_interval; }},
      {"remove-after", [](CoordinatorOptions& o) { o.remove_after = milliseconds(1); }},
      {"report-interval", [](CoordinatorOptions& o) { o.report_interval = Duration::zero(); }},
      {"dead-after", [](CoordinatorOptions& o) { o.dead_after = milliseconds(1); }},
  };
  for (const Case& one : cases) {
    CoordinatorOptions options;
    one.breaks(options);
    const absl::Status status = ValidateCoordinatorOptions(options);
    EXPECT_EQ(status.code(), kInvalid) << one.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
  }
}

}  // namespace
}  // namespace tokura::coordinator
