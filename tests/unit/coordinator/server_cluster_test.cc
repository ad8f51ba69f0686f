// What nodes and clients go through at one coordinator: registration, inventory, lookups, plans,
// suspicion, touches and orphans.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/coordinator/server_testing.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class ServerClusterTest : public ServerTest {
 protected:
  // The name of the node of a run.
  static std::string NodeOf(const proto::LocateReply& reply, const proto::Run& run) {
    return reply.nodes(static_cast<int>(run.node())).node();
  }
  // Which node holds each block of the prefix, "a a b".
  static std::string Holders(const proto::LocateReply& reply) {
    std::string text;
    for (const proto::Run& run : reply.runs()) {
      for (uint32_t i = 0; i < run.count(); ++i) {
        text += (text.empty() ? "" : " ") + NodeOf(reply, run).substr(5);
      }
    }
    return text;
  }
  static proto::PlanRequest PlanMessage(uint64_t chain, uint64_t first, uint64_t count) {
    proto::PlanRequest request;
    request.set_keys(ChainKeys(chain, first, count));
    request.set_first_position(static_cast<uint32_t>(first));
    request.set_codec("raw");
    request.set_group_mask(1);
    return request;
  }
  proto::PlanReply Plan(TestPeer& client, const proto::PlanRequest& request) {
    return Await(client.Send(net::Op::kPlan, request)).As<proto::PlanReply>();
  }
  // How many blocks each node of a plan gets.
  static std::map<std::string, uint32_t> Placed(const proto::PlanReply& reply) {
    std::map<std::string, uint32_t> placed;
    for (const proto::PlanRun& run : reply.runs()) {
      placed[reply.nodes(static_cast<int>(run.node())).node()] += run.count();
    }
    return placed;
  }
  proto::NodesReply Nodes(TestPeer& client) {
    return Await(client.Send(net::Op::kNodes, proto::NodesRequest())).As<proto::NodesReply>();
  }
  // The node reports until it is told of orphans; their keys.
  std::set<std::string> Orphans(TestNode& node, uint32_t batches_max = 4096) {
    std::set<std::string> keys;
    for (int i = 0; i < 10 && keys.empty(); ++i) {
      RunFor(milliseconds(20));
      const proto::ReportReply reply = Report(node, batches_max);
      for (const proto::OrphanBatch& batch : reply.orphans()) {
        EXPECT_EQ(batch.incarnation(), node.incarnation);
        Split(batch.keys(), &keys);
      }
    }
    return keys;
  }
  static void Split(const std::string& bytes, std::set<std::string>* keys) {
    for (size_t i = 0; i < bytes.size(); i += BlockKey::kBytes) {
      EXPECT_TRUE(keys->insert(bytes.substr(i, BlockKey::kBytes)).second) << "told twice";
    }
  }
};

// ---- registration ----

