// Two coordinators: one holds the membership, the other follows it and answers the same.

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/coordinator/server_testing.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ServerFollowerTest : public ServerTest {
 protected:
  ServerFollowerTest() : holder_(StartCoordinator(SmallOptions())), follower_(StartFollower()) {}

  TestCoordinator& StartFollower() {
    CoordinatorOptions options = SmallOptions();
    options.name = "coordinator-b";
    options.metadata = "coordinator://" + coordinators_[0]->address.ToString();
    return StartCoordinator(options, "10.0.0.2");
  }
  // Another process at the holder's address.
  TestCoordinator& RestartHolder() {
    CoordinatorOptions options = SmallOptions();
    options.incarnation = scheduler_.Now().time_since_epoch().count() + 1;
    return StartCoordinator(options, "10.0.0.1");
  }
  bool AtEpoch(const TestCoordinator& coordinator, uint64_t epoch) {
    return RunUntil([&] { return coordinator.coordinator->accounting().epoch >= epoch; });
  }
  // One process as both coordinators see it; its log is sent to each by hand.
  struct TwoLinks {
    TestNode at_holder;
    TestNode at_follower;
  };
  TwoLinks StartBoth(const std::string& name, uint64_t incarnation) {
    TwoLinks node;
    node.at_holder = StartNode(name, incarnation, &holder_);
    EXPECT_TRUE(RunUntil([&] {
      return follower_.coordinator->accounting().members ==
             holder_.coordinator->accounting().members;
    }));
    node.at_follower = MakeNode(name, node.at_holder.incarnation, &follower_);
    node.at_follower.instance = node.at_holder.instance;
    node.at_follower.starting = false;
    Register(node.at_follower);
    Inventory(node.at_follower, node.at_follower.Snapshot(0, 0, 0));
    return node;
  }

  TestCoordinator& holder_;
  TestCoordinator& follower_;
};

TEST_F(ServerFollowerTest, TheFollowerAnswersLookupsPlansAndWatchesAsTheHolder) {
  TwoLinks a = StartBoth("node-a", 10);
  TwoLinks b = StartBoth("node-b", 20);
  Inventory(a.at_holder, a.at_holder.Holds(1, 0, 4));
  Inventory(a.at_follower, a.at_follower.Holds(1, 0, 4));
  Inventory(b.at_holder, b.at_holder.Holds(1, 4, 2));
  Inventory(b.at_follower, b.at_follower.Holds(1, 4, 2));
  TestPeer& at_holder = Connect({}, &holder_);
  TestPeer& at_follower = Connect({}, &follower_);
  ASSERT_TRUE(AtEpoch(follower_, holder_.coordinator->accounting().epoch));
  EXPECT_EQ(Locate(at_holder, LocateMessage(1, 8)).SerializeAsString(),
            Locate(at_follower, LocateMessage(1, 8)).SerializeAsString());
  proto::PlanRequest plan;
  plan.set_keys(ChainKeys(2, 0, 64));
  plan.set_codec("raw");
  plan.set_group_mask(1);
  EXPECT_EQ(
      Await(at_holder.Send(net::Op::kPlan, plan)).As<proto::PlanReply>().SerializeAsString(),
      Await(at_follower.Send(net::Op::kPlan, plan)).As<proto::PlanReply>().SerializeAsString());
  const proto::ClusterState state = Watch(at_follower, 0);
  EXPECT_EQ(state.SerializeAsString(), Watch(at_holder, 0).SerializeAsString());
  EXPECT_EQ(state.holder(), "coordinator-a");
  EXPECT_TRUE(follower_.coordinator->Ready().ok());
}

TEST_F(ServerFollowerTest, RegisteringAtTheFollowerDecidesNothing) {
  StartNode("node-a", 10, &holder_);
  ASSERT_TRUE(AtEpoch(follower_, 1));
  TestNode stranger = MakeNode("node-b", 20, &follower_);
  const proto::RegisterReply reply = Register(stranger);
  EXPECT_FALSE(reply.holder());
  EXPECT_TRUE(stranger.starting);
  Inventory(stranger, stranger.Snapshot(1, 0, 4));
  TestPeer& client = Connect({}, &follower_);
  EXPECT_EQ(Prefix(client, 1, 4), 0u) << "it is no member";
  EXPECT_EQ(holder_.coordinator->accounting().members, 1u);
  // Admitted by the holder, it is found with what the follower was told before.
  TestNode admitted = MakeNode("node-b", 20, &holder_);
  admitted.instance = stranger.instance;
  Register(admitted);
  ASSERT_TRUE(RunUntil([&] { return follower_.coordinator->accounting().members == 2; }));
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
}

