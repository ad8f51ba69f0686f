// Long polls for the members and the rules.

#include "coordinator/server_watch.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "coordinator/cluster_view.h"
#include "tests/unit/coordinator/server_testing.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(ServerTest, WatchIsAnsweredAtOnceToWhomTheStateIsNews) {
  StartCoordinator(SmallOptions());
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  const proto::ClusterState state = Watch(client, 0);
  EXPECT_EQ(state.epoch(), 1u);
  EXPECT_EQ(state.segment_blocks(), 4u);
  EXPECT_EQ(state.holder(), "coordinator-a");
  EXPECT_EQ(Members(state), "node-a:UP");
  EXPECT_EQ(state.members(0).address(), "node-a:7421");
  EXPECT_EQ(state.members(0).incarnation(), 10u);
}

TEST_F(ServerTest, WatchIsAnsweredWhenTheMembersChange) {
  StartCoordinator(SmallOptions());
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  const proto::WatchRequest watch = WatchMessage(Watch(client, 0));
  const TestPeer::Sent waiting = client.Send(net::Op::kWatch, watch, seconds(60));
  RunFor(milliseconds(200));
  EXPECT_FALSE(waiting.call->answered());
  EXPECT_EQ(Metric("tokura_queue_depth", {{"queue", "watches"}}), 1);
  StartNode("node-b", 11);
  const proto::ClusterState state = Await(waiting).As<proto::ClusterState>();
  EXPECT_GT(state.epoch(), watch.known_epoch());
  EXPECT_THAT(Members(state), testing::HasSubstr("node-b:UP"));
}

TEST_F(ServerTest, WatchIsAnsweredAtHalfItsDeadlineWithWhatIsCurrent) {
  CoordinatorOptions options = SmallOptions();
  options.suspect_after = seconds(30);
  options.remove_after = seconds(60);
  StartCoordinator(options);
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  const proto::WatchRequest watch = WatchMessage(Watch(client, 0));
  const TimePoint asked = client.host().loop().Now();
  const TestPeer::Sent waiting = client.Send(net::Op::kWatch, watch, seconds(2));
  EXPECT_EQ(Await(waiting).As<proto::ClusterState>().epoch(), watch.known_epoch());
  EXPECT_GE(waiting.call->answered_at() - asked, milliseconds(900));
  EXPECT_LE(waiting.call->answered_at() - asked, milliseconds(1100));
}

TEST_F(ServerTest, WhoKnowsMoreThanTheHolderIsToldWhenItHasGoneOnAbove) {
  StartCoordinator(SmallOptions());
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  proto::WatchRequest watch;
  watch.set_known_epoch(1000);  // Of a holder before this one: only the client has outlived it.
  const TestPeer::Sent waiting = client.Send(net::Op::kWatch, watch, seconds(10));
  EXPECT_EQ(Await(waiting).As<proto::ClusterState>().epoch(), 1001u);
}

TEST_F(ServerTest, AnEpochThatNoHolderCanHaveToldAClientIsNotGoneOnAbove) {
  StartCoordinator(SmallOptions());
  StartNode("node-a", 10);
  TestPeer& client = Connect();
  proto::WatchRequest watch;
  watch.set_known_epoch(kClaimMax + 1);
  const TestPeer::Sent waiting = client.Send(net::Op::kWatch, watch, seconds(4));
  EXPECT_LT(Await(waiting).As<proto::ClusterState>().epoch(), 100u);
}

TEST_F(ServerTest, WatchesPerConnectionAreBoundedAndCancelMakesRoom) {
  StartCoordinator(SmallOptions());  // Without nodes nothing changes.
  TestPeer& client = Connect();
  TestPeer& other = Connect();
  const proto::WatchRequest watch = WatchMessage(Watch(client, 0));
  std::vector<TestPeer::Sent> waiting;
  for (size_t i = 0; i < WatchList::kPerConnectionMax; ++i) {
    waiting.push_back(client.Send(net::Op::kWatch, watch, seconds(60)));
  }
  EXPECT_EQ(Code(client.Send(net::Op::kWatch, watch)), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Metric("tokura_queue_rejected_total", {{"queue", "watches"}}), 1);
  EXPECT_EQ(Requests("watch", "resource_exhausted"), 1);
  other.Send(net::Op::kWatch, watch, seconds(60));
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_queue_depth", {{"queue", "watches"}}), 5);
  client.Cancel(waiting[1].id);
  RunFor(milliseconds(150));
  EXPECT_EQ(Requests("watch", "cancelled"), 1);
  client.Send(net::Op::kWatch, watch, seconds(60));
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_queue_rejected_total", {{"queue", "watches"}}), 1);
  client.Close(net::CloseMode::kAbort);
  RunFor(milliseconds(150));
  EXPECT_EQ(Metric("tokura_queue_depth", {{"queue", "watches"}}), 1);
  EXPECT_EQ(Requests("watch", "unavailable"), 4);
  EXPECT_EQ(Metric("tokura_coordinator_inflight_requests"), 1);
}