TEST_F(ServerClusterTest, ANewNodeIsAMemberUnderItsOwnIncarnation) {
  StartCoordinator(SmallOptions());
  TestNode node = MakeNode("node-a", 10);
  const proto::RegisterReply reply = Register(node);
  EXPECT_EQ(reply.incarnation(), 10u);
  EXPECT_TRUE(reply.holder());
  EXPECT_EQ(reply.report_interval_us(), 100'000u);
  EXPECT_EQ(Members(Watch(Connect(), 0)), "node-a:UP");
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_coordinator_nodes", {{"state", "up"}}), 1);
  EXPECT_EQ(Metric("tokura_placement_epoch"), 1);
  EXPECT_EQ(Metric("tokura_coordinator_inventories", {{"state", "incomplete"}}), 1);
}

TEST_F(ServerClusterTest, AReplacementGetsAHigherIncarnationAndTheZombieIsRefused) {
  StartCoordinator(SmallOptions());
  TestNode old = StartNode("node-a", 10);
  Inventory(old, old.Holds(1, 0, 3));
  TestPeer& client = Connect();
  EXPECT_EQ(Prefix(client, 1, 3), 3u);
  TestNode replacement = MakeNode("node-a", 5);  // Its clock is behind.
  replacement.instance = std::string(16, 'r');
  EXPECT_EQ(Register(replacement).incarnation(), 11u);
  EXPECT_EQ(Prefix(client, 1, 3), 0u) << "the arena is another one";
  Inventory(replacement, replacement.Snapshot(1, 0, 2));
  RunFor(milliseconds(20));
  EXPECT_EQ(Prefix(client, 1, 3), 2u);
  // The one before wakes up.
  EXPECT_EQ(Code(old.peer->Send(net::Op::kReport, old.ReportMessage())),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Code(old.peer->Send(net::Op::kInventory, old.Holds(1, 3, 1))),
            absl::StatusCode::kNotFound);
  Reconnect(old);
  EXPECT_EQ(Code(old.peer->Send(net::Op::kRegister, old.RegisterMessage())),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Requests("register", "failed_precondition"), 1);
  EXPECT_EQ(Prefix(client, 1, 3), 2u);
  EXPECT_EQ(Report(replacement).epoch(), Watch(client, 0).epoch());
}

TEST_F(ServerClusterTest, ThePlantedBugLetsAZombieRegister) {
  StartCoordinator(SmallOptions(), "10.0.0.1", {.accept_lower_incarnation = true});
  TestNode old = StartNode("node-a", 10);
  TestNode replacement = StartNode("node-a", 11);
  Reconnect(old);
  EXPECT_EQ(Register(old).incarnation(), 10u);
  Inventory(old, old.Snapshot(1, 0, 2));
  RunFor(milliseconds(10));
  EXPECT_EQ(Prefix(Connect(), 1, 2), 2u);
}

TEST_F(ServerClusterTest, ANewProcessIsNoZombieForAFollowerThatLags) {
  StartCoordinator(SmallOptions());
  StartNode("node-b", 20);
  CoordinatorOptions options = SmallOptions();
  options.name = "coordinator-b";
  options.metadata = "coordinator://" + coordinators_[0]->address.ToString();
  TestCoordinator& follower = StartCoordinator(options, "10.0.0.2");
  ASSERT_TRUE(RunUntil([&] { return follower.coordinator->accounting().epoch == 1; }));
  TestNode first = MakeNode("node-a", 10, &follower);
  Register(first);
  TestNode second = MakeNode("node-a", 9, &follower);
  EXPECT_EQ(Code(second.peer->Send(net::Op::kRegister, second.RegisterMessage())),
            absl::StatusCode::kUnavailable)
      << "the holder has still to say what it is to be";
  second.starting = false;
  EXPECT_EQ(Code(second.peer->Send(net::Op::kRegister, second.RegisterMessage())),
            absl::StatusCode::kUnavailable)
      << "no holder has said yet that the first is to be its successor";
}

TEST_F(ServerClusterTest, ANodeThatComesBackOnANewConnectionKeepsItsInventory) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  Inventory(node, node.Holds(1, 0, 3));
  TestPeer& client = Connect();
  TestPeer* before = node.peer;
  Reconnect(node);
  EXPECT_EQ(Register(node).incarnation(), 10u);
  EXPECT_EQ(Prefix(client, 1, 3), 3u);
  EXPECT_FALSE(Report(node).send_snapshot());
  // What was still under way on the old connection must not mix with the new one's batches.
  TestNode ghost = node;
  EXPECT_EQ(Code(before->Send(net::Op::kInventory, ghost.Holds(2, 0, 1))),
            absl::StatusCode::kNotFound);
  before->Close(net::CloseMode::kAbort);
  RunFor(milliseconds(50));
  Inventory(node, node.Holds(1, 3, 1));
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
}

