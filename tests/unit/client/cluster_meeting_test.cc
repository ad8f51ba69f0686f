// A client that has not met every node of its cluster yet: what it waits for, how long, and what
// becomes of operations that need a node which is still being connected to.

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/client/cluster_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

class ClusterMeetingTest : public ClusterTest {
 protected:
  // A coordinator, node-0 nearby, and node-1, whose link has this latency in both directions.
  void StartWithDistantNode(Duration latency) {
    AddCoordinator();
    AddMember();
    AddMember();
    network_.link(kClient, kDistant).latency = latency;
    network_.link(kDistant, kClient).latency = latency;
    Connect();
  }
  // The same, but nobody hears node-1.
  void StartWithSilentNode() {
    ExpectWarnings();
    AddCoordinator();
    AddMember();
    AddMember();
    network_.Cut(kClient, kDistant);
    Connect();
  }
  // Connected to node-0 and nothing more.
  void Connect() {
    OnLoop([&] {
      core_ = std::move(*ClientCore::Create({transport_, host_.pool(), host_.random(), registry_},
                                            WithCoordinators()));
    });
    RunUntil([&] { return core_->ready(); });
    ASSERT_EQ(nodes_[1]->open_channels, 0);
  }
  struct Ready {
    std::optional<absl::Status> status;
    TimePoint at;
  };
  std::shared_ptr<Ready> WhenReady(Duration timeout) {
    auto ready = std::make_shared<Ready>();
    OnLoop([&] {
      core_->WhenReady(Now() + timeout, [this, ready](absl::Status status) {
        ready->status = status;
        ready->at = Now();
      });
    });
    return ready;
  }
  // `chain` stored by somebody who has met everybody.
  Match StoredByAnother(EngineMemory& source, const TokenChain& chain) {
    OtherClient& other = AddOtherClient();
    source.Randomize(77);
    std::optional<PutResult> put;
    std::optional<absl::StatusOr<Match>> match;
    other.OnLoop([&] {
      other.core().Put(
          ns_, chain, source.View(), {}, [] {}, [&](PutResult result) { put = std::move(result); });
    });
    RunUntil([&] { return put.has_value(); });
    EXPECT_EQ(put->stored(), chain.blocks());
    other.OnLoop([&] {
      other.core().Lookup(ns_, chain, {},
                          [&](absl::StatusOr<Match> found) { match = std::move(found); });
    });
    RunUntil([&] { return match.has_value(); });
    EXPECT_EQ((*match)->blocks(), chain.blocks());
    return **match;
  }

  static constexpr char kClient[] = "10.0.1.1";
  static constexpr char kDistant[] = "10.0.0.2";
};

TEST_F(ClusterMeetingTest, ReadyWhenEveryMemberThatIsUpIsConnected) {
  StartWithDistantNode(milliseconds(30));
  const auto ready = WhenReady(seconds(5));
  RunUntil([&] { return ready->status.has_value(); }, seconds(1));
  EXPECT_TRUE(ready->status->ok());
  EXPECT_EQ(nodes_[1]->open_channels, 1);
  EXPECT_EQ(Metric("tokura_client_nodes", {{"breaker", "closed"}}), 2);
}

TEST_F(ClusterMeetingTest, AMemberThatFailedIsNotWaitedFor) {
  StartWithSilentNode();
  const TimePoint start = Now();
  const auto ready = WhenReady(seconds(20));
  RunUntil([&] { return ready->status.has_value(); }, seconds(2));
  EXPECT_TRUE(ready->status->ok());
  EXPECT_GT(ready->at - start, milliseconds(900)) << "connect_timeout";
  EXPECT_LT(ready->at - start, milliseconds(1100));
}

TEST_F(ClusterMeetingTest, OneConnectedNodeIsEnoughAtTheTimeout) {
  StartWithSilentNode();
  const TimePoint start = Now();
  const auto ready = WhenReady(milliseconds(300));
  RunUntil([&] { return ready->status.has_value(); }, seconds(1));
  EXPECT_TRUE(ready->status->ok());
  EXPECT_LT(ready->at - start, milliseconds(301));
  EXPECT_GE(ready->at - start, milliseconds(300));
}

TEST_F(ClusterMeetingTest, ASuspectIsNotWaitedFor) {
  ExpectWarnings();
  AddCoordinator();
  AddMember();
  AddMember();
  network_.Cut(kClient, kDistant);
  proto::ClusterState state = coordinators_[0]->state();
  state.mutable_members(1)->set_state(proto::Member::SUSPECT);
  coordinators_[0]->Publish(state);
  Connect();
  const auto ready = WhenReady(seconds(5));
  RunUntil([&] { return ready->status.has_value(); }, milliseconds(10));
  EXPECT_TRUE(ready->status->ok());
}

