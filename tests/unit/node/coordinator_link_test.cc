// A node and the coordinators that it registers with.

#include "cache-node/coordinator_link.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/node/fake_coordinator.h"
#include "tests/unit/node/server_request_testing.h"

namespace tokura::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

class CoordinatorLinkTest : public ServerRequestTest {
 protected:
  ~CoordinatorLinkTest() override {
    if (node_ != nullptr) {
      DrainNode();
    }
  }
  FakeCoordinator& AddCoordinator() {
    FakeCoordinator::Options options;
    options.name = "coordinator-" + std::to_string(coordinators_.size());
    options.ip = "10.0.1." + std::to_string(coordinators_.size() + 1);
    coordinators_.push_back(std::make_unique<FakeCoordinator>(network_, options));
    return *coordinators_.back();
  }
  FakeCoordinator& first() { return *coordinators_.front(); }
  NodeOptions ClusterOptions() {
    NodeOptions options = SmallOptions();
    options.incarnation = 1000;
    for (const auto& coordinator : coordinators_) {
      options.coordinators.push_back(coordinator->address());
    }
    return options;
  }
  void Start(PlantedBugs bugs = {}) { StartNode(ClusterOptions(), bugs); }
  // Every coordinator knows what the node holds of the keys up to `count`.
  bool AllKnow(uint64_t blocks) {
    for (const auto& coordinator : coordinators_) {
      if (!coordinator->model.complete || coordinator->model.content.size() != blocks) {
        return false;
      }
    }
    return true;
  }
  void DrainNode() {
    bool drained = false;
    node_host_->loop().Enter([&] { node_->Drain([&] { drained = true; }); });
    EXPECT_TRUE(RunUntil([&] { return drained; })) << "the drain does not end";
    node_host_->loop().Enter([&] { node_.reset(); });
  }
  TestClient::Sent StartPlacedPut(TestClient& client, const Chain& chain, uint64_t epoch,
                                  uint64_t ttl_us = 0) {
    proto::PutRequest put = PutMessage(chain);
    put.set_placement_epoch(epoch);
    put.set_ttl_us(ttl_us);
    const TestClient::Sent sent = client.Send(net::Op::kPut, put);
    ForEachPart(chain, [&](uint32_t block, PartId part) {
      client.Offer(sent.id, block, part, Part(chain, block, part));
    });
    return sent;
  }
  absl::StatusCode PlacedPut(TestClient& client, const Chain& chain, uint64_t epoch) {
    TestCall& call = Await(StartPlacedPut(client, chain, epoch));
    return call.status().ok() ? Codes(call.As<proto::PutReply>().statuses())[0]
                              : call.status().code();
  }
  proto::OrphanBatch Orphans(uint64_t incarnation, const Chain& chain) {
    proto::OrphanBatch batch;
    batch.set_incarnation(incarnation);
    batch.set_keys(Keys(chain));
    return batch;
  }
  bool RunUntilMetric(const std::string& name, const std::map<std::string, std::string>& labels,
                      double value) {
    return RunUntil([&] { return Metric(name, labels) == value; });
  }

  std::vector<std::unique_ptr<FakeCoordinator>> coordinators_;
};

TEST_F(CoordinatorLinkTest, RegistersAndReports) {
  FakeCoordinator& coordinator = AddCoordinator();
  coordinator.epoch = 7;
  Start();
  EXPECT_TRUE(node_->Ready().ok()) << "ready when it listens, registered or not";
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() >= 3; }));
  ASSERT_EQ(coordinator.registers.size(), 1u);
  const proto::RegisterRequest& request = coordinator.registers[0];
  EXPECT_EQ(request.node(), "node-a");
  EXPECT_EQ(request.incarnation(), 1000u);
  EXPECT_EQ(request.instance().size(), 16u);
  EXPECT_TRUE(request.starting());
  EXPECT_EQ(request.address(), address_.ToString());
  EXPECT_EQ(request.capacity_bytes(), uint64_t{4} << 20);
  EXPECT_EQ(request.age_us(), 0u);
  EXPECT_EQ(coordinator.hellos[0].role(), "node");
  EXPECT_EQ(coordinator.reports[0].incarnation(), 1000u);
  EXPECT_EQ(coordinator.reports[2].highest_epoch(), 7u);
  EXPECT_FALSE(coordinator.reports[2].leaving());
  EXPECT_GT(coordinator.reports[2].batches_max(), 0u);
  EXPECT_EQ(Metric("tokura_node_coordinators_registered"), 1);
  EXPECT_EQ(Metric("tokura_node_registrations_total", {{"result", "admitted"}}), 1);
}