TEST_F(ServerClusterTest, ALookupDoesNotWaitForTheBatchesThatCameBeforeIt) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  TestPeer& client = Connect();
  const TestPeer::Sent first = a.peer->Send(net::Op::kInventory, a.Holds(1, 0, 4));
  const TestPeer::Sent second = b.peer->Send(net::Op::kInventory, b.Holds(1, 0, 4));
  EXPECT_EQ(Prefix(client, 1, 4), 0u) << "it arrived with them, and had its turn before them";
  EXPECT_FALSE(Await(first).As<proto::InventoryReply>().send_snapshot());
  EXPECT_FALSE(Await(second).As<proto::InventoryReply>().send_snapshot());
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
}

TEST_F(ServerClusterTest, BatchesOfOneConnectionAreTakenInOrder) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  TestPeer& client = Connect();
  std::vector<TestPeer::Sent> sent;
  for (uint32_t block = 0; block < 4; ++block) {
    sent.push_back(node.peer->Send(net::Op::kInventory, node.Holds(1, block, 1)));
  }
  for (const TestPeer::Sent& batch : sent) {
    EXPECT_FALSE(Await(batch).As<proto::InventoryReply>().send_snapshot()) << "a gap";
  }
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
  // One that still waits when its connection ends is as if it had not come.
  node.peer->Send(net::Op::kInventory, node.Holds(2, 0, 1));
  node.peer->Close(net::CloseMode::kAbort);
  RunFor(milliseconds(20));
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
}

TEST_F(ServerClusterTest, WhatANodeWithoutConnectionHoldsIsNeitherPreferredNorEnough) {
  StartCoordinator(SmallOptions());
  TestNode lost = StartNode("node-a", 10);
  TestNode steady = StartNode("node-b", 20);
  Inventory(lost, lost.Holds(1, 0, 4));
  Inventory(steady, steady.Holds(1, 0, 2));
  TestPeer& client = Connect();
  ASSERT_EQ(Plan(client, PlanMessage(1, 0, 4)).runs_size(), 0);
  lost.peer->Close(net::CloseMode::kAbort);
  RunFor(milliseconds(20));
  ASSERT_EQ(Members(Watch(client, 0)), "node-a:UP node-b:UP") << "nobody suspects it yet";
  EXPECT_EQ(Holders(Locate(client, LocateMessage(1, 4))), "b b a a");
  const proto::PlanReply plan = Plan(client, PlanMessage(1, 0, 4));
  ASSERT_EQ(plan.runs_size(), 1);
  EXPECT_EQ(plan.runs(0).first(), 2u) << "the first two have a holder that is there";
  EXPECT_EQ(plan.runs(0).count(), 2u);
  Reconnect(lost);
  Register(lost);
  EXPECT_EQ(Plan(client, PlanMessage(1, 0, 4)).runs_size(), 0);
}

TEST_F(ServerClusterTest, ASilentNodeIsSuspectThenGoneAndReturns) {
  StartCoordinator(SmallOptions());
  TestNode silent = StartNode("node-a", 10);
  TestNode steady = StartNode("node-b", 20);
  Inventory(silent, silent.Holds(1, 0, 4));
  Inventory(steady, steady.Holds(1, 0, 2));
  TestPeer& client = Connect();
  silent.peer->host().Pause();
  ReportFor({&steady}, milliseconds(800));
  EXPECT_EQ(Members(Watch(client, 0)), "node-a:SUSPECT node-b:UP");
  EXPECT_EQ(Metric("tokura_coordinator_nodes", {{"state", "suspect"}}), 1);
  // Of a suspect only what nobody else has.
  EXPECT_EQ(Holders(Locate(client, LocateMessage(1, 4))), "b b a a");
  EXPECT_EQ(Placed(Plan(client, PlanMessage(2, 0, 8))),
            (std::map<std::string, uint32_t>{{"node-b", 8}}));
  ReportFor({&steady}, seconds(2));
  EXPECT_EQ(Members(Watch(client, 0)), "node-b:UP");
  EXPECT_EQ(Holders(Locate(client, LocateMessage(1, 4))), "b b");
  ReportFor({&steady}, milliseconds(300));
  EXPECT_EQ(coordinators_[0]->coordinator->accounting().forms, 2u) << "swept";
  silent.peer->host().Continue();
  RunFor(milliseconds(50));
  Reconnect(silent);
  EXPECT_EQ(Register(silent).incarnation(), 10u) << "it was only out of reach";
  RunFor(milliseconds(10));
  EXPECT_EQ(Members(Watch(client, 0)), "node-a:UP node-b:UP");
  EXPECT_TRUE(Report(silent).send_snapshot());
  Inventory(silent, silent.Snapshot(1, 0, 4));
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
}