TEST_F(ClusterMeetingTest, APutWaitsForANodeThatIsBeingConnectedTo) {
  StartWithDistantNode(milliseconds(15));
  EngineMemory source(*ns_, 8);
  source.Randomize(1);
  EXPECT_EQ(Put(MakeChain(*ns_, 8), source.View()).stored(), 8u);
  EXPECT_EQ(nodes_[1]->blocks.size(), 4u);
}

TEST_F(ClusterMeetingTest, APutDoesNotWaitForLongNorHoldUpTheOtherNodes) {
  StartWithSilentNode();
  EngineMemory source(*ns_, 8);
  source.Randomize(1);
  const TimePoint start = Now();
  const auto put = StartPut(MakeChain(*ns_, 8), source.View());
  RunUntil([&] { return nodes_[0]->blocks.size() == 4; }, milliseconds(50));
  EXPECT_FALSE(put->released) << "the others may still be encoded";
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_LT(put->ended - start, milliseconds(110)) << "half of progress_timeout";
  EXPECT_EQ(put->result->stored(), 4u);
  EXPECT_EQ(put->result->blocks[4].code(), kUnavailable);
  // Once it has failed, it is not waited for at all.
  RunFor(seconds(2));
  const auto next = StartPut(MakeChain(*ns_, 8, 2), source.View());
  RunUntil([&] { return next->result.has_value(); }, milliseconds(50));
  EXPECT_EQ(next->result->stored(), 4u);
}

TEST_F(ClusterMeetingTest, APutThatWaitsEndsAtItsDeadline) {
  StartWithSilentNode();
  EngineMemory source(*ns_, 8);
  source.Randomize(1);
  PutOptions options;
  options.deadline = milliseconds(40);
  const TimePoint start = Now();
  const auto put = StartPut(MakeChain(*ns_, 8), source.View(), options);
  RunUntil([&] { return put->result.has_value(); }, seconds(1));
  EXPECT_LE(put->ended - start, milliseconds(41));
  EXPECT_LE(put->released_at - start, milliseconds(41));
  EXPECT_EQ(put->result->stored(), 4u);
}

TEST_F(ClusterMeetingTest, APutThatWaitsIsCancelledAtOnce) {
  StartWithSilentNode();
  EngineMemory source(*ns_, 8);
  source.Randomize(1);
  const auto put = StartPut(MakeChain(*ns_, 8), source.View());
  RunUntil([&] { return nodes_[0]->blocks.size() == 4; }, milliseconds(50));
  OnLoop([&] { core_->Cancel(put->id); });
  RunUntil([&] { return put->result.has_value(); }, milliseconds(5));
  EXPECT_EQ(put->result->blocks[7].code(), absl::StatusCode::kCancelled);
  RunFor(seconds(2));
}

TEST_F(ClusterMeetingTest, AGetWaitsForANodeThatIsBeingConnectedTo) {
  StartWithDistantNode(milliseconds(15));
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  network_.Cut(kClient, kDistant);
  const Match match = StoredByAnother(source, chain);
  network_.Mend(kClient, kDistant);
  ASSERT_EQ(Metric("tokura_client_nodes", {{"breaker", "closed"}}), 2);
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 8u);
  ExpectSameBlocks(source, target, 0, 8);
  EXPECT_EQ(Metric("tokura_client_relocations_total"), 0);
}

TEST_F(ClusterMeetingTest, AGetDoesNotWaitForLong) {
  StartWithSilentNode();
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  const Match match = StoredByAnother(source, chain);
  const TimePoint start = Now();
  const auto get = StartGet(match, target.View());
  RunUntil([&] { return get->result.has_value(); }, seconds(1));
  EXPECT_EQ(get->result->prefix_ok(), 4u);
  EXPECT_EQ(get->result->blocks[4].code(), kUnavailable);
  EXPECT_LT(get->ended - start, milliseconds(110));
  GetOptions options;
  options.deadline = milliseconds(20);
  const TimePoint again = Now();
  const auto hasty = StartGet(match, target.View(), options);
  RunUntil([&] { return hasty->result.has_value(); }, seconds(1));
  EXPECT_LT(hasty->ended - again, milliseconds(21));
  const auto cancelled = StartGet(match, target.View());
  OnLoop([&] { core_->Cancel(cancelled->id); });
  RunUntil([&] { return cancelled->result.has_value(); }, milliseconds(5));
}

TEST_F(ClusterMeetingTest, AnAcquireWaitsForANodeThatIsBeingConnectedTo) {
  StartWithDistantNode(milliseconds(15));
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  network_.Cut(kClient, kDistant);
  const Match match = StoredByAnother(source, chain);
  network_.Mend(kClient, kDistant);
  const Match held = Acquire(match);
  EXPECT_EQ(held.blocks(), 8u);
  EXPECT_EQ(nodes_[1]->leases.size(), 1u);
}