TEST_F(CoordinatorLinkTest, TellsWhatItAdvertises) {
  FakeCoordinator& coordinator = AddCoordinator();
  NodeOptions options = ClusterOptions();
  options.advertise = {"192.0.2.7", 0};
  StartNode(options);
  ASSERT_TRUE(RunUntil([&] { return !coordinator.registers.empty(); }));
  EXPECT_EQ(coordinator.registers[0].address(), "192.0.2.7:7421");
}

TEST_F(CoordinatorLinkTest, EveryCoordinatorFollowsTheStore) {
  AddCoordinator();
  AddCoordinator();
  Start();
  TestClient& client = Connect();
  EXPECT_THAT(Put(client, {.first = 1, .blocks = 3}), ElementsAre(kOk, kOk, kOk));
  ASSERT_TRUE(RunUntil([&] { return AllKnow(3); }));
  Remove(client, {.first = 2, .blocks = 2});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(1); }));
  for (const auto& coordinator : coordinators_) {
    EXPECT_EQ(coordinator->model.snapshots, 1);
    EXPECT_EQ(coordinator->model.gaps, 0);
    EXPECT_EQ(coordinator->model.incarnation, 1000u);
  }
  EXPECT_GE(Metric("tokura_node_inventory_batches_total", {{"kind", "changes"}}), 2);
  EXPECT_EQ(Metric("tokura_node_inventory_batches_total", {{"kind", "snapshot"}}), 2);
  EXPECT_TRUE(RunUntil([&] {
    return Metric("tokura_node_inventory_records_total", {{"kind", "changes"}}) +
               Metric("tokura_node_inventory_records_total", {{"kind", "snapshot"}}) >=
           10;
  })) << "three that came and two that went, at two coordinators";
  EXPECT_EQ(Metric("tokura_node_inventory_snapshots_total"), 2);
}

TEST_F(CoordinatorLinkTest, ALostConnectionGoesOnWhereItWas) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  TestClient& client = Connect();
  Put(client, {.first = 1});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(1); }));
  RunFor(std::chrono::seconds(1));
  coordinator.Disconnect();
  Put(client, {.first = 2});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(2); }));
  EXPECT_EQ(coordinator.model.snapshots, 1) << "nothing was missed";
  ASSERT_EQ(coordinator.registers.size(), 2u);
  EXPECT_FALSE(coordinator.registers[1].starting());
  EXPECT_EQ(coordinator.registers[1].incarnation(), 1000u);
  EXPECT_GE(coordinator.registers[1].age_us(), 1'000'000u);
  EXPECT_EQ(coordinator.registers[1].highest_epoch(), 1u);
  EXPECT_EQ(coordinator.registers[1].instance(), coordinator.registers[0].instance());
}

TEST_F(CoordinatorLinkTest, ACoordinatorThatStartsAgainGetsEverything) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  Put(Connect(), {.first = 1, .blocks = 3});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(3); }));
  coordinator.Forget();
  ASSERT_TRUE(RunUntil([&] { return AllKnow(3); }));
  EXPECT_EQ(coordinator.model.gaps, 0);
}

TEST_F(CoordinatorLinkTest, AReportMayAskForASnapshot) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  Put(Connect(), {.first = 1, .blocks = 2});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(2); }));
  coordinator.model = InventoryModel();
  coordinator.ask_for_snapshot = true;
  ASSERT_TRUE(RunUntil([&] { return AllKnow(2); }));
  EXPECT_EQ(coordinator.model.snapshots, 1);
}

