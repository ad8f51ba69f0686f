// Lookups and gets of a client in a cluster: which coordinator is asked, which nodes, and what
// becomes of stale answers.

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/client/cluster_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClusterLookupTest : public ClusterTest {
 protected:
  size_t FoundWithin(const TokenChain& chain, Duration limit) {
    const TimePoint start = Now();
    const Match match = Lookup(chain);
    EXPECT_LT(Now() - start, limit);
    return match.blocks();
  }
};

TEST_F(ClusterLookupTest, FindsAChainThatLiesOnTwoNodes) {
  StartCluster(1, 2);
  const TokenChain chain = MakeChain(*ns_, 12);
  EngineMemory source(*ns_, 12);
  EngineMemory target(*ns_, 12);
  PutAll(source, chain);
  EXPECT_EQ(nodes_[0]->blocks.size(), 8u);
  EXPECT_EQ(nodes_[1]->blocks.size(), 4u);

  const Match match = Lookup(chain);
  ASSERT_EQ(match.blocks(), 12u);
  ASSERT_EQ(match.runs.size(), 3u);
  EXPECT_EQ(match.HolderOf(0)->node, "node-0");
  EXPECT_EQ(match.HolderOf(4)->node, "node-1");
  EXPECT_EQ(match.HolderOf(11)->node, "node-0");
  EXPECT_FALSE(match.held());
  EXPECT_EQ(match.codecs[5], "raw");
  EXPECT_GT(match.stored_bytes[5], 0u);
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.prefix_ok(), 12u);
  ExpectSameBlocks(source, target, 0, 12);
  EXPECT_EQ(coordinators_[0]->locates.back().groups_size(), 1);
  EXPECT_TRUE(coordinators_[0]->locates.back().touch());
}

TEST_F(ClusterLookupTest, AsksForTheLeadingKeysThatACoordinatorTakes) {
  coordinators_.push_back(std::make_unique<FakeCoordinator>(
      network_, FakeCoordinator::Options{"coordinator-0", "10.0.2.1", 4}));
  AddMember();
  StartClusterClient();
  const TokenChain chain = MakeChain(*ns_, 6);
  EngineMemory source(*ns_, 6);
  source.Randomize(1);
  const PutResult put = Put(chain, source.View());
  EXPECT_EQ(put.stored(), 4u);
  EXPECT_EQ(put.blocks[4].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Lookup(chain).blocks(), 4u);
  EXPECT_EQ(coordinators_[0]->locates.back().keys().size(), 4 * BlockKey::kBytes);
}

TEST_F(ClusterLookupTest, ASilentCoordinatorIsReplacedWithinTheDeadlineAndNotAskedFirstAgain) {
  StartCluster(2, 1);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  PutAll(source, chain);
  coordinators_[0]->silent = {net::Op::kLocate};
  EXPECT_EQ(FoundWithin(chain, milliseconds(100)), 4u);
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kLocate], 1);
  EXPECT_EQ(coordinators_[1]->requests[net::Op::kLocate], 1);
  EXPECT_EQ(FoundWithin(chain, milliseconds(10)), 4u);
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kLocate], 1);
  EXPECT_EQ(Metric("tokura_client_coordinator_failovers_total"), 1);
  EXPECT_EQ(
      Metric("tokura_client_coordinator_requests_total", {{"op", "locate"}, {"result", "ok"}}), 2);
  EXPECT_EQ(Metric("tokura_client_coordinator_requests_total",
                   {{"op", "locate"}, {"result", "cancelled"}}),
            1);
}

TEST_F(ClusterLookupTest, ACoordinatorThatRefusesIsReplacedAtOnce) {
  StartCluster(2, 1);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  PutAll(source, chain);
  coordinators_[0]->refuse[net::Op::kLocate] = absl::ResourceExhaustedError("busy");
  EXPECT_EQ(FoundWithin(chain, milliseconds(10)), 4u);
  EXPECT_EQ(FoundWithin(chain, milliseconds(10)), 4u);
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kLocate], 1);
}

