// Leases over several nodes, and matches that processes hand to each other.

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/client/cluster_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClusterLeaseTest : public ClusterTest {
 protected:
  // A chain of segments of four blocks that lie on nodes 0, 1, … in turn.
  Match PutAndFind(uint32_t blocks) {
    source_.emplace(*ns_, blocks);
    const TokenChain chain = MakeChain(*ns_, blocks);
    PutAll(*source_, chain);
    const Match match = Lookup(chain);
    EXPECT_EQ(match.blocks(), blocks);
    return match;
  }
  std::optional<EngineMemory> source_;
};

TEST_F(ClusterLeaseTest, OneLeasePerNodeOverAllItsBlocks) {
  StartCluster(1, 2);
  const Match match = PutAndFind(12);
  const Match held = Acquire(match);
  ASSERT_EQ(held.blocks(), 12u);
  ASSERT_EQ(held.holders.size(), 2u);
  ASSERT_EQ(held.runs.size(), 3u);
  EXPECT_EQ(held.runs[2].holder, held.runs[0].holder);
  EXPECT_FALSE(held.content_ids[7].empty());
  EXPECT_EQ(nodes_[0]->requests[net::Op::kAcquire], 1);
  EXPECT_EQ(nodes_[1]->requests[net::Op::kAcquire], 1);
  EXPECT_EQ(nodes_[0]->leases.size(), 1u);

  EngineMemory target(*ns_, 12);
  EXPECT_EQ(Get(held, target.View()).prefix_ok(), 12u);
  ExpectSameBlocks(*source_, target, 0, 12);
  for (const auto& node : nodes_) {
    for (const proto::GetRequest& get : node->gets) {
      EXPECT_EQ(nodes_[node == nodes_[1]]->leases.count(get.lease()), 1u);
    }
  }
  OnLoop([&] { core_->Renew(held); });
  RunUntil([&] { return nodes_[0]->renewals.size() == 1 && nodes_[1]->renewals.size() == 1; });
  OnLoop([&] { core_->Release(held); });
  RunUntil([&] { return nodes_[0]->leases.empty() && nodes_[1]->leases.empty(); });
}

TEST_F(ClusterLeaseTest, IsCutToTheFirstGapAndLetsGoOfWhatIsBehind) {
  StartCluster(1, 2);
  const Match match = PutAndFind(8);
  nodes_[0]->blocks.erase(match.keys[2]);
  const Match held = Acquire(match);
  EXPECT_EQ(held.blocks(), 2u);
  ASSERT_EQ(held.holders.size(), 1u);
  EXPECT_EQ(held.holders[0].node, "node-0");
  EXPECT_EQ(nodes_[0]->leases.size(), 1u);
  RunUntil([&] { return nodes_[1]->leases.empty(); }, milliseconds(10));
  EXPECT_EQ(nodes_[1]->requests[net::Op::kAcquire], 1);
}

TEST_F(ClusterLeaseTest, AlternatesStandInForAHolderThatIsGone) {
  ExpectWarnings();
  StartCluster(1, 2);
  coordinators_[0]->plan_replicas = true;
  const Match match = PutAndFind(4);
  ASSERT_EQ(match.HolderOf(0)->node, "node-0");
  nodes_[0]->Kill();
  RunFor(milliseconds(20));
  const Match held = Acquire(match);
  EXPECT_EQ(held.blocks(), 4u);
  EXPECT_EQ(held.HolderOf(0)->node, "node-1");
}

TEST_F(ClusterLeaseTest, ASilentNodeCutsWithinTheDeadlineAndItsLateLeaseIsReleased) {
  ExpectWarnings();
  StartCluster(1, 2);
  const Match match = PutAndFind(8);
  network_.link("10.0.0.2", "10.0.1.1").latency = milliseconds(300);
  const TimePoint start = Now();
  const Match held = Acquire(match);
  EXPECT_LT(Now() - start, milliseconds(250));
  EXPECT_EQ(held.blocks(), 4u);
  EXPECT_EQ(nodes_[0]->leases.size(), 1u);
  RunFor(seconds(2));
  EXPECT_TRUE(nodes_[1]->leases.empty());
}