TEST_F(ClusterMeetingTest, AnAcquireTakesWhatItCanInTime) {
  StartWithSilentNode();
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  const Match match = StoredByAnother(source, chain);
  const TimePoint start = Now();
  EXPECT_EQ(Acquire(match).blocks(), 4u);
  EXPECT_LT(Now() - start, milliseconds(110));
  // Nor does the loss of another node end the wait with nothing asked.
  std::optional<absl::StatusOr<Match>> cancelled;
  OnLoop([&] {
    const auto id = core_->Acquire(
        ns_, match, {}, [&](absl::StatusOr<Match> held) { cancelled = std::move(held); });
    core_->Cancel(id);
  });
  RunUntil([&] { return cancelled.has_value(); }, milliseconds(5));
  EXPECT_EQ(cancelled->status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ClusterMeetingTest, AMemberThatIsNotKnownYetIsAskedFor) {
  ExpectWarnings();
  StartCluster(1, 1);
  // The client believes that there is nothing new, and asks less and less often.
  coordinators_[0]->refuse[net::Op::kWatch] = absl::UnavailableError("later");
  proto::ClusterState state = coordinators_[0]->state();
  state.set_policy_version(state.policy_version() + 1);
  coordinators_[0]->Publish(state);
  RunFor(seconds(8));
  coordinators_[0]->refuse.clear();
  AddMember();
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  source.Randomize(1);
  const TokenChain chain = MakeChain(*ns_, 8);
  EXPECT_EQ(Put(chain, source.View()).stored(), 8u);
  EXPECT_EQ(nodes_[1]->blocks.size(), 4u);
  EXPECT_EQ(Get(Lookup(chain), target.View()).prefix_ok(), 8u);
}

TEST_F(ClusterMeetingTest, ANodeThatIsBackIsMetAtOnce) {
  ExpectWarnings();
  StartCluster(1, 1);
  nodes_[0]->Kill();
  RunFor(seconds(7));  // so that it is tried less and less often
  RunUntil([&] { return Metric("tokura_client_nodes", {{"breaker", "open"}}) == 1; }, seconds(3));
  FakeNode& back = AddNode({.name = "node-0", .ip = "10.0.0.1", .incarnation = 200});
  proto::ClusterState state = coordinators_[0]->state();
  state.set_epoch(state.epoch() + 1);
  state.mutable_members(0)->set_incarnation(200);
  coordinators_[0]->Publish(state);
  RunUntil([&] { return back.open_channels == 1; }, milliseconds(5));
  EngineMemory source(*ns_, 4);
  source.Randomize(1);
  EXPECT_EQ(Put(MakeChain(*ns_, 4), source.View()).stored(), 4u);
  EXPECT_EQ(back.blocks.size(), 4u);
}

TEST_F(ClusterMeetingTest, ALifeThatIsOverIsNotWaitedFor) {
  ExpectWarnings();
  StartCluster(1, 2);
  const TokenChain chain = MakeChain(*ns_, 8);
  EngineMemory source(*ns_, 8);
  EngineMemory target(*ns_, 8);
  PutAll(source, chain);
  const Match match = Lookup(chain);
  proto::ClusterState state = coordinators_[0]->state();
  state.set_epoch(state.epoch() + 1);
  state.mutable_members()->RemoveLast();
  coordinators_[0]->Publish(state);
  RunFor(milliseconds(50));
  coordinators_[0]->change_locate = [](proto::LocateReply* reply) { reply->Clear(); };
  const TimePoint start = Now();
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 4u);
  EXPECT_EQ(Acquire(match).blocks(), 4u);
  EXPECT_LT(Now() - start, milliseconds(20));
}

TEST_F(ClusterMeetingTest, WithoutCoordinatorsStrangersAreNotWaitedFor) {
  ExpectWarnings();
  StartCluster(1, 1);
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  PutAll(source, chain);
  Match match = Lookup(chain);
  for (Match::Holder& holder : match.holders) {
    holder.node = "stranger";
  }
  const TimePoint start = Now();
  EXPECT_EQ(Acquire(match).blocks(), 0u);
  EXPECT_GE(Now() - start, milliseconds(100)) << "a coordinator might tell of it";
  coordinators_[0]->Kill();
  RunFor(seconds(1));
  const TimePoint later = Now();
  EXPECT_EQ(Acquire(match).blocks(), 0u);
  EXPECT_LT(Now() - later, milliseconds(5));
}

}  // namespace
}  // namespace tokura
