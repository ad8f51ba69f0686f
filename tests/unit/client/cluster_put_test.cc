// Puts of a client in a cluster: planned by a coordinator, stored by several nodes.

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/client/cluster_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClusterPutTest : public ClusterTest {
 protected:
  std::vector<absl::StatusCode> Codes(const PutResult& result) {
    std::vector<absl::StatusCode> codes;
    for (const absl::Status& status : result.blocks) {
      codes.push_back(status.code());
    }
    return codes;
  }
  // Keys that puts announced to a node, over all requests.
  static size_t Announced(const FakeNode& node) {
    size_t blocks = 0;
    for (const proto::PutRequest& put : node.puts) {
      blocks += static_cast<size_t>(put.blocks_size());
    }
    return blocks;
  }
  double Plan(const std::string& what) {
    return Metric("tokura_client_plan_blocks_total", {{"plan", what}});
  }
};

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

TEST_F(ClusterPutTest, SegmentsGoToTheNodesOfThePlan) {
  StartCluster(1, 2);
  const TokenChain chain = MakeChain(*ns_, 10);
  EngineMemory source(*ns_, 10);
  source.Randomize(5);
  const PutResult put = Put(chain, source.View());
  EXPECT_EQ(put.stored(), 10u);
  EXPECT_EQ(put.bytes_logical, 10u * 2 * 3 * 2 * 16 * 64 * 4);
  EXPECT_EQ(nodes_[0]->blocks.size(), 6u);
  EXPECT_EQ(nodes_[1]->blocks.size(), 4u);
  for (const auto& node : nodes_) {
    ASSERT_EQ(node->puts.size(), 1u);
    EXPECT_EQ(node->puts[0].placement_epoch(), coordinators_[0]->state().epoch());
  }
  const proto::PutRequest& first = nodes_[0]->puts[0];
  EXPECT_EQ(first.blocks(4).position(), 8u);
  EXPECT_EQ(first.blocks(4).parent(),
            std::string(reinterpret_cast<const char*>(chain.keys()[7].bytes.data()), 16));
  EXPECT_EQ(first.blocks(0).content_id(), nodes_[1]->puts[0].blocks(0).content_id());
  EXPECT_EQ(Plan("sent"), 10);
  EXPECT_EQ(Metric("tokura_client_requests_total", {{"op", "put"}, {"result", "ok"}}), 1);
  EXPECT_EQ(Metric("tokura_client_blocks_total", {{"op", "put"}, {"result", "ok"}}), 10);
  EXPECT_EQ(Metric("tokura_client_inflight_requests"), 0);
}

TEST_F(ClusterPutTest, WhatIsHeldAlreadyIsNotSent) {
  StartCluster(1, 2);
  EngineMemory source(*ns_, 10);
  source.Randomize(5);
  const TokenChain chain = MakeChain(*ns_, 10);
  PutOptions options;
  options.blocks = 6;
  EXPECT_EQ(Put(chain, source.View(), options).stored(), 6u);
  const size_t announced = Announced(*nodes_[0]) + Announced(*nodes_[1]);
  const PutResult again = Put(chain, source.View());
  EXPECT_EQ(again.stored(), 10u);
  EXPECT_EQ(Announced(*nodes_[0]) + Announced(*nodes_[1]), announced + 4);
  EXPECT_EQ(Plan("held"), 6);
  EXPECT_EQ(Plan("sent"), 10);
  const PutResult nothing = Put(chain, source.View());
  EXPECT_EQ(nothing.stored(), 10u);
  EXPECT_EQ(nothing.bytes_moved, 0u);
  EXPECT_GT(again.timings.wire, Duration::zero());
  EXPECT_EQ(nothing.timings.wire, Duration::zero());
}