// ---- the list alone ----

class WatchListTest : public ::testing::Test {
 protected:
  WatchListTest() : scheduler_(1), host_(scheduler_, {}) {
    list_ = std::make_shared<WatchList>(
        host_.loop(), [this](const Watch& watch, const absl::Status& why) {
          answered_.emplace_back(watch.frame.request_id, why.code());
        });
  }
  void Add(uint64_t connection, uint64_t request, StateVersion known) {
    Watch watch;
    watch.connection = connection;
    watch.frame.request_id = request;
    watch.arrived = host_.loop().Now();
    watch.known = known;
    host_.loop().Enter([&] { EXPECT_TRUE(list_->Add(watch).ok()); });
  }

  sim::SimScheduler scheduler_;
  sim::SimHost host_;
  std::shared_ptr<WatchList> list_;
  std::vector<std::pair<uint64_t, absl::StatusCode>> answered_;
};

TEST_F(WatchListTest, NewsIsAHigherEpochOrOtherRulesOfTheSame) {
  EXPECT_TRUE(WatchList::IsNews({2, 1}, {1, 1}));
  EXPECT_TRUE(WatchList::IsNews({2, 2}, {2, 1}));
  EXPECT_TRUE(WatchList::IsNews({3, 1}, {2, 2}));
  EXPECT_FALSE(WatchList::IsNews({2, 1}, {2, 1}));
  EXPECT_FALSE(WatchList::IsNews({1, 2}, {2, 1}));
  EXPECT_FALSE(WatchList::IsNews({0, 0}, {0, 0}));
}

TEST_F(WatchListTest, ManyAreAnsweredInSlicesOldestFirst) {
  constexpr uint64_t kMany = 1000;
  for (uint64_t i = 1; i <= kMany; ++i) {
    Add(i, i, {1, 0});
  }
  Add(kMany + 1, kMany + 1, {5, 0});
  host_.loop().Enter([&] { list_->Changed({2, 0}); });
  EXPECT_TRUE(answered_.empty()) << "never inside the call that brought the change";
  size_t most = 0;
  while (answered_.size() < kMany) {
    const size_t before = answered_.size();
    ASSERT_TRUE(scheduler_.Step());
    most = std::max(most, answered_.size() - before);
  }
  EXPECT_LE(most, 32u) << "requests wait behind one slice, not behind all";
  for (uint64_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(answered_[i].first, i + 1);
  }
  scheduler_.RunFor(seconds(1));
  EXPECT_EQ(list_->size(), 1u) << "nobody is told of an epoch below its own";
}

TEST_F(WatchListTest, AChangeDuringAPassReachesThoseLookedAtAlready) {
  for (uint64_t i = 1; i <= 100; ++i) {
    Add(i, i, {2, 0});
  }
  host_.loop().Enter([&] { list_->Changed({2, 0}); });
  scheduler_.RunFor(std::chrono::microseconds(6));
  host_.loop().Enter([&] { list_->Changed({3, 0}); });
  scheduler_.RunFor(seconds(1));
  EXPECT_EQ(answered_.size(), 100u);
  EXPECT_EQ(list_->size(), 0u);
}

TEST_F(WatchListTest, AWatchWithoutDeadlineEndsToo) {
  Add(1, 7, {1, 0});
  scheduler_.RunFor(seconds(31));
  EXPECT_THAT(answered_, testing::ElementsAre(std::pair(uint64_t{7}, absl::StatusCode::kOk)));
}

TEST_F(WatchListTest, ClosedConnectionsAndCancelledRequestsLeave) {
  Add(1, 7, {1, 0});
  Add(1, 8, {1, 0});
  Add(2, 9, {1, 0});
  host_.loop().Enter([&] {
    list_->Cancel(1, 8);
    list_->Cancel(1, 9);  // Another connection's.
    list_->ConnectionClosed(1);
    list_->ConnectionClosed(3);
  });
  EXPECT_THAT(answered_,
              testing::ElementsAre(std::pair(uint64_t{8}, absl::StatusCode::kCancelled),
                                   std::pair(uint64_t{7}, absl::StatusCode::kUnavailable)));
  host_.loop().Enter([&] { list_->AnswerAll(); });
  EXPECT_EQ(answered_.back(), std::pair(uint64_t{9}, absl::StatusCode::kOk));
  EXPECT_EQ(list_->size(), 0u);
}

}  // namespace
}  // namespace tokura::coordinator