TEST_F(ServerClusterTest, ANodeThatLeavesIsNotPlacedOnAndOldPlansAreRefusedBelowAnEpoch) {
  StartCoordinator(SmallOptions());
  TestNode leaving = StartNode("node-a", 10);
  TestNode staying = StartNode("node-b", 20);
  Inventory(leaving, leaving.Holds(1, 0, 4));
  TestPeer& client = Connect();
  const uint64_t before = Plan(client, PlanMessage(2, 0, 64)).epoch();
  EXPECT_EQ(Report(leaving).refuse_below_epoch(), 0u);
  leaving.leaving = true;
  Report(leaving);
  RunFor(milliseconds(10));
  const proto::ReportReply reply = Report(leaving);
  EXPECT_GT(reply.refuse_below_epoch(), before);
  EXPECT_GE(reply.epoch(), reply.refuse_below_epoch());
  const proto::PlanReply plan = Plan(client, PlanMessage(2, 0, 64));
  EXPECT_GE(plan.epoch(), reply.refuse_below_epoch());
  EXPECT_EQ(Placed(plan), (std::map<std::string, uint32_t>{{"node-b", 64}}));
  EXPECT_EQ(Prefix(client, 1, 4), 4u) << "it can still be read";
  EXPECT_EQ(Placed(Plan(client, PlanMessage(1, 0, 4))),
            (std::map<std::string, uint32_t>{{"node-b", 4}}))
      << "what only a leaving node holds is held no more before long";
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_coordinator_nodes", {{"state", "leaving"}}), 1);
  Report(staying);
  leaving.peer->Close(net::CloseMode::kFlush);
  RunFor(milliseconds(100));
  EXPECT_EQ(Members(Watch(client, 0)), "node-b:UP");
  EXPECT_EQ(Prefix(client, 1, 4), 0u);
}

// ---- inventory and lookups ----

