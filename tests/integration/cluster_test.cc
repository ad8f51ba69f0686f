// Coordinators and nodes as real processes: blocks spread over nodes are found through any
// coordinator, and whoever is killed, stopped or restarted costs its own blocks and nothing else.

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/integration/cluster_fixture.h"

namespace tokura::integration {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr uint32_t kBlocks = 32;

// Calls go on for so long after a fault: longer than it takes to be suspected.
constexpr Duration kAfterFault = milliseconds(1500);

class NodeLossTest : public ClusterTest {
 protected:
  // Put what a node has lost; whether it is found again. Until a coordinator has heard of the loss
  // a put may believe that the blocks are still there.
  static bool Refill(Client& client) {
    return Store(client, 1, kBlocks) == kBlocks && Fetch(client, 1, kBlocks) == kBlocks;
  }
};

TEST_F(ClusterTest, BlocksSpreadOverNodesAreFoundThroughAnyCoordinator) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto writer = ConnectVia(cluster.addresses());
  ASSERT_EQ(Store(*writer, 1, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  for (const std::string& address : cluster.addresses()) {
    const auto reader = ConnectVia({address});
    const Match match = Lookup(*reader, 1, kBlocks);
    EXPECT_EQ(match.blocks(), kBlocks);
    EXPECT_THAT(HoldersOf(match), ElementsAre("node-0", "node-1"));
    EXPECT_EQ(Fetch(*reader, 1, kBlocks), kBlocks);
  }
  // Segments stay together.
  const Match match = Lookup(*writer, 1, kBlocks);
  for (size_t i = 0; i < match.blocks(); ++i) {
    EXPECT_EQ(match.HolderOf(i)->node, match.HolderOf(i / kSegmentBlocks * kSegmentBlocks)->node);
  }
  // What is held already is not sent again.
  KvMemory memory(kBlocks);
  memory.Fill(1);
  const auto space = *writer->OpenNamespace(TestSpace());
  const PutResult again = writer->Put(space, MakeChain(*space, 1, kBlocks), memory.View());
  EXPECT_EQ(again.stored(), kBlocks);
  EXPECT_EQ(again.bytes_moved, 0u);
}

// Both nodes hold the chain whole. Each loses blocks of its middle that the other still has; then
// both lose the same one.
TEST_F(ClusterTest, MiddleThatOneNodeLostComesFromTheOtherAndWhatBothLostEndsThePrefix) {
  constexpr uint32_t kLostByOne = kBlocks / 2;  // and the one after it
  constexpr uint32_t kLostByBoth = kBlocks - 3;
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto reader = ConnectVia(cluster.addresses());
  std::vector<std::unique_ptr<Client>> at;  // clients of one node, which nobody's plan binds
  for (size_t node = 0; node < cluster.nodes(); ++node) {
    at.push_back(Connect({cluster.node(node).data()}));
    ASSERT_EQ(Store(*at.back(), 1, kBlocks), kBlocks);
  }
  ASSERT_TRUE(WaitFor(
      [&] { return cluster.NodesMetric("tokura_tier_blocks{tier=\"host\"}") == 2.0 * kBlocks; }));
  const auto lose = [&](size_t node, uint32_t block) {
    const auto space = *at[node]->OpenNamespace(TestSpace());
    const BlockKey key = MakeChain(*space, 1, kBlocks).keys()[block];
    ASSERT_THAT(at[node]->Remove(space, {key}).blocks, ElementsAre(absl::OkStatus()));
  };
  lose(1, kLostByOne);
  lose(1, kLostByOne + 1);
  // What is believed to be there and is not is had from the other node, and never a hole.
  EXPECT_EQ(Fetch(*reader, 1, kBlocks), kBlocks);
  lose(0, kLostByOne + 4);
  EXPECT_EQ(Fetch(*reader, 1, kBlocks), kBlocks);
  ASSERT_TRUE(WaitFor([&] {
    const Match match = Lookup(*reader, 1, kBlocks);
    return match.blocks() == kBlocks && match.HolderOf(kLostByOne)->node == "node-0" &&
           match.HolderOf(kLostByOne + 1)->node == "node-0" &&
           match.HolderOf(kLostByOne + 4)->node == "node-1";
  }));
  EXPECT_EQ(Fetch(*reader, 1, kBlocks), kBlocks);

  lose(0, kLostByBoth);
  lose(1, kLostByBoth);
  EXPECT_EQ(Fetch(*reader, 1, kBlocks), kLostByBoth);
  ASSERT_TRUE(WaitFor([&] { return Lookup(*reader, 1, kBlocks).blocks() == kLostByBoth; }));
  // The hole is closed by one put, of one block.
  EXPECT_EQ(Store(*reader, 1, kBlocks), kBlocks);
  EXPECT_TRUE(WaitFor([&] { return Fetch(*reader, 1, kBlocks) == kBlocks; }));
}

TEST_F(NodeLossTest, KilledNodeCostsItsOwnBlocksUntilTheyArePutAgain) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto client = ConnectVia(cluster.addresses());
  ASSERT_EQ(Store(*client, 1, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  const Match match = Lookup(*client, 1, kBlocks);
  const std::string lost = LaterHolder(match);
  const size_t left = BlocksBefore(match, lost);
  cluster.node(cluster.IndexOf(lost)).Kill();
  const TimePoint end = SystemClock().Now() + Lasting(kAfterFault);
  while (SystemClock().Now() < end) {
    EXPECT_EQ(Fetch(*client, 1, kBlocks), left);
  }
  // The one that is left takes everything.
  EXPECT_TRUE(WaitFor([&] { return Refill(*client); }));
  EXPECT_THAT(HoldersOf(Lookup(*client, 1, kBlocks)), ElementsAre(match.HolderOf(0)->node));
}

TEST_F(NodeLossTest, StoppedNodeIsMissedUntilItGoesOnWithoutAPut) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto client = ConnectVia(cluster.addresses());
  ASSERT_EQ(Store(*client, 1, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  const Match match = Lookup(*client, 1, kBlocks);
  const std::string stopped = LaterHolder(match);
  NodeUnderTest& node = cluster.node(cluster.IndexOf(stopped));
  node.process().Stop();
  const TimePoint end = SystemClock().Now() + Lasting(kAfterFault);
  while (SystemClock().Now() < end) {
    EXPECT_LE(Fetch(*client, 1, kBlocks), BlocksBefore(match, stopped));
  }
  EXPECT_EQ(Fetch(*client, 1, kBlocks), BlocksBefore(match, stopped)) << "what is left is used";
  node.process().Signal(SIGCONT);
  EXPECT_TRUE(WaitFor([&] { return Fetch(*client, 1, kBlocks) == kBlocks; }));
}

TEST_F(ClusterTest, LookupsAndPutsGoOnWhileTheFirstCoordinatorIsStoppedAndKilled) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto client = ConnectVia(cluster.addresses());
  ASSERT_EQ(Store(*client, 1, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  ChildProcess& first = cluster.coordinator(0).process();
  first.Stop();
  ExpectHitsFor(*client, 1, kBlocks, kAfterFault);
  EXPECT_EQ(Store(*client, 2, kBlocks), kBlocks);
  first.Signal(SIGCONT);
  ExpectHitsFor(*client, 1, kBlocks, milliseconds(500));
  cluster.coordinator(0).Kill();
  ExpectHitsFor(*client, 1, kBlocks, kAfterFault);
  EXPECT_EQ(Store(*client, 3, kBlocks), kBlocks);
  EXPECT_TRUE(WaitFor([&] { return Fetch(*client, 3, kBlocks) == kBlocks; }));
}

TEST_F(ClusterTest, RestartedHolderFindsEverythingWithoutAPutAndTheFollowerNeverPauses) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  {
    const auto writer = ConnectVia(cluster.addresses());
    ASSERT_EQ(Store(*writer, 1, kBlocks), kBlocks);
  }
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  const double epoch = cluster.coordinator(1).Metric("tokura_placement_epoch");
  const auto at_follower = ConnectVia({cluster.addresses()[1]});
  std::atomic<bool> over{false};
  std::thread lookups([&] {
    while (!over && !HasFailure()) {
      EXPECT_EQ(Fetch(*at_follower, 1, kBlocks), kBlocks) << "at the follower";
    }
  });
  cluster.coordinator(0).Kill();
  cluster.RestartCoordinator(0);
  EXPECT_TRUE(cluster.WaitUntilUp(2));
  EXPECT_TRUE(cluster.WaitForBlocks(kBlocks));
  EXPECT_GT(cluster.coordinator(0).Metric("tokura_placement_epoch"), epoch)
      << "it goes on above what others have seen";
  EXPECT_TRUE(WaitFor([&] {
    return cluster.coordinator(1).Metric("tokura_placement_epoch") ==
           cluster.coordinator(0).Metric("tokura_placement_epoch");
  })) << "the follower follows the new holder";
  const auto at_holder = ConnectVia({cluster.addresses()[0]});
  EXPECT_EQ(Fetch(*at_holder, 1, kBlocks), kBlocks);
  over = true;
  lookups.join();
}

TEST_F(ClusterTest, WithoutAnyCoordinatorWhatWasAcquiredCanStillBeRead) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto client = ConnectVia(cluster.addresses());
  ASSERT_EQ(Store(*client, 1, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  const auto space = *client->OpenNamespace(TestSpace());
  const auto held = client->Acquire(space, Lookup(*client, 1, kBlocks));
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->blocks(), kBlocks);
  cluster.coordinator(0).Kill();
  cluster.coordinator(1).Kill();
  EXPECT_EQ(Lookup(*client, 1, kBlocks).blocks(), 0u);
  EXPECT_EQ(Store(*client, 2, kBlocks), 0u);
  KvMemory expected(kBlocks), got(kBlocks);
  expected.Fill(1);
  got.Clear();
  EXPECT_EQ(client->Get(space, *held, got.View()).prefix_ok(), kBlocks);
  EXPECT_TRUE(got.SameData(expected, 0, kBlocks));
  client->Release(*held);
  // Both begin with nothing, and learn it all from the nodes.
  cluster.RestartCoordinator(0);
  cluster.RestartCoordinator(1);
  EXPECT_TRUE(WaitFor([&] { return Fetch(*client, 1, kBlocks) == kBlocks; }));
}

TEST_F(NodeLossTest, NodeRestartedEmptyUnderItsNameIsNotTakenForWhatItWas) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto client = ConnectVia(cluster.addresses());
  ASSERT_EQ(Store(*client, 1, kBlocks), kBlocks);
  ASSERT_TRUE(cluster.WaitForBlocks(kBlocks));
  const Match match = Lookup(*client, 1, kBlocks);
  const std::string name = LaterHolder(match);
  const size_t left = BlocksBefore(match, name);
  cluster.node(cluster.IndexOf(name)).Kill();
  cluster.RestartNode(cluster.IndexOf(name));
  EXPECT_EQ(Fetch(*client, 1, kBlocks), left);
  // It is filled and used as before.
  EXPECT_TRUE(WaitFor([&] { return Refill(*client); }));
  const Match refilled = Lookup(*client, 1, kBlocks);
  ASSERT_EQ(refilled.blocks(), kBlocks);
  EXPECT_EQ(refilled.HolderOf(left)->node, name);
  EXPECT_GT(refilled.HolderOf(left)->incarnation, match.HolderOf(left)->incarnation);
}

TEST_F(ClusterTest, PutsMoveAwayFromANodeThatLeaves) {
  ClusterUnderTest cluster({.nodes = 2, .coordinators = 2});
  const auto client = ConnectVia(cluster.addresses());
  // Puts of new chains in a loop, before, while and after it leaves.
  std::atomic<bool> over{false};
  std::atomic<uint64_t> puts{0};
  std::thread writer([&] {
    for (uint64_t seed = 1; !over; ++seed) {
      EXPECT_EQ(Store(*client, seed, kSegmentBlocks), kSegmentBlocks) << "put " << seed;
      ++puts;
    }
  });
  EXPECT_TRUE(WaitFor([&] { return puts > 10; }));
  EXPECT_EQ(cluster.node(1).Terminate(), 0);
  const uint64_t before = puts;
  EXPECT_TRUE(WaitFor([&] { return puts > before + 10; }));
  over = true;
  writer.join();
  const uint64_t last = puts;
  EXPECT_TRUE(WaitFor([&] { return Fetch(*client, last, kSegmentBlocks) == kSegmentBlocks; }));
  EXPECT_THAT(HoldersOf(Lookup(*client, last, kSegmentBlocks)), ElementsAre("node-0"));
}

}  // namespace
}  // namespace tokura::integration
