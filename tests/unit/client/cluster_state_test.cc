// What a client makes of the cluster state: members, epochs, fencing, policy, readiness.

#include <chrono>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/unit/client/cluster_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClusterStateTest : public ClusterTest {
 protected:
  absl::Status Create(ClientOptions options) {
    absl::Status status;
    OnLoop([&] {
      status = ClientCore::Create({transport_, host_.pool(), host_.random(), registry_},
                                  std::move(options))
                   .status();
    });
    return status;
  }
};

TEST_F(ClusterStateTest, TakesCoordinatorsOrNodesButNotBoth) {
  ClientOptions options;
  options.nodes = {"10.0.0.1:7000"};
  options.coordinators = {"10.0.2.1:7001"};
  EXPECT_EQ(Create(options).code(), absl::StatusCode::kInvalidArgument);
  options.nodes.clear();
  options.coordinators = {"nonsense"};
  EXPECT_EQ(Create(options).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterStateTest, NodesCannotBeSetInACluster) {
  StartCluster(1, 1);
  OnLoop([&] {
    EXPECT_EQ(core_->SetNodes({"10.0.0.1:7000"}).code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST_F(ClusterStateTest, ReadyOnceACoordinatorAnsweredAndAMemberIsConnected) {
  AddCoordinator();
  StartClusterClient();  // a cluster without members
  FakeNode& node = AddMember();
  node.hello_answer = absl::UnavailableError("not yet");
  ExpectWarnings();
  RunFor(milliseconds(50));
  std::optional<absl::Status> ready;
  OnLoop([&] {
    EXPECT_FALSE(core_->ready());
    core_->WhenReady(Now() + milliseconds(20), [&](absl::Status status) { ready = status; });
  });
  RunUntil([&] { return ready.has_value(); });
  EXPECT_EQ(ready->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(ready->message().find("not yet"), std::string::npos) << *ready;
  node.hello_answer = absl::OkStatus();
  ready.reset();
  OnLoop(
      [&] { core_->WhenReady(Now() + seconds(10), [&](absl::Status status) { ready = status; }); });
  RunUntil([&] { return ready.has_value(); });
  EXPECT_TRUE(ready->ok());
}

TEST_F(ClusterStateTest, NotReadyWithoutACoordinatorAndSaysWhy) {
  ExpectWarnings();
  ClientOptions options;
  options.coordinators = {"10.9.9.9:7001"};
  OnLoop([&] {
    core_ = std::move(
        *ClientCore::Create({transport_, host_.pool(), host_.random(), registry_}, options));
  });
  std::optional<absl::Status> ready;
  OnLoop(
      [&] { core_->WhenReady(Now() + seconds(2), [&](absl::Status status) { ready = status; }); });
  RunUntil([&] { return ready.has_value(); });
  EXPECT_EQ(ready->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(ready->message().find("10.9.9.9:7001"), std::string::npos) << *ready;
}

TEST_F(ClusterStateTest, MembersThatJoinAreUsedAndThoseThatAreGoneAreLetGo) {
  StartCluster(1, 1);
  FakeNode& joined = AddMember();
  RunUntil([&] { return joined.open_channels == 1; }, milliseconds(100));
  EXPECT_EQ(Metric("tokura_client_nodes", {{"breaker", "closed"}}), 2);
  proto::ClusterState state = coordinators_[0]->state();
  state.set_epoch(state.epoch() + 1);
  state.mutable_members()->DeleteSubrange(0, 1);
  coordinators_[0]->Publish(state);
  RunUntil([&] { return nodes_[0]->open_channels == 0; }, milliseconds(100));
  EXPECT_EQ(joined.open_channels, 1);
  EXPECT_EQ(Metric("tokura_client_cluster_epoch"), static_cast<double>(state.epoch()));
}

TEST_F(ClusterStateTest, ALowerEpochNeverReplacesAHigherOne) {
  ExpectWarnings();
  StartCluster(2, 2);
  const auto epoch = Metric("tokura_client_cluster_epoch");
  // The second coordinator has an old view without the second node.
  proto::ClusterState old = coordinators_[1]->state();
  old.set_epoch(old.epoch() - 1);
  old.mutable_members()->RemoveLast();
  coordinators_[1]->Publish(old);
  coordinators_[0]->Kill();
  RunFor(seconds(5));
  EXPECT_EQ(nodes_[1]->open_channels, 1);
  EXPECT_EQ(Metric("tokura_client_cluster_epoch"), epoch);
  // It is asked again, but not in a loop.
  EXPECT_GT(coordinators_[1]->requests[net::Op::kWatch], 2);
  EXPECT_LT(coordinators_[1]->requests[net::Op::kWatch], 30);
  // Once it has caught up, it is believed.
  old.set_epoch(static_cast<uint64_t>(epoch) + 1);
  coordinators_[1]->Publish(old);
  RunUntil([&] { return nodes_[1]->open_channels == 0; }, seconds(5));
}

TEST_F(ClusterStateTest, AStateThatNobodyDecidedOnYetIsNone) {
  AddCoordinator();
  proto::ClusterState none;
  coordinators_[0]->Publish(none);
  OnLoop([&] {
    core_ = std::move(*ClientCore::Create({transport_, host_.pool(), host_.random(), registry_},
                                          WithCoordinators()));
  });
  RunFor(seconds(1));
  EXPECT_FALSE(core_->ready());
  none.set_epoch(1);
  coordinators_[0]->Publish(none);
  RunUntil([&] { return core_->ready(); }, seconds(3));
}

TEST_F(ClusterStateTest, AZombieIsFencedByTheState) {
  ExpectWarnings();
  StartCluster(1, 1);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  EngineMemory target(*ns_, 4);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  // The node has been started elsewhere; its old life has not noticed.
  proto::ClusterState state = coordinators_[0]->state();
  state.set_epoch(state.epoch() + 1);
  state.mutable_members(0)->set_incarnation(200);
  coordinators_[0]->Publish(state);
  RunFor(milliseconds(50));
  EXPECT_EQ(Metric("tokura_client_fenced_total"), 1);
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.prefix_ok(), 0u);
  EXPECT_EQ(nodes_[0]->requests[net::Op::kGet], 0);
  // Nor is it taken back when it is asked again.
  RunFor(seconds(3));
  OnLoop([&] { EXPECT_FALSE(core_->ready()); });
}

TEST_F(ClusterStateTest, WhatANewStateEndsMayShutTheClientDown) {
  ExpectWarnings();
  StartCluster(1, 2);
  nodes_[0]->silent = {net::Op::kPut};
  EngineMemory source(*ns_, 4);
  source.Randomize(1);
  bool stopped = false;
  bool ended = false;
  OnLoop([&] {
    core_->Put(
        ns_, MakeChain(*ns_, 4), source.View(), {}, [] {},
        [&](PutResult) {
          ended = true;
          core_->Shutdown([&] { stopped = true; });
        });
  });
  RunUntil([&] { return nodes_[0]->requests[net::Op::kPut] == 1; }, seconds(1));
  RunFor(milliseconds(10));
  // The node lives on elsewhere, which fences its old life, and another one joins.
  FakeNode& joined = AddNode({.name = "node-2", .ip = "10.0.0.3"});
  proto::ClusterState state = coordinators_[0]->state();
  state.set_epoch(state.epoch() + 1);
  state.mutable_members(0)->set_incarnation(200);
  state.add_members()->set_node("node-2");
  state.mutable_members(2)->set_address(joined.address());
  coordinators_[0]->Publish(state);
  RunUntil([&] { return stopped; }, seconds(5));
  EXPECT_TRUE(ended);
  EXPECT_TRUE(joined.hellos.empty());
  OnLoop([&] { core_.reset(); });
}

TEST_F(ClusterStateTest, RemoveAndStatCoverTheMembers) {
  StartCluster(1, 2);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  PutAll(source, chain);
  const std::vector<BlockKey> keys(chain.keys().begin(), chain.keys().end());
  for (const absl::Status& status : Remove(keys).blocks) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(Remove({keys[0]}).blocks[0].code(), absl::StatusCode::kNotFound);
  std::optional<std::vector<absl::StatusOr<NodeStat>>> stats;
  OnLoop(
      [&] { core_->Stat([&](std::vector<absl::StatusOr<NodeStat>> s) { stats = std::move(s); }); });
  RunUntil([&] { return stats.has_value(); });
  ASSERT_EQ(stats->size(), 2u);
  EXPECT_EQ((*stats)[1]->node, "node-1");
}

TEST_F(ClusterStateTest, NothingIsKnownToBeGoneBeforeTheMembersAreKnown) {
  ExpectWarnings();
  ClientOptions options;
  options.coordinators = {"10.9.9.9:7001"};
  OnLoop([&] {
    core_ = std::move(
        *ClientCore::Create({transport_, host_.pool(), host_.random(), registry_}, options));
  });
  const TokenChain chain = MakeChain(*ns_, 1);
  EXPECT_EQ(Remove({chain.keys()[0]}).blocks[0].code(), absl::StatusCode::kUnavailable);
}

class PolicyTest : public ClusterTest {
 protected:
  void SetRule(const proto::PolicyRule& rule) {
    proto::ClusterState state = coordinators_[0]->state();
    state.set_policy_version(state.policy_version() + 1);
    state.clear_rules();
    *state.add_rules() = rule;
    coordinators_[0]->Publish(state);
    RunFor(milliseconds(10));
  }
  static proto::PolicyRule Rule() {
    proto::PolicyRule rule;
    rule.set_tenant("*");
    rule.set_model("*");
    return rule;
  }
  // What a lookup with `accept` asks the coordinator for.
  proto::Accept Asked(AcceptOptions accept) {
    LookupOptions options;
    options.accept = accept;
    Lookup(MakeChain(*ns_, 1), options);
    return coordinators_[0]->locates.back().accept();
  }
};

TEST_F(PolicyTest, GivesCodecAndLifetimeOfPutsThatNameNone) {
  StartCluster(1, 1);
  proto::PolicyRule rule = Rule();
  rule.set_ingest_codec("int8");
  rule.set_ttl_us(5'000'000);
  SetRule(rule);
  EngineMemory source(*ns_, 4);
  PutAll(source, MakeChain(*ns_, 2, 1));
  EXPECT_EQ(nodes_[0]->puts.back().codec(), "int8");
  EXPECT_EQ(nodes_[0]->puts.back().ttl_us(), 5'000'000u);
  EXPECT_EQ(coordinators_[0]->plans.back().codec(), "int8");
  PutOptions options;
  options.codec = "kivi4";
  EXPECT_EQ(Put(MakeChain(*ns_, 2, 2), source.View(), options).stored(), 2u);
  EXPECT_EQ(nodes_[0]->puts.back().codec(), "kivi4");
  // A codec of a newer software, and a rule for others, change nothing.
  ExpectWarnings();
  rule.set_ingest_codec("from-the-future");
  SetRule(rule);
  EXPECT_EQ(Put(MakeChain(*ns_, 2, 3), source.View()).stored(), 2u);
  EXPECT_EQ(nodes_[0]->puts.back().codec(), "raw");
  EXPECT_EQ(Metric("tokura_client_policy_codec_unusable_total"), 1);
  rule.set_ingest_codec("int8");
  rule.set_model("another");
  SetRule(rule);
  EXPECT_EQ(Put(MakeChain(*ns_, 2, 4), source.View()).stored(), 2u);
  EXPECT_EQ(nodes_[0]->puts.back().codec(), "raw");
  EXPECT_EQ(nodes_[0]->puts.back().ttl_us(), 0u);
}

TEST_F(PolicyTest, CapsWhatIsAccepted) {
  ClientOptions client;
  client.accept_proxy_error = true;
  StartCluster(1, 1, client);
  EXPECT_FALSE(Asked({}).has_max_error());
  EXPECT_TRUE(Asked({}).accept_proxy_error());
  proto::PolicyRule rule = Rule();
  rule.set_max_error(0.05);
  SetRule(rule);
  EXPECT_EQ(Asked({}).max_error(), 0.05);
  EXPECT_EQ(Asked({.max_error = 0.5, .allow_summary = false}).max_error(), 0.05);
  EXPECT_EQ(Asked({.max_error = 0.01, .allow_summary = true}).max_error(), 0.01);
  EXPECT_TRUE(Asked({.max_error = 0.01, .allow_summary = true}).allow_summary());
  EXPECT_FALSE(Asked({}).accept_proxy_error()) << "only where both allow it";
  rule.set_accept_proxy_error(true);
  SetRule(rule);
  EXPECT_TRUE(Asked({}).accept_proxy_error());
}

TEST_F(PolicyTest, HoldsForGetsToo) {
  StartCluster(1, 1);
  proto::PolicyRule rule = Rule();
  rule.set_ingest_codec("kivi4");
  SetRule(rule);
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2);
  EngineMemory target(*ns_, 2);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 2u);
  // The fake node returns whatever it has: the client itself must refuse it.
  rule.set_max_error(1e-6);
  SetRule(rule);
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.prefix_ok(), 0u);
  EXPECT_EQ(nodes_[0]->gets.back().accept().max_error(), 1e-6);
}

TEST_F(PolicyTest, LeavesAClientWithoutACoordinatorAlone) {
  FakeNode& node = AddNode();
  StartClient();
  EngineMemory source(*ns_, 1);
  source.Randomize(1);
  EXPECT_EQ(Put(MakeChain(*ns_, 1), source.View()).stored(), 1u);
  EXPECT_EQ(node.puts.back().placement_epoch(), 0u);
  EXPECT_EQ(node.puts.back().ttl_us(), 0u);
  EXPECT_TRUE(std::isnan(Metric("tokura_client_cluster_epoch")));
}

}  // namespace
}  // namespace tokura