TEST_F(ServerClusterTest, LocateNamesRunsClassesAndAlternates) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  Inventory(a, a.Holds(1, 0, 5));
  Inventory(b, b.Holds(1, 4, 4));
  TestPeer& client = Connect();
  const proto::LocateReply reply = Locate(client, LocateMessage(1, 10));
  EXPECT_EQ(reply.prefix_blocks(), 8u);
  EXPECT_EQ(Holders(reply), "a a a a a b b b");
  ASSERT_EQ(reply.runs_size(), 2);
  EXPECT_EQ(reply.runs(0).first(), 0u);
  EXPECT_EQ(reply.runs(0).count(), 5u);
  EXPECT_EQ(reply.runs(0).stored_bytes(), 5000u);
  EXPECT_EQ(reply.runs(1).first(), 5u);
  ASSERT_EQ(reply.classes_size(), 1);
  EXPECT_EQ(reply.classes(0).codec(), "raw");
  EXPECT_EQ(reply.classes(0).group_mask(), 1u);
  EXPECT_EQ(reply.classes(0).fidelity(), 1u);
  EXPECT_EQ(reply.nodes(0).incarnation(), 10u);
  ASSERT_EQ(reply.alternates_size(), 1);
  EXPECT_EQ(reply.alternates(0).first(), 4u);
  EXPECT_EQ(NodeOf(reply, reply.alternates(0)), "node-b");
  EXPECT_EQ(reply.epoch(), Watch(client, 0).epoch());
  EXPECT_EQ(Metric("tokura_coordinator_lookup_blocks_total", {{"result", "hit"}}), 8);
  EXPECT_EQ(Metric("tokura_coordinator_lookup_blocks_total", {{"result", "miss"}}), 2);
  EXPECT_EQ(Requests("locate", "ok"), 1);
  EXPECT_EQ(Metric("tokura_coordinator_request_duration_seconds", {{"op", "locate"}}), 1);
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_coordinator_index_blocks"), 8);
  EXPECT_EQ(Metric("tokura_coordinator_index_forms"), 9);
  EXPECT_GT(Metric("tokura_coordinator_index_bytes"), 0);
  EXPECT_EQ(Metric("tokura_coordinator_inventory_records_total"), 9);
  EXPECT_GT(Metric("tokura_coordinator_longest_turn_cpu_seconds", {{"turn", "inventory"}}), 0);
  EXPECT_GT(Metric("tokura_coordinator_longest_turn_cpu_seconds", {{"turn", "maintenance"}}), 0);
  EXPECT_EQ(Metric("tokura_coordinator_inventory_snapshots_total", {{"event", "finished"}}), 2);
  EXPECT_EQ(Metric("tokura_coordinator_inventories", {{"state", "complete"}}), 2);
}

TEST_F(ServerClusterTest, AvoidedNodesComeLast) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  Inventory(a, a.Holds(1, 0, 4));
  Inventory(b, b.Holds(1, 0, 2));
  TestPeer& client = Connect();
  EXPECT_EQ(Holders(Locate(client, LocateMessage(1, 4))), "a a a a");
  proto::LocateRequest avoiding = LocateMessage(1, 4);
  avoiding.add_avoid("node-a");
  avoiding.add_avoid("node-unheard-of");
  EXPECT_EQ(Holders(Locate(client, avoiding)), "b b a a");
}

TEST_F(ServerClusterTest, TheLeastLoadedHolderIsChosen) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  Inventory(a, a.Holds(1, 0, 4));
  Inventory(b, b.Holds(1, 0, 4));
  TestPeer& client = Connect();
  a.inflight_bytes = 1 << 20;
  Report(a);
  Report(b);
  EXPECT_EQ(Holders(Locate(client, LocateMessage(1, 4))), "b b b b");
  a.inflight_bytes = 0;
  b.inflight_bytes = 1 << 20;
  Report(a);
  Report(b);
  EXPECT_EQ(Holders(Locate(client, LocateMessage(1, 4))), "a a a a");
}

TEST_F(ServerClusterTest, ReadersOfOneChainAreSpreadOverItsHoldersBetweenReports) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  Inventory(a, a.Holds(1, 0, 8));
  Inventory(b, b.Holds(1, 0, 8));
  TestPeer& client = Connect();
  std::map<std::string, int> chosen;
  for (int i = 0; i < 10; ++i) {
    ++chosen[Holders(Locate(client, LocateMessage(1, 8))).substr(0, 1)];
  }
  EXPECT_EQ(chosen["a"], 5);
  EXPECT_EQ(chosen["b"], 5);
}

TEST_F(ServerClusterTest, AGapAsksForASnapshotWhichReplacesWhatWasBelieved) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  EXPECT_FALSE(Inventory(node, node.Holds(1, 0, 4)).send_snapshot());
  TestPeer& client = Connect();
  EXPECT_EQ(Prefix(client, 1, 8), 4u);
  node.Drops(1, 3, 1);  // Lost on the way.
  EXPECT_TRUE(Inventory(node, node.Holds(1, 4, 4)).send_snapshot());
  EXPECT_TRUE(Report(node).send_snapshot());
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_coordinator_inventory_batches_total", {{"result", "gap"}}), 1);
  Inventory(node, node.Snapshot(1, 0, 3));
  EXPECT_FALSE(Report(node).send_snapshot());
  EXPECT_EQ(Prefix(client, 1, 8), 3u);
  EXPECT_FALSE(Inventory(node, node.Holds(1, 3, 1)).send_snapshot());
  EXPECT_EQ(Prefix(client, 1, 8), 4u);
}