TEST_F(CoordinatorLinkTest, RegistersAgainWithACoordinatorThatForgotIt) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() >= 2; }));
  coordinator.forgotten = true;
  ASSERT_TRUE(RunUntil([&] { return coordinator.registers.size() == 2; }));
  const size_t reports = coordinator.reports.size();
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() > reports; }));
  EXPECT_EQ(coordinator.hellos.size(), 1u) << "on the same connection";
  EXPECT_EQ(Metric("tokura_node_coordinators_registered"), 1);
}

TEST_F(CoordinatorLinkTest, AGapMendsItself) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  TestClient& client = Connect();
  Put(client, {.first = 1, .blocks = 2});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(2); }));
  coordinator.model.last_seq += 5;
  Put(client, {.first = 3});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(3); }));
  EXPECT_EQ(coordinator.model.gaps, 1);
  EXPECT_EQ(coordinator.model.snapshots, 2);
}

// One coordinator does not take inventory for a while; the other is not kept waiting, and what the
// node remembers for the first is bounded by its log.
TEST_F(CoordinatorLinkTest, ASilentCoordinatorHoldsUpNobody) {
  FakeCoordinator& silent = AddCoordinator();
  FakeCoordinator& other = AddCoordinator();
  NodeOptions options = ClusterOptions();
  options.change_log_max = 1024;
  StartNode(options);
  TestClient& client = Connect();
  Put(client, {.first = 1});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(1); }));
  silent.silent = {net::Op::kInventory, net::Op::kReport, net::Op::kRegister};
  for (int i = 0; i < 600; ++i) {
    Put(client, {.first = 2});
    Remove(client, {.first = 2});
  }
  Put(client, {.first = 3});
  ASSERT_TRUE(RunUntil([&] { return other.model.content.size() == 2; }));
  EXPECT_EQ(other.model.snapshots, 1);
  EXPECT_GT(Metric("tokura_node_inventory_lag_changes"), 1000);
  silent.silent.clear();
  ASSERT_TRUE(RunUntil([&] { return AllKnow(2); }));
  EXPECT_EQ(silent.model.snapshots, 2) << "the log no longer reached back";
  EXPECT_EQ(silent.model.gaps, 0);
  ASSERT_TRUE(RunUntilMetric("tokura_node_inventory_lag_changes", {}, 0));
}

TEST_F(CoordinatorLinkTest, TouchesAndOrphansAreOfThisLife) {
  FakeCoordinator& coordinator = AddCoordinator();
  NodeOptions options = ClusterOptions();
  options.host_bytes = 256 << 10;
  options.part_bytes_max = 100 << 10;
  StartNode(options);
  TestClient& client = Connect();
  const auto block = [](uint64_t first) { return Chain{.first = first, .heads = 20}; };
  for (uint64_t first = 1; first <= 3; ++first) {
    ASSERT_THAT(Put(client, block(first)), ElementsAre(kOk));
  }
  coordinator.orphans = {Orphans(999, block(2)), Orphans(1000, block(3))};
  proto::TouchBatch touch;
  touch.set_incarnation(1000);
  touch.set_keys(Keys(block(1)));
  proto::TouchBatch other = touch;
  other.set_incarnation(1001);
  coordinator.touches = {touch, other};
  ASSERT_TRUE(RunUntilMetric("tokura_node_orphans_total", {{"life", "this"}}, 1));
  EXPECT_EQ(Metric("tokura_node_orphans_total", {{"life", "other"}}), 1);
  EXPECT_EQ(Metric("tokura_node_touches_total", {{"life", "this"}}), 1);
  EXPECT_EQ(Metric("tokura_node_touches_total", {{"life", "other"}}), 1);
  ASSERT_THAT(Put(client, block(4)), ElementsAre(kOk));
  ASSERT_THAT(Put(client, block(5)), ElementsAre(kOk));
  EXPECT_EQ(Lookup(client, block(3)), 0u) << "the orphan goes first";
  EXPECT_TRUE(
      RunUntilMetric("tokura_evictions_total", {{"tier", "host"}, {"reason", "orphan"}}, 1));
}