TEST_F(ClusterPutTest, APlanBeginsAtTheSegmentOfTheFirstBlock) {
  StartCluster(1, 2);
  EngineMemory source(*ns_, 10);
  source.Randomize(5);
  const TokenChain chain = MakeChain(*ns_, 10);
  PutOptions options;
  options.first_block = 6;
  options.blocks = 3;
  EXPECT_EQ(Put(chain, source.View(), options).stored(), 3u);
  const proto::PlanRequest& plan = coordinators_[0]->plans.back();
  EXPECT_EQ(plan.first_position(), 4u);
  EXPECT_EQ(plan.first_block(), 2u);
  EXPECT_EQ(plan.keys().size(), 5 * BlockKey::kBytes);
  EXPECT_EQ(plan.codec(), "raw");
  EXPECT_EQ(plan.group_mask(), 1u);
  EXPECT_EQ(nodes_[1]->blocks.size(), 2u);
  EXPECT_EQ(nodes_[0]->blocks.size(), 1u);
  EXPECT_EQ(nodes_[0]->blocks.begin()->first, chain.keys()[8]);
}

TEST_F(ClusterPutTest, AReplicaStoresTheSameContent) {
  StartCluster(1, 2);
  coordinators_[0]->plan_replicas = true;
  EngineMemory source(*ns_, 4);
  const TokenChain chain = MakeChain(*ns_, 4);
  PutAll(source, chain);
  ASSERT_EQ(nodes_[0]->blocks.size(), 4u);
  ASSERT_EQ(nodes_[1]->blocks.size(), 4u);
  for (const auto& [key, block] : nodes_[0]->blocks) {
    EXPECT_EQ(block.content_id, nodes_[1]->blocks[key].content_id);
    EXPECT_EQ(block.parts, nodes_[1]->blocks[key].parts);
  }
}

TEST_F(ClusterPutTest, OneCopyOfTwoIsEnough) {
  ExpectWarnings();
  StartCluster(1, 2);
  coordinators_[0]->plan_replicas = true;
  nodes_[1]->refuse[net::Op::kPut] = absl::ResourceExhaustedError("full");
  EngineMemory source(*ns_, 4);
  PutAll(source, MakeChain(*ns_, 4));
}

TEST_F(ClusterPutTest, ARefusedPlacementIsPlannedOnceMore) {
  StartCluster(1, 2);
  nodes_[0]->refuse_below_epoch = coordinators_[0]->state().epoch();
  coordinators_[0]->plan_epoch = 1;
  coordinators_[0]->change_plan = [this](proto::PlanReply*) {
    coordinators_[0]->plan_epoch = 0;  // from the next on
  };
  EngineMemory source(*ns_, 12);
  EngineMemory target(*ns_, 12);
  const TokenChain chain = MakeChain(*ns_, 12);
  PutAll(source, chain);
  EXPECT_EQ(coordinators_[0]->plans.size(), 2u);
  EXPECT_EQ(Metric("tokura_client_plans_renewed_total"), 1);
  EXPECT_EQ(nodes_[1]->puts.size(), 1u) << "the node that took its blocks is left alone";
  EXPECT_EQ(Get(Lookup(chain), target.View()).prefix_ok(), 12u);
  ExpectSameBlocks(source, target, 0, 12);
}

TEST_F(ClusterPutTest, APlacementThatIsRefusedTwiceIsUnavailable) {
  StartCluster(1, 2);
  nodes_[0]->refuse_below_epoch = 99;
  EngineMemory source(*ns_, 8);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 8), source.View());
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_EQ(Codes(*put->result), (std::vector{kUnavailable, kUnavailable, kUnavailable,
                                              kUnavailable, kOk, kOk, kOk, kOk}));
  EXPECT_EQ(coordinators_[0]->plans.size(), 2u);
  EXPECT_EQ(Metric("tokura_client_requests_total", {{"op", "put"}, {"result", "partial"}}), 1);
}

TEST_F(ClusterPutTest, TheViewIsKeptUntilNoPlacementCanBeRefused) {
  ExpectWarnings();
  StartCluster(1, 1);
  nodes_[0]->take_payloads = false;
  EngineMemory source(*ns_, 1);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 1), source.View());
  RunFor(milliseconds(100));
  EXPECT_EQ(nodes_[0]->puts.size(), 1u);
  EXPECT_FALSE(put->released);
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_TRUE(put->released);
}