TEST_F(ClusterLeaseTest, ACancelledAcquireLeavesNoLeaseAnywhere) {
  StartCluster(1, 2);
  const Match match = PutAndFind(8);
  nodes_[1]->silent = {net::Op::kAcquire};
  std::optional<absl::StatusOr<Match>> held;
  ClientCore::OperationId id = 0;
  OnLoop([&] {
    id = core_->Acquire(ns_, match, {}, [&](absl::StatusOr<Match> m) { held = std::move(m); });
  });
  RunUntil([&] { return nodes_[0]->leases.size() == 1; });
  RunFor(milliseconds(5));
  OnLoop([&] { core_->Cancel(id); });
  RunUntil([&] { return held.has_value(); }, milliseconds(10));
  EXPECT_EQ(held->status().code(), absl::StatusCode::kCancelled);
  RunUntil([&] { return nodes_[0]->leases.empty(); }, milliseconds(10));
}

TEST_F(ClusterLeaseTest, WorkersReadByTheLeaseOfTheirScheduler) {
  StartCluster(1, 2);
  OtherClient& one = AddOtherClient();
  OtherClient& two = AddOtherClient();
  const Match held = Acquire(PutAndFind(8));
  ASSERT_EQ(held.blocks(), 8u);
  const std::string bytes = held.Serialize();
  const absl::StatusOr<Match> handed = Match::Parse(bytes);
  ASSERT_TRUE(handed.ok()) << handed.status();

  // One worker dies while it reads; the other's data is right, and the lease stays.
  EngineMemory lost(*ns_, 8);
  one.OnLoop([&] { one.core().Get(ns_, *handed, lost.View(), {}, [](GetResult) {}); });
  RunUntil([&] { return !nodes_[0]->gets.empty(); });
  one.Die();
  EngineMemory target(*ns_, 8);
  EXPECT_EQ(GetBy(two, *handed, target.View()).prefix_ok(), 8u);
  ExpectSameBlocks(*source_, target, 0, 8);
  EXPECT_EQ(nodes_[0]->leases.size(), 1u);
  EXPECT_EQ(nodes_[1]->leases.size(), 1u);
  const std::string token(reinterpret_cast<const char*>(handed->HolderOf(0)->lease.bytes.data()),
                          16);
  EXPECT_EQ(nodes_[0]->gets.back().lease(), token);
  // A worker renews by token, though it does not own the lease.
  two.OnLoop([&] { two.core().Renew(*handed); });
  RunUntil([&] { return nodes_[0]->renewals[token] == 1; });

  // The scheduler dies, and its leases with it; what is still there can be read without.
  StopClient();
  RunUntil([&] { return nodes_[0]->leases.empty() && nodes_[1]->leases.empty(); });
  const GetResult without = GetBy(two, *handed, target.View());
  EXPECT_EQ(without.prefix_ok(), 0u);
  EXPECT_EQ(without.blocks[0].code(), absl::StatusCode::kAborted);
}

class SlidingLeaseTest : public ClusterLeaseTest {
 protected:
  SlidingLeaseTest() {
    NamespaceSpec spec = SmallSpec();
    LayerGroup sliding = spec.groups[0];
    spec.groups[0].layers = {0};
    sliding.layers = {1, 2};
    sliding.kind = AttentionKind::kSliding;
    sliding.window = 2 * spec.block_tokens;
    spec.groups.push_back(sliding);
    ns_ = std::make_shared<const Namespace>(spec);
  }
};

TEST_F(SlidingLeaseTest, IsCutToWhereTheWindowIsWhole) {
  StartCluster(1, 2);
  const Match match = PutAndFind(12);
  // Blocks 7 and 8, on different nodes, have lost their sliding group, and so has block 1: that
  // one does not matter so far from the end.
  nodes_[0]->blocks[match.keys[1]].group_mask = 1;
  nodes_[1]->blocks[match.keys[7]].group_mask = 1;
  nodes_[0]->blocks[match.keys[8]].group_mask = 1;
  const Match longer = Acquire(match);
  EXPECT_EQ(longer.blocks(), 12u) << "the last two have it";
  nodes_[0]->blocks[match.keys[10]].group_mask = 1;
  const Match held = Acquire(match);
  EXPECT_EQ(held.blocks(), 7u);
  EngineMemory target(*ns_, 12);
  EXPECT_EQ(Get(held, target.View()).prefix_ok(), 7u);
  const Match found = Lookup(MakeChain(*ns_, 12));
  EXPECT_EQ(found.blocks(), 7u) << "lookups are cut the same way";
  ASSERT_EQ(coordinators_[0]->locates.back().groups_size(), 2);
  EXPECT_EQ(coordinators_[0]->locates.back().groups(0).tail_blocks(), 0u);
  EXPECT_EQ(coordinators_[0]->locates.back().groups(1).tail_blocks(), 2u);
}

}  // namespace
}  // namespace tokura