TEST_F(CoordinatorLinkTest, ThePlantedBugTakesOrphansOfAnotherLife) {
  FakeCoordinator& coordinator = AddCoordinator();
  PlantedBugs bugs;
  bugs.accept_old_orphans = true;
  NodeOptions options = ClusterOptions();
  options.host_bytes = 256 << 10;
  options.part_bytes_max = 100 << 10;
  StartNode(options, bugs);
  TestClient& client = Connect();
  const auto block = [](uint64_t first) { return Chain{.first = first, .heads = 20}; };
  for (uint64_t first = 1; first <= 3; ++first) {
    ASSERT_THAT(Put(client, block(first)), ElementsAre(kOk));
  }
  coordinator.orphans = {Orphans(999, block(3))};
  ASSERT_TRUE(RunUntilMetric("tokura_node_orphans_total", {{"life", "other"}}, 1));
  ASSERT_THAT(Put(client, block(4)), ElementsAre(kOk));
  ASSERT_THAT(Put(client, block(5)), ElementsAre(kOk));
  EXPECT_TRUE(
      RunUntilMetric("tokura_evictions_total", {{"tier", "host"}, {"reason", "orphan"}}, 1));
}

TEST_F(CoordinatorLinkTest, RefusesWhatAnOlderMembershipPlaced) {
  FakeCoordinator& coordinator = AddCoordinator();
  coordinator.epoch = 9;
  Start();
  TestClient& client = Connect();
  EXPECT_EQ(PlacedPut(client, {.first = 1}, 5), kOk);
  coordinator.refuse_below = 9;
  const size_t reports = coordinator.reports.size();
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() >= reports + 2; }));
  EXPECT_EQ(PlacedPut(client, {.first = 2}, 8), kFailedPrecondition);
  EXPECT_EQ(PlacedPut(client, {.first = 3}, 9), kOk);
  EXPECT_EQ(PlacedPut(client, {.first = 4}, 0), kOk) << "no plan chose this node";
  EXPECT_EQ(Metric("tokura_node_placements_refused_total"), 1);
  coordinator.refuse_below = 0;
  RunFor(std::chrono::seconds(1));
  EXPECT_EQ(PlacedPut(client, {.first = 2}, 8), kFailedPrecondition) << "it is never taken back";
}

TEST_F(CoordinatorLinkTest, ThePlantedBugTakesOldPlacements) {
  FakeCoordinator& coordinator = AddCoordinator();
  coordinator.refuse_below = 9;
  PlantedBugs bugs;
  bugs.accept_old_placement = true;
  Start(bugs);
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() >= 2; }));
  EXPECT_EQ(PlacedPut(Connect(), {.first = 1}, 5), kOk);
}

TEST_F(CoordinatorLinkTest, LeavesBeforeItSaysGoodbye) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  TestClient& client = Connect();
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() >= 2; }));
  coordinator.silent = {net::Op::kReport};
  bool drained = false;
  node_host_->loop().Enter([&] { node_->Drain([&] { drained = true; }); });
  EXPECT_FALSE(node_->Ready().ok());
  RunFor(std::chrono::milliseconds(500));
  EXPECT_FALSE(client.goodbye()) << "the coordinator does not know yet";
  EXPECT_EQ(PlacedPut(client, {.first = 1}, 0), absl::StatusCode::kUnavailable);
  EXPECT_EQ(PlacedPut(client, {.first = 1}, 1), kOk) << "as the coordinator had planned";
  ASSERT_TRUE(RunUntil([&] { return client.goodbye(); })) << "it does not wait for ever";
  client.Close(net::CloseMode::kFlush);
  ASSERT_TRUE(RunUntil([&] { return drained; }));
  EXPECT_EQ(coordinator.connections, 0);
  node_host_->loop().Enter([&] { node_.reset(); });
}

TEST_F(CoordinatorLinkTest, GoodbyeWaitsForAMembershipWithoutTheNode) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  TestClient& client = Connect();
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() >= 2; }));
  bool drained = false;
  node_host_->loop().Enter([&] { node_->Drain([&] { drained = true; }); });
  RunFor(std::chrono::milliseconds(100));
  EXPECT_TRUE(coordinator.reports.back().leaving());
  EXPECT_FALSE(client.goodbye()) << "plans still name the node";
  coordinator.refuse_below = 2;
  ASSERT_TRUE(RunUntil([&] { return client.goodbye(); }, std::chrono::milliseconds(50)));
  client.Close(net::CloseMode::kFlush);
  ASSERT_TRUE(RunUntil([&] { return drained; }));
  node_host_->loop().Enter([&] { node_.reset(); });
}