TEST_F(ClusterPutTest, APlanThatDoesNotComeReleasesTheViewWithinTheDeadline) {
  StartCluster(1, 1);
  coordinators_[0]->silent = {net::Op::kPlan};
  ExpectWarnings();
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  PutOptions options;
  options.deadline = milliseconds(50);
  const TimePoint start = Now();
  const auto put = StartPut(MakeChain(*ns_, 2), source.View(), options);
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_LT(put->ended - start, milliseconds(55));
  EXPECT_EQ(Codes(*put->result), (std::vector{kUnavailable, kUnavailable}));
  // Without a deadline of its own a put waits as long as any request.
  const auto patient = StartPut(MakeChain(*ns_, 2), source.View());
  RunUntil([&] { return patient->result.has_value(); }, seconds(1));
  EXPECT_EQ(Codes(*patient->result), (std::vector{kUnavailable, kUnavailable}));
}

TEST_F(ClusterPutTest, WithoutACoordinatorNothingIsStored) {
  ExpectWarnings();
  StartCluster(2, 1);
  coordinators_[0]->Kill();
  coordinators_[1]->Kill();
  RunFor(seconds(2));
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  const TimePoint start = Now();
  const PutResult put = Put(MakeChain(*ns_, 2), source.View());
  EXPECT_LT(Now() - start, milliseconds(1));
  EXPECT_EQ(Codes(put), (std::vector{kUnavailable, kUnavailable}));
}

TEST_F(ClusterPutTest, AnotherCoordinatorPlansWhenTheFirstIsSilent) {
  StartCluster(2, 2);
  coordinators_[0]->silent = {net::Op::kPlan};
  EngineMemory source(*ns_, 8);
  PutAll(source, MakeChain(*ns_, 8));
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kPlan], 1);
  PutAll(source, MakeChain(*ns_, 8, 2));
  EXPECT_EQ(coordinators_[0]->requests[net::Op::kPlan], 1);
}

TEST_F(ClusterPutTest, ANodeThatStallsCostsItsBlocksOnly) {
  ExpectWarnings();
  StartCluster(1, 2);
  nodes_[1]->take_payloads = false;
  EngineMemory source(*ns_, 8);
  source.Randomize(1);
  PutOptions options;
  options.deadline = milliseconds(150);
  const TimePoint start = Now();
  const auto put = StartPut(MakeChain(*ns_, 8), source.View(), options);
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_LT(put->ended - start, milliseconds(155));
  EXPECT_LT(put->released_at - start, milliseconds(155));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(put->result->blocks[i].ok(), i < 4) << i << ": " << put->result->blocks[i];
  }
}

TEST_F(ClusterPutTest, ALostNodeFailsItsBlocks) {
  ExpectWarnings();
  StartCluster(1, 2);
  nodes_[1]->take_payloads = false;
  EngineMemory source(*ns_, 8);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 8), source.View());
  RunUntil([&] { return nodes_[1]->puts.size() == 1; });
  nodes_[1]->Kill();
  RunUntil([&] { return put->result.has_value(); }, milliseconds(50));
  EXPECT_EQ(put->result->stored(), 4u);
  // The coordinator does not know yet: what it still places there is lost, nothing else.
  const PutResult next = Put(MakeChain(*ns_, 8, 2), source.View());
  EXPECT_EQ(next.stored(), 4u);
  EXPECT_EQ(next.blocks[4].code(), kUnavailable);
}

TEST_F(ClusterPutTest, CancelReachesEveryNode) {
  StartCluster(1, 2);
  nodes_[0]->take_payloads = false;
  nodes_[1]->take_payloads = false;
  EngineMemory source(*ns_, 32);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 32), source.View());
  RunUntil([&] { return nodes_[0]->puts.size() > 0 && nodes_[1]->puts.size() > 0; });
  OnLoop([&] { core_->Cancel(put->id); });
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_EQ(put->result->stored(), 0u);
  RunUntil([&] { return nodes_[0]->cancelled > 0 && nodes_[1]->cancelled > 0; }, seconds(1));
}