TEST_F(ServerFollowerTest, ALifeThatNoHolderAdmittedMakesNobodyAZombie) {
  // Its clock was ahead, and it died before it had reached the holder.
  TestNode dead = MakeNode("node-a", 30, &follower_);
  Register(dead);
  TestNode at_holder = StartNode("node-a", 20, &holder_);
  ASSERT_TRUE(AtEpoch(follower_, 1));
  TestNode node = MakeNode("node-a", 20, &follower_);
  node.instance = at_holder.instance;
  node.starting = false;
  EXPECT_EQ(Code(node.peer->Send(net::Op::kRegister, node.RegisterMessage())),
            absl::StatusCode::kUnavailable)
      << "which of the two lives on, only the holder can say";
  dead.peer->Close(net::CloseMode::kAbort);
  RunFor(milliseconds(10));
  Register(node);
  Inventory(node, node.Snapshot(1, 0, 4));
  TestPeer& client = Connect({}, &follower_);
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
}

TEST_F(ServerFollowerTest, TheFollowerGoesOnWhileTheHolderIsGoneAndTheHolderGoesOnAboveIt) {
  TwoLinks a = StartBoth("node-a", 10);
  TwoLinks b = StartBoth("node-b", 20);
  Inventory(a.at_follower, a.at_follower.Holds(1, 0, 4));
  TestPeer& client = Connect({}, &follower_);
  ASSERT_EQ(Prefix(client, 1, 4), 4u);
  const uint64_t epoch = follower_.coordinator->accounting().epoch;
  Kill(holder_);
  for (int i = 0; i < 30; ++i) {
    RunFor(milliseconds(100));
    ASSERT_EQ(Prefix(client, 1, 4), 4u);
    Report(a.at_follower);
  }
  EXPECT_EQ(follower_.coordinator->accounting().epoch, epoch);
  // A new process: it knows nothing, and asks nobody to believe an epoch of long ago.
  TestCoordinator& restarted = RestartHolder();
  TestNode again = MakeNode("node-a", 10, &restarted);
  again.instance = a.at_holder.instance;
  again.starting = false;
  again.highest_epoch = epoch;
  EXPECT_EQ(Register(again).incarnation(), 10u);
  TestNode other = MakeNode("node-b", 20, &restarted);
  other.instance = b.at_holder.instance;
  other.starting = false;
  other.highest_epoch = epoch;
  EXPECT_EQ(Register(other).incarnation(), 20u);
  TestPeer& at_restarted = Connect({}, &restarted);
  EXPECT_EQ(Code(at_restarted.Send(net::Op::kLocate, LocateMessage(1, 4))),
            absl::StatusCode::kUnavailable);
  while (restarted.coordinator->accounting().epoch == 0) {
    ReportFor({&again, &other}, milliseconds(100));
    ASSERT_EQ(Prefix(client, 1, 4), 4u) << "lookups at the follower never stop";
  }
  EXPECT_GT(restarted.coordinator->accounting().epoch, epoch);
  while (follower_.coordinator->accounting().epoch <= epoch) {
    ReportFor({&again, &other}, milliseconds(100));
  }
  EXPECT_EQ(follower_.coordinator->accounting().members, 2u);
  EXPECT_EQ(Prefix(client, 1, 4), 4u);
  // The holder's index is empty until the node has told it.
  EXPECT_EQ(Prefix(at_restarted, 1, 4), 0u);
  EXPECT_TRUE(Report(again).send_snapshot());
  Inventory(again, again.Snapshot(1, 0, 4));
  EXPECT_EQ(Prefix(at_restarted, 1, 4), 4u);
}

TEST_F(ServerFollowerTest, AFollowersWatchAloneTellsANewHolderTheEpoch) {
  StartNode("node-a", 10, &holder_);
  ASSERT_TRUE(AtEpoch(follower_, 1));
  const uint64_t epoch = follower_.coordinator->accounting().epoch;
  Kill(holder_);
  TestCoordinator& restarted = RestartHolder();
  ASSERT_TRUE(AtEpoch(restarted, 1));
  EXPECT_GT(restarted.coordinator->accounting().epoch, epoch);
  ASSERT_TRUE(AtEpoch(follower_, restarted.coordinator->accounting().epoch));
  EXPECT_EQ(follower_.coordinator->accounting().members, 0u);
}