TEST_F(ServerClusterTest, BlocksBeyondTheLimitAreRefusedAndCounted) {
  CoordinatorOptions options = SmallOptions();
  options.blocks_max = 16;
  StartCoordinator(options);
  TestNode node = StartNode("node-a", 10);
  Inventory(node, node.Holds(1, 0, 32));
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_coordinator_index_refused_total", {{"what", "blocks"}}), 16);
  EXPECT_EQ(coordinators_[0]->coordinator->accounting().blocks, 16u);
  EXPECT_EQ(Prefix(Connect(), 1, 32), 16u);
}

TEST_F(ServerClusterTest, SweepingALargeNodeDelaysNoRequest) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  constexpr uint64_t kBatches = 10, kBlocks = 4000;
  for (uint64_t i = 0; i < kBatches; ++i) {
    Inventory(node, node.Holds(1, i * kBlocks, kBlocks));
  }
  TestPeer& client = Connect();
  EXPECT_EQ(Prefix(client, 1, 100), 100u);
  const Coordinator& coordinator = *coordinators_[0]->coordinator;
  TestNode replacement = MakeNode("node-a", 11);
  const TestPeer::Sent sent =
      replacement.peer->Send(net::Op::kRegister, replacement.RegisterMessage());
  ASSERT_TRUE(RunUntil([&] { return coordinator.accounting().sources_dropped == 1; }));
  uint64_t most = 0;
  while (coordinator.accounting().forms > 0) {
    const uint64_t before = coordinator.accounting().forms;
    ASSERT_TRUE(scheduler_.Step());
    most = std::max(most, before - coordinator.accounting().forms);
  }
  EXPECT_LE(most, 1024u) << "of " << kBatches * kBlocks << " blocks in one go";
  EXPECT_TRUE(Await(sent).status().ok());
  EXPECT_EQ(coordinator.accounting().sources_dropped, 0u);
  EXPECT_EQ(Prefix(client, 1, 100), 0u);
}

// ---- plans ----

TEST_F(ServerClusterTest, APlanPlacesSegmentsWholeAndLeavesOutWhatIsHeld) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  TestPeer& client = Connect();
  const proto::PlanReply fresh = Plan(client, PlanMessage(1, 0, 64));
  EXPECT_EQ(fresh.epoch(), Watch(client, 0).epoch());
  const auto placed = Placed(fresh);
  ASSERT_EQ(placed.size(), 2u) << "64 blocks in segments of 4 reach both";
  EXPECT_EQ(placed.at("node-a") + placed.at("node-b"), 64u);
  for (const proto::PlanRun& run : fresh.runs()) {
    EXPECT_EQ(run.first() % 4, 0u);
    EXPECT_EQ(run.count() % 4, 0u);
  }
  EXPECT_EQ(Metric("tokura_coordinator_plan_blocks_total", {{"result", "placed"}}), 64);
  Inventory(a, a.Holds(1, 0, 6));
  const proto::PlanReply rest = Plan(client, PlanMessage(1, 0, 8));
  EXPECT_EQ(Metric("tokura_coordinator_plan_blocks_total", {{"result", "held"}}), 6);
  ASSERT_EQ(rest.runs_size(), 1);
  EXPECT_EQ(rest.runs(0).first(), 6u);
  EXPECT_EQ(rest.runs(0).count(), 2u);
  // The same segment from its middle on goes to the same node.
  proto::PlanRequest middle = PlanMessage(1, 4, 4);
  middle.set_first_block(2);
  const proto::PlanReply continued = Plan(client, middle);
  ASSERT_EQ(continued.runs_size(), 1);
  EXPECT_EQ(continued.runs(0).first(), 2u);
  EXPECT_EQ(continued.nodes(0).node(), rest.nodes(0).node());
  EXPECT_EQ(continued.nodes(0).incarnation(), rest.nodes(0).incarnation());
}