TEST_F(ClusterPutTest, CancelReleasesTheViewAtOnceWhateverTheNodesStillSay) {
  ExpectWarnings();
  StartCluster(1, 1);
  nodes_[0]->silent = {net::Op::kPut};
  EngineMemory source(*ns_, 1);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 1), source.View());
  const auto offered = [&] {
    const sim::NetworkActivity activity = network_.activity(nodes_[0]->host());
    return activity.offers + activity.transfers > 0;
  };
  RunUntil([&] { return nodes_[0]->requests[net::Op::kPut] == 1 && offered(); }, seconds(1));
  EXPECT_FALSE(put->released) << "its placement may be refused";
  OnLoop([&] { core_->Cancel(put->id); });
  RunUntil([&] { return put->released; }, milliseconds(2));
  EXPECT_FALSE(put->result) << "the node may store it";
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_NE(put->result->blocks[0].code(), absl::StatusCode::kCancelled);
}

TEST_F(ClusterPutTest, CancelBeforeThePlanStoresNothing) {
  StartCluster(1, 1);
  coordinators_[0]->silent = {net::Op::kPlan};
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 2), source.View());
  OnLoop([&] { core_->Cancel(put->id); });
  RunUntil([&] { return put->result.has_value(); }, milliseconds(10));
  EXPECT_TRUE(put->released);
  EXPECT_EQ(put->result->blocks[0].code(), absl::StatusCode::kCancelled);
}

TEST_F(ClusterPutTest, ACancelledCopyDoesNotSpeakForTheOther) {
  ExpectWarnings();
  StartCluster(1, 2);
  coordinators_[0]->plan_replicas = true;
  nodes_[0]->refuse[net::Op::kPut] = absl::CancelledError("given up");
  nodes_[1]->silent = {net::Op::kPut};  // It takes the parts, and may store them.
  EngineMemory source(*ns_, 1);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 1), source.View());
  RunUntil([&] { return put->result.has_value(); }, seconds(2));
  EXPECT_FALSE(put->result->blocks[0].ok());
  EXPECT_NE(put->result->blocks[0].code(), absl::StatusCode::kCancelled)
      << "which promises that nobody will see the block";
}

TEST_F(ClusterPutTest, WhatCannotBePutIsSaidWithoutAPlan) {
  StartCluster(1, 1);
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  PutOptions options;
  options.blocks = 3;
  EXPECT_EQ(Put(MakeChain(*ns_, 2), source.View(), options).blocks[0].code(),
            absl::StatusCode::kInvalidArgument);
  options.blocks = 0;
  options.codec = "no such codec";
  EXPECT_EQ(Put(MakeChain(*ns_, 2), source.View(), options).blocks[1].code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(Put(MakeChain(*ns_, 0), source.View()).blocks.empty());
  EXPECT_TRUE(coordinators_[0]->plans.empty());
}

TEST_F(ClusterPutTest, AContradictoryPlanStoresNothing) {
  StartCluster(1, 1);
  EngineMemory source(*ns_, 4);
  source.Randomize(1);
  const std::vector<std::function<void(proto::PlanReply*)>> lies = {
      [](proto::PlanReply* reply) { reply->mutable_runs(0)->set_node(5); },
      [](proto::PlanReply* reply) { reply->mutable_runs(0)->set_count(5); },
      [](proto::PlanReply* reply) { reply->mutable_runs(0)->set_first(1u << 31); }};
  for (size_t i = 0; i < lies.size(); ++i) {
    coordinators_[0]->change_plan = lies[i];
    const PutResult put = Put(MakeChain(*ns_, 4), source.View());
    EXPECT_EQ(put.stored(), 0u) << "lie " << i;
    EXPECT_EQ(put.blocks[0].code(), kUnavailable);
  }
  EXPECT_TRUE(nodes_[0]->puts.empty());
}

}  // namespace
}  // namespace tokura