TEST_F(ServerFollowerTest, AStateOfAnotherLifeOfTheHolderUnderTheSameEpochReplacesTheOld) {
  StartNode("node-a", 10, &holder_);
  ASSERT_TRUE(AtEpoch(follower_, 1));
  Kill(holder_);
  TestCoordinator& restarted = RestartHolder();
  // It has not been told of any epoch yet: for it the cluster is a new one.
  TestNode node = StartNode("node-b", 20, &restarted);
  TestPeer& client = Connect({}, &follower_);
  ASSERT_EQ(Members(Watch(client, 0)), "node-a:UP");
  ReportFor({&node}, seconds(2));
  const proto::ClusterState state = Watch(client, 0);
  EXPECT_EQ(state.epoch(), 1u);
  EXPECT_EQ(Members(state), "node-b:UP");
}

TEST_F(ServerFollowerTest, OrphansWaitForMembersThatHaveNotRegisteredHereYet) {
  TestNode a = StartNode("node-a", 10, &holder_);
  TestNode b = StartNode("node-b", 20, &holder_);
  ASSERT_TRUE(RunUntil([&] { return follower_.coordinator->accounting().members == 2; }));
  TestNode a_here = MakeNode("node-a", 10, &follower_);
  Register(a_here);
  Inventory(a_here, a_here.Snapshot(1, 0, 6));
  Inventory(a_here, a_here.Drops(1, 3, 1));
  for (int i = 0; i < 10; ++i) {
    ReportFor({&a, &b}, milliseconds(100));
    ASSERT_EQ(Report(a_here).orphans_size(), 0) << "node-b may have the block";
  }
  TestNode b_here = MakeNode("node-b", 20, &follower_);
  Register(b_here);
  Inventory(b_here, b_here.Snapshot(1, 0, 3));
  ReportFor({&a, &b}, milliseconds(200));
  const proto::ReportReply told = Report(a_here);
  ASSERT_EQ(told.orphans_size(), 1);
  EXPECT_EQ(told.orphans(0).keys(), ChainKeys(1, 4, 2));
}

TEST_F(ServerFollowerTest, SuspicionOfTheHolderReachesTheFollower) {
  TwoLinks silent = StartBoth("node-a", 10);
  TwoLinks steady = StartBoth("node-b", 20);
  Inventory(silent.at_follower, silent.at_follower.Holds(1, 0, 4));
  Inventory(steady.at_follower, steady.at_follower.Holds(1, 0, 4));
  TestPeer& client = Connect({}, &follower_);
  // Partitioned from the holder, still reporting to the follower.
  silent.at_holder.peer->host().Pause();
  for (int i = 0; i < 10; ++i) {
    ReportFor({&steady.at_holder, &silent.at_follower}, milliseconds(100));
  }
  EXPECT_EQ(Members(Watch(client, 0)), "node-a:SUSPECT node-b:UP");
  const proto::LocateReply reply = Locate(client, LocateMessage(1, 4));
  ASSERT_EQ(reply.runs_size(), 1);
  EXPECT_EQ(reply.nodes(0).node(), "node-b");
  // Out of the members for good, its inventory stays with the follower that still hears it.
  ReportFor({&steady.at_holder, &silent.at_follower, &steady.at_follower}, seconds(3));
  EXPECT_EQ(Members(Watch(client, 0)), "node-b:UP");
  Inventory(silent.at_follower, silent.at_follower.Holds(2, 0, 4));
  EXPECT_EQ(Prefix(client, 2, 4), 0u);
  silent.at_holder.peer->host().Continue();
  Reconnect(silent.at_holder, &holder_);
  Register(silent.at_holder);
  ASSERT_TRUE(RunUntil([&] { return follower_.coordinator->accounting().members == 2; }));
  EXPECT_EQ(Prefix(client, 2, 4), 4u);
}

TEST_F(ServerFollowerTest, AFollowerDrainsWhileItsHolderIsDead) {
  StartNode("node-a", 10, &holder_);
  ASSERT_TRUE(AtEpoch(follower_, 1));
  Kill(holder_);
  RunFor(milliseconds(500));
  Stop(follower_);
}

}  // namespace
}  // namespace tokura::coordinator