TEST_F(ServerClusterTest, AHotSegmentGetsAReplica) {
  CoordinatorOptions options = SmallOptions();
  options.hot_lookups = 30;
  StartCoordinator(options);
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  TestNode c = StartNode("node-c", 30);
  Inventory(a, a.Holds(1, 0, 4));
  TestPeer& client = Connect();
  EXPECT_EQ(Plan(client, PlanMessage(1, 0, 4)).runs_size(), 0);
  proto::LocateRequest touching = LocateMessage(1, 4);
  touching.set_touch(true);
  for (int i = 0; i < 200; ++i) {
    Locate(client, touching);
  }
  const proto::PlanReply hot = Plan(client, PlanMessage(1, 0, 4));
  ASSERT_EQ(Placed(hot).size(), 1u) << "one copy more, not on the node that has it";
  EXPECT_EQ(Placed(hot).count("node-a"), 0u);
  EXPECT_EQ(Placed(hot).begin()->second, 4u);
  TestNode& second = Placed(hot).count("node-b") != 0 ? b : c;
  Inventory(second, second.Holds(1, 0, 4));
  EXPECT_EQ(Plan(client, PlanMessage(1, 0, 4)).runs_size(), 0) << "two have it now";
}

// ---- what nodes are told ----

TEST_F(ServerClusterTest, TouchesReachTheHolderInBoundedBatches) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  Inventory(node, node.Holds(1, 0, 10));
  TestPeer& client = Connect();
  Prefix(client, 1, 10);
  EXPECT_EQ(Report(node).touches_size(), 0) << "a lookup that only asks";
  proto::LocateRequest touching = LocateMessage(1, 10);
  touching.set_touch(true);
  Locate(client, touching);
  EXPECT_EQ(Report(node, 0).touches_size(), 0);
  std::set<std::string> touched;
  for (const size_t expected : {size_t{4}, size_t{8}, size_t{10}}) {
    const proto::ReportReply reply = Report(node, 4);
    ASSERT_EQ(reply.touches_size(), 1);
    EXPECT_EQ(reply.touches(0).incarnation(), 10u);
    Split(reply.touches(0).keys(), &touched);
    EXPECT_EQ(touched.size(), expected);
  }
  EXPECT_EQ(touched.count(KeyBytes(ChainKey(1, 9))), 1u);
  EXPECT_EQ(Report(node).touches_size(), 0);
  EXPECT_EQ(Metric("tokura_coordinator_touches_total", {{"result", "sent"}}), 10);
}

TEST_F(ServerClusterTest, BlocksWhosePrefixIsGoneAreOrphans) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  Inventory(a, a.Holds(1, 0, 4));
  Inventory(b, b.Holds(1, 4, 3));
  EXPECT_EQ(Report(b).orphans_size(), 0);
  Inventory(a, a.Drops(1, 3, 1));
  EXPECT_EQ(Orphans(b).size(), 3u);
  EXPECT_EQ(Report(a).orphans_size(), 0);
  EXPECT_EQ(Metric("tokura_coordinator_orphans_total", {{"result", "sent"}}), 3);
}