TEST_F(ClusterLookupTest, ADeadCoordinatorIsReplacedAtOnce) {
  ExpectWarnings();
  StartCluster(2, 1);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  PutAll(source, chain);
  coordinators_[0]->Kill();
  EXPECT_EQ(FoundWithin(chain, milliseconds(100)), 4u);
  RunFor(seconds(5));
  EXPECT_EQ(FoundWithin(chain, milliseconds(10)), 4u);
  EXPECT_EQ(coordinators_[1]->requests[net::Op::kLocate], 2);
  EXPECT_GE(coordinators_[1]->requests[net::Op::kWatch], 1);
}

TEST_F(ClusterLookupTest, AnUnreachableMachineCostsOneDeadlineAndIsDropped) {
  ExpectWarnings();
  StartCluster(1, 1);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  PutAll(source, chain);
  network_.Kill(coordinators_[0]->host(), sim::SimNetwork::Death::kMachine);
  const TimePoint start = Now();
  EXPECT_EQ(Lookup(chain).blocks(), 0u);
  EXPECT_GE(Now() - start, milliseconds(200));
  EXPECT_LT(Now() - start, milliseconds(210));
  EXPECT_EQ(FoundWithin(chain, milliseconds(1)), 0u);
}

TEST_F(ClusterLookupTest, WithoutAnyCoordinatorLookupsMissAndWhatWasFoundCanStillBeRead) {
  ExpectWarnings();
  StartCluster(2, 2);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  coordinators_[0]->Kill();
  coordinators_[1]->Kill();
  RunFor(seconds(3));
  EXPECT_EQ(FoundWithin(chain, milliseconds(1)), 0u);
  const Match held = Acquire(match);
  EXPECT_EQ(held.blocks(), 8u);
  EXPECT_EQ(Get(held, target.View()).prefix_ok(), 8u);
  ExpectSameBlocks(source, target, 0, 8);
}

TEST_F(ClusterLookupTest, AReplicaIsAskedForWhatTheFirstNodeLacks) {
  StartCluster(1, 2);
  coordinators_[0]->plan_replicas = true;
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  EngineMemory target(*ns_, 4);
  PutAll(source, chain);
  ASSERT_EQ(nodes_[0]->blocks.size(), 4u);
  ASSERT_EQ(nodes_[1]->blocks.size(), 4u);
  const Match match = Lookup(chain);
  ASSERT_EQ(match.alternates.size(), 1u);
  nodes_[0]->blocks.clear();
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 4u);
  ExpectSameBlocks(source, target, 0, 4);
  EXPECT_EQ(Metric("tokura_client_relocations_total"), 0);
}

TEST_F(ClusterLookupTest, AsksOnceMoreWhereBlocksAreWhenAllNamedHoldersFailed) {
  StartCluster(1, 3);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  // Segment 1 has moved since.
  nodes_[2]->blocks = std::exchange(nodes_[1]->blocks, {});
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 8u);
  ExpectSameBlocks(source, target, 0, 8);
  ASSERT_EQ(coordinators_[0]->locates.size(), 2u);
  const proto::LocateRequest& again = coordinators_[0]->locates.back();
  EXPECT_EQ(again.keys().size(), 8 * BlockKey::kBytes);
  EXPECT_FALSE(again.touch());
  ASSERT_EQ(again.avoid_size(), 1);
  EXPECT_EQ(again.avoid(0), "node-1");
  EXPECT_EQ(Metric("tokura_client_relocations_total"), 1);
}

TEST_F(ClusterLookupTest, WhatIsNowhereIsAMissAfterOneMoreQuestion) {
  StartCluster(1, 2);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  nodes_[1]->blocks.clear();
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.prefix_ok(), 4u);
  EXPECT_EQ(got.blocks[4].code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(coordinators_[0]->locates.size(), 2u);
}

TEST_F(ClusterLookupTest, ADeadNodesBlocksAreReadFromWhoHasThemToo) {
  ExpectWarnings();
  StartCluster(1, 3);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  EngineMemory target(*ns_, 4);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  nodes_[2]->blocks = nodes_[0]->blocks;  // a copy that the match does not name
  nodes_[0]->silent = {net::Op::kGet};
  GetOptions options;
  options.deadline = seconds(1);
  const TimePoint start = Now();
  EXPECT_EQ(Get(match, target.View(), options).prefix_ok(), 4u);
  EXPECT_LT(Now() - start, milliseconds(300));
  ExpectSameBlocks(source, target, 0, 4);
}