TEST_F(CoordinatorLinkTest, GoodbyeFollowsTheCoordinatorsAnswer) {
  FakeCoordinator& coordinator = AddCoordinator();
  coordinator.refuse_below = 2;
  Start();
  TestClient& client = Connect();
  ASSERT_TRUE(RunUntil([&] { return coordinator.reports.size() >= 2; }));
  bool drained = false;
  node_host_->loop().Enter([&] { node_->Drain([&] { drained = true; }); });
  ASSERT_TRUE(RunUntil([&] { return client.goodbye(); }, std::chrono::milliseconds(100)));
  EXPECT_TRUE(coordinator.reports.back().leaving());
  client.Close(net::CloseMode::kFlush);
  ASSERT_TRUE(RunUntil([&] { return drained; }));
  node_host_->loop().Enter([&] { node_.reset(); });
}

TEST_F(CoordinatorLinkTest, AdoptsAHigherIncarnation) {
  FakeCoordinator& holder = AddCoordinator();
  FakeCoordinator& other = AddCoordinator();
  other.holder = false;
  holder.silent = {net::Op::kRegister};
  holder.hand_out = 5000;
  Start();
  TestClient& client = Connect();
  Put(client, {.first = 1});
  const proto::AcquireReply held = Acquire(client, {.first = 1});
  ASSERT_NE(held.lease(), "");
  ASSERT_TRUE(RunUntil([&] { return other.model.content.size() == 1; }));
  holder.silent.clear();
  ASSERT_TRUE(RunUntil([&] { return node_->incarnation() == 5000; }));
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); })) << "clients start again";
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().leases == 0; })) << "leases are gone";
  TestClient::Options second;
  second.name = "second";
  second.ip = "10.0.0.3";
  EXPECT_EQ(Connect(second).welcome()->incarnation(), 5000u);
  ASSERT_TRUE(RunUntil([&] { return AllKnow(1) && other.model.incarnation == 5000; }))
      << "told again, as the new life";
  EXPECT_EQ(other.registers.back().incarnation(), 5000u);
  EXPECT_FALSE(other.registers.back().starting());
  EXPECT_FALSE(node_->superseded());
  EXPECT_EQ(Metric("tokura_node_registrations_total", {{"result", "adopted"}}), 1);
  EXPECT_EQ(Metric("tokura_node_connections_ended_total", {{"reason", "new_life"}}), 1);
}

// Meanwhile the node has become another life, and asked again on the same connection.
TEST_F(CoordinatorLinkTest, AnAnswerToWhatAnEarlierLifeAskedDoesNotCount) {
  FakeCoordinator& holder = AddCoordinator();
  FakeCoordinator& other = AddCoordinator();
  other.holder = false;
  other.keep_register = true;
  holder.hand_out = 5000;
  Start();
  ASSERT_TRUE(RunUntil([&] { return other.has_kept(); }));
  ASSERT_TRUE(RunUntil([&] { return other.registers.size() == 2; }));
  ASSERT_TRUE(RunUntil([&] { return other.model.complete; }));
  EXPECT_EQ(other.registers[1].incarnation(), 5000u);
  other.AnswerKept(absl::UnavailableError("this was for the life before"));
  const size_t reports = other.reports.size();
  ASSERT_TRUE(RunUntil([&] { return other.reports.size() >= reports + 3; }));
  EXPECT_EQ(other.hellos.size(), 1u) << "the connection goes on";
  EXPECT_EQ(other.registers.size(), 2u);
  EXPECT_EQ(Metric("tokura_node_coordinators_registered"), 2);
}