TEST_F(ServerClusterTest, OrphansOfAnEarlierLifeAreForgotten) {
  StartCoordinator(SmallOptions());
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  Inventory(a, a.Holds(1, 0, 4));
  Inventory(b, b.Holds(1, 4, 3));
  proto::LocateRequest touching = LocateMessage(1, 7);
  touching.set_touch(true);
  Locate(Connect(), touching);
  Inventory(a, a.Drops(1, 3, 1));
  RunFor(milliseconds(200));
  EXPECT_EQ(Metric("tokura_queue_depth", {{"queue", "orphans"}}), 3);
  EXPECT_EQ(Metric("tokura_queue_depth", {{"queue", "touches"}}), 7);
  TestNode reborn = MakeNode("node-b", 21);
  Register(reborn);
  Inventory(reborn, reborn.Snapshot(1, 4, 3));
  const proto::ReportReply reply = Report(reborn);
  EXPECT_EQ(reply.orphans_size(), 0);
  EXPECT_EQ(reply.touches_size(), 0);
  EXPECT_EQ(Metric("tokura_coordinator_orphans_total", {{"result", "stale"}}), 3);
  EXPECT_EQ(Metric("tokura_coordinator_touches_total", {{"result", "stale"}}), 3);
}

TEST_F(ServerClusterTest, ThePlantedBugNamesOldOrphansByTheNewLife) {
  StartCoordinator(SmallOptions(), "10.0.0.1", {.keep_orphans_of_old_lives = true});
  TestNode a = StartNode("node-a", 10);
  TestNode b = StartNode("node-b", 20);
  Inventory(a, a.Holds(1, 0, 4));
  Inventory(b, b.Holds(1, 4, 3));
  Inventory(a, a.Drops(1, 3, 1));
  RunFor(milliseconds(200));
  TestNode reborn = MakeNode("node-b", 21);
  Register(reborn);
  ASSERT_EQ(Report(reborn).orphans_size(), 1);
}

TEST_F(ServerClusterTest, TouchesBeyondTheQueueAreDroppedAndCounted) {
  CoordinatorOptions options = SmallOptions();
  StartCoordinator(options);
  TestNode node = StartNode("node-a", 10);
  constexpr uint64_t kBlocks = 4096, kBatches = 17;  // 4,096 more than a queue takes.
  for (uint64_t i = 0; i < kBatches; ++i) {
    Inventory(node, node.Holds(i, 0, kBlocks));
  }
  TestPeer& client = Connect();
  for (uint64_t i = 0; i < kBatches; ++i) {
    proto::LocateRequest touching = LocateMessage(i, kBlocks);
    touching.set_touch(true);
    EXPECT_EQ(Locate(client, touching).prefix_blocks(), kBlocks);
  }
  EXPECT_TRUE(RunUntil([&] {
    return Metric("tokura_coordinator_touches_total", {{"result", "dropped"}}) == 4096;
  }));
  const proto::ReportReply reply = Report(node, UINT32_MAX);
  ASSERT_EQ(reply.touches_size(), 1);
  EXPECT_EQ(reply.touches(0).keys().size(), 16384 * BlockKey::kBytes) << "one message's worth";
}

// ---- for people ----

TEST_F(ServerClusterTest, NodesListsMembersWithLoadAndInventory) {
  StartCoordinator(SmallOptions());
  TestNode node = StartNode("node-a", 10);
  TestNode fresh = MakeNode("node-b", 20);
  Register(fresh);
  Inventory(node, node.Holds(1, 0, 5));
  node.used_bytes = 12345;
  node.inflight_bytes = 678;
  Report(node);
  RunFor(milliseconds(50));
  const proto::NodesReply reply = Nodes(Connect());
  EXPECT_EQ(reply.coordinator(), "coordinator-a");
  ASSERT_EQ(reply.rows_size(), 2);
  const proto::NodeRow& row = reply.rows(0);
  EXPECT_EQ(row.member().node(), "node-a");
  EXPECT_EQ(row.used_bytes(), 12345u);
  EXPECT_EQ(row.inflight_bytes(), 678u);
  EXPECT_EQ(row.blocks(), 5u);
  EXPECT_GE(row.report_age_us(), 50'000u);
  EXPECT_LT(row.report_age_us(), 100'000u);
  EXPECT_TRUE(row.complete());
  EXPECT_FALSE(reply.rows(1).complete());
}

}  // namespace
}  // namespace tokura::coordinator