TEST_F(ClusterLookupTest, WhenAllAreSilentTheNextOneIsAskedFirst) {
  StartCluster(2, 1);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  PutAll(source, chain);
  LookupOptions hasty;
  hasty.deadline = milliseconds(50);
  for (const auto& coordinator : coordinators_) {
    coordinator->silent = {net::Op::kLocate};
  }
  EXPECT_EQ(Lookup(chain, hasty).blocks(), 0u);
  coordinators_[1]->silent.clear();
  EXPECT_EQ(FoundWithin(chain, milliseconds(5)), 4u);
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kLocate], 1);
}

TEST_F(ClusterLookupTest, AGetThatEndsWhileItAsksAgainBlamesWhoWasSilent) {
  StartCluster(2, 2);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  nodes_[1]->blocks.clear();
  for (const auto& coordinator : coordinators_) {
    coordinator->silent = {net::Op::kLocate};
  }
  GetOptions options;
  options.deadline = milliseconds(50);
  const TimePoint start = Now();
  EXPECT_EQ(Get(match, target.View(), options).prefix_ok(), 4u);
  EXPECT_LT(Now() - start, milliseconds(51));
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kLocate], 2);
  coordinators_[1]->silent.clear();
  EXPECT_EQ(FoundWithin(chain, milliseconds(5)), 4u);
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kLocate], 2);
}

TEST_F(ClusterLookupTest, HastyGetsConvictADeadCoordinator) {
  ExpectWarnings();
  StartCluster(1, 2);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  nodes_[1]->blocks.clear();
  network_.Kill(coordinators_[0]->host(), sim::SimNetwork::Death::kMachine);
  GetOptions options;
  options.deadline = milliseconds(60);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Get(match, target.View(), options).prefix_ok(), 4u);
  }
  const TimePoint start = Now();
  EXPECT_EQ(Get(match, target.View(), options).prefix_ok(), 4u);
  EXPECT_LT(Now() - start, milliseconds(5)) << "its breaker is open";
}

TEST_F(ClusterLookupTest, ContradictoryAnswersAreMisses) {
  StartCluster(1, 2);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  PutAll(source, chain);
  const std::vector<std::function<void(proto::LocateReply*)>> lies = {
      [](proto::LocateReply* reply) { reply->mutable_runs(1)->set_first(5); },
      [](proto::LocateReply* reply) { reply->mutable_runs()->RemoveLast(); },
      [](proto::LocateReply* reply) { reply->mutable_runs(0)->set_node(7); },
      [](proto::LocateReply* reply) { reply->mutable_runs(0)->set_form_class(7); },
      [](proto::LocateReply* reply) { reply->mutable_runs(0)->set_count(1u << 31); },
      [](proto::LocateReply* reply) { reply->set_prefix_blocks(1u << 30); },
      [](proto::LocateReply* reply) { reply->mutable_nodes(0)->set_node(std::string(5000, 'x')); },
      [](proto::LocateReply* reply) {
        *reply->add_alternates() = reply->runs(1);
        *reply->add_alternates() = reply->runs(0);
      }};
  for (size_t i = 0; i < lies.size(); ++i) {
    coordinators_[0]->change_locate = lies[i];
    EXPECT_EQ(Lookup(chain).blocks(), 0u) << "lie " << i;
  }
  coordinators_[0]->change_locate = [](proto::LocateReply* reply) {
    reply->add_classes()->set_codec("from-the-future");
    reply->mutable_runs(1)->set_form_class(static_cast<uint32_t>(reply->classes_size()) - 1);
  };
  EXPECT_EQ(Lookup(chain).blocks(), 4u) << "up to what this software can read";
}

TEST_F(ClusterLookupTest, CancelledAndEmptyLookupsEnd) {
  StartCluster(1, 1);
  EXPECT_EQ(Lookup(MakeChain(*ns_, 0)).blocks(), 0u);
  coordinators_[0]->silent = {net::Op::kLocate};
  std::optional<absl::StatusOr<Match>> match;
  OnLoop([&] {
    const auto id = core_->Lookup(ns_, MakeChain(*ns_, 2), {},
                                  [&](absl::StatusOr<Match> m) { match = std::move(m); });
    core_->Cancel(id);
  });
  RunUntil([&] { return match.has_value(); }, milliseconds(10));
  EXPECT_EQ(match->status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tokura