TEST_F(CoordinatorLinkTest, AZombieStopsServing) {
  FakeCoordinator& coordinator = AddCoordinator();
  Start();
  TestClient& client = Connect();
  Put(client, {.first = 1});
  ASSERT_TRUE(RunUntil([&] { return AllKnow(1); }));
  coordinator.refuse_register = absl::FailedPreconditionError("incarnation 2000 is known");
  coordinator.Disconnect();
  ASSERT_TRUE(RunUntil([&] { return node_->superseded(); }));
  EXPECT_EQ(node_->Ready().code(), kFailedPrecondition);
  EXPECT_THAT(std::string(node_->Ready().message()), HasSubstr("--name"));
  EXPECT_THAT(std::string(node_->Ready().message()), HasSubstr("incarnation 2000 is known"));
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  TestClient::Options second;
  second.name = "second";
  second.ip = "10.0.0.3";
  EXPECT_FALSE(Connect(second).welcome().has_value());
  const size_t registers = coordinator.registers.size();
  RunFor(std::chrono::seconds(5));
  EXPECT_EQ(coordinator.registers.size(), registers) << "it does not try again";
  EXPECT_EQ(Metric("tokura_node_registrations_total", {{"result", "superseded"}}), 1);
}

TEST_F(CoordinatorLinkTest, ARefusalOfAStartingNodeIsNoVerdict) {
  FakeCoordinator& coordinator = AddCoordinator();
  coordinator.refuse_register = absl::FailedPreconditionError("not now");
  Start();
  ASSERT_TRUE(RunUntil([&] { return coordinator.registers.size() >= 2; }));
  EXPECT_FALSE(node_->superseded());
  EXPECT_TRUE(node_->Ready().ok());
  EXPECT_GE(Metric("tokura_node_registrations_total", {{"result", "failed"}}), 1);
  coordinator.refuse_register.reset();
  ASSERT_TRUE(RunUntil([&] { return AllKnow(0); }));
  EXPECT_TRUE(coordinator.registers.back().starting());
}

TEST_F(CoordinatorLinkTest, OnlyTheHoldersWordEndsTheStart) {
  FakeCoordinator& follower = AddCoordinator();
  follower.holder = false;
  Start();
  ASSERT_TRUE(RunUntil([&] { return !follower.reports.empty(); }));
  follower.Disconnect();
  ASSERT_TRUE(RunUntil([&] { return follower.registers.size() >= 2; }));
  EXPECT_TRUE(follower.registers[1].starting());
}

TEST_F(CoordinatorLinkTest, ExpiredBlocksLeaveTheNodeAndItsCoordinators) {
  AddCoordinator();
  Start();
  TestClient& client = Connect();
  TestCall& put = Await(StartPlacedPut(client, {.first = 1}, 0, 1'000'000));
  ASSERT_THAT(Codes(put.As<proto::PutReply>().statuses()), ElementsAre(kOk));
  ASSERT_TRUE(RunUntil([&] { return AllKnow(1); }));
  EXPECT_EQ(Lookup(client, {.first = 1}), 1u);
  RunFor(std::chrono::seconds(1));
  EXPECT_EQ(Lookup(client, {.first = 1}), 0u);
  ASSERT_TRUE(RunUntil([&] { return AllKnow(0); }));
  EXPECT_TRUE(
      RunUntilMetric("tokura_evictions_total", {{"tier", "host"}, {"reason", "expired"}}, 1));
}

TEST(NodeOptionsOfAClusterTest, AreChecked) {
  NodeOptions options;
  options.coordinators = {{"127.0.0.1", 7400}};
  EXPECT_TRUE(ValidateNodeOptions(options).ok());
  options.coordinators.push_back({"127.0.0.1", 7400});
  EXPECT_THAT(std::string(ValidateNodeOptions(options).message()), HasSubstr("comes once"));
  options.coordinators = {{"127.0.0.1", 0}};
  EXPECT_THAT(std::string(ValidateNodeOptions(options).message()), HasSubstr("coordinator"));
  options.coordinators = {{"127.0.0.1", 7400}};
  options.listen.host = "0.0.0.0";
  EXPECT_THAT(std::string(ValidateNodeOptions(options).message()), HasSubstr("advertise"));
  options.advertise.host = "192.0.2.1";
  EXPECT_TRUE(ValidateNodeOptions(options).ok());
  options.change_log_max = 10;
  EXPECT_THAT(std::string(ValidateNodeOptions(options).message()), HasSubstr("change-log-max"));
}

}  // namespace
}  // namespace tokura::node
