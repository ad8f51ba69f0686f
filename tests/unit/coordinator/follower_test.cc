// The view of a coordinator that follows another one, over the simulated network, against a holder
// that a test plays by hand.

#include "coordinator/follower.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/transport.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

const net::Address kAddress{"10.0.0.1", 7000};

proto::ClusterState State(uint64_t epoch, const std::vector<std::string>& members = {}) {
  proto::ClusterState state;
  state.set_epoch(epoch);
  state.set_segment_blocks(32);
  for (const std::string& name : members) {
    proto::Member& member = *state.add_members();
    member.set_node(name);
    member.set_incarnation(100);
  }
  return state;
}

class Holder final : public net::ServerChannelOwner {
 public:
  explicit Holder(sim::SimTransport& transport) : transport_(transport) {}

  void Listen() {
    transport_.loop().Enter([this] {
      auto listener = transport_.Listen(
          kAddress, {}, [this](net::Transport& owner, std::unique_ptr<net::Connection> connection) {
            net::ServerChannel::Options options;
            options.node = "c0";
            options.incarnation = 5;
            options.format_version = "0.7";
            channels.push_back(net::ServerChannel::Accept(owner, std::move(connection),
                                                          std::move(options), *this));
            return &channels.back()->handler();
          });
      listener_ = std::move(listener).value();
    });
  }
  // Answer the WATCH that waits.
  void Answer(const absl::Status& status, const proto::ClusterState& state) {
    transport_.loop().Enter([&] {
      ASSERT_TRUE(waiting);
      const net::FrameHeader frame = *std::exchange(waiting, std::nullopt);
      channels.back()->Reply(frame, status, &state);
    });
  }
  void Close() {
    transport_.loop().Enter([this] {
      for (const auto& channel : channels) {
        channel->Close(net::CloseMode::kAbort);
      }
    });
  }

  absl::Status OnHello(net::ServerChannel&, const proto::Hello& hello, proto::Welcome*) override {
    EXPECT_EQ(hello.role(), "coordinator");
    EXPECT_EQ(hello.name(), "c1");
    return absl::OkStatus();
  }
  void OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                 std::span<const std::byte> body) override {
    EXPECT_EQ(frame.op, net::Op::kWatch);
    proto::WatchRequest request;
    EXPECT_TRUE(request.ParseFromArray(body.data(), static_cast<int>(body.size())));
    known.push_back(request.known_epoch());
    waiting = frame;
    if (at_once) {
      waiting.reset();
      channel.Reply(frame, absl::OkStatus(), &*at_once);
    }
  }
  void OnPayload(net::ServerChannel&, const net::FrameHeader&, net::IncomingPayload) override {}
  void OnClosed(net::ServerChannel&, absl::Status) override { waiting.reset(); }

  std::vector<uint64_t> known;  // epochs that WATCHes named
  std::optional<net::FrameHeader> waiting;
  std::optional<proto::ClusterState> at_once;
  std::vector<std::unique_ptr<net::ServerChannel>> channels;

 private:
  sim::SimTransport& transport_;
  std::unique_ptr<net::Listener> listener_;
};

class FollowerTest : public ::testing::Test {
 protected:
  FollowerTest() {
    SetLogLevel(LogLevel::kError);  // lost links warn
    net::SetFormatVersion("0.7");
    Follower::Options options;
    options.holder = kAddress;
    options.name = "c1";
    options.instance = std::string(16, 'i');
    follower_ = std::make_unique<Follower>(transport_, host_.random(), options);
    holder_.Listen();
  }
  ~FollowerTest() override {
    if (follower_) {
      Stop();
    }
    holder_.Close();
    scheduler_.RunFor(seconds(10));
  }

  void Start() {
    host_.loop().Enter(
        [this] { follower_->Start([this] { epochs_.push_back(follower_->state().epoch()); }); });
    scheduler_.RunFor(milliseconds(20));
  }
  void Stop() {
    const size_t changes = epochs_.size();
    bool done = false;
    host_.loop().Enter([&] {
      follower_->Stop([&] { done = true; });
      EXPECT_FALSE(done) << "inline";
    });
    scheduler_.RunFor(seconds(5));
    EXPECT_TRUE(done);
    EXPECT_EQ(epochs_.size(), changes);
    follower_.reset();
  }
  void Answer(const proto::ClusterState& state, absl::Status status = absl::OkStatus()) {
    holder_.Answer(status, state);
    scheduler_.RunFor(milliseconds(5));
  }

  sim::SimScheduler scheduler_{3};
  sim::SimNetwork network_{scheduler_, {}};
  sim::SimHost holder_host_{scheduler_, {.name = "c0", .ip = "10.0.0.1"}};
  sim::SimHost host_{scheduler_, {.name = "c1", .ip = "10.0.0.2"}};
  sim::SimTransport holder_transport_{network_, holder_host_.loop()};
  sim::SimTransport transport_{network_, host_.loop()};
  Holder holder_{holder_transport_};
  std::unique_ptr<Follower> follower_;
  std::vector<uint64_t> epochs_;  // at each change
};

TEST_F(FollowerTest, RepeatsWhatTheHolderSaysAndAsksOn) {
  EXPECT_FALSE(follower_->holder());
  EXPECT_EQ(follower_->state().epoch(), 0u);
  Start();
  EXPECT_TRUE(follower_->connected());
  Answer(State(3, {"a", "b"}));
  EXPECT_EQ(follower_->state().members_size(), 2);
  Answer(State(4, {"a"}));
  EXPECT_THAT(epochs_, ElementsAre(3, 4));
  EXPECT_THAT(holder_.known, ElementsAre(0, 3, 4)) << "it names what it knows";
}

TEST_F(FollowerTest, KeepsTheLastStateWhileTheHolderIsGoneAndNamesItAfterwards) {
  Start();
  Answer(State(57, {"a"}));
  holder_.Close();
  scheduler_.RunFor(milliseconds(50));
  EXPECT_FALSE(follower_->connected());
  EXPECT_EQ(follower_->state().epoch(), 57u);
  scheduler_.RunFor(seconds(2));
  EXPECT_TRUE(follower_->connected());
  EXPECT_EQ(holder_.known.back(), 57u);
}

TEST_F(FollowerTest, NeverGoesBackAndDoesNotAskInALoop) {
  Start();
  Answer(State(57, {"a"}));
  const size_t asked = holder_.known.size();
  holder_.at_once = State(1);  // a holder that has not gone on above yet
  Answer(State(1));
  scheduler_.RunFor(seconds(2));
  EXPECT_THAT(epochs_, ElementsAre(57));
  EXPECT_GE(holder_.known.size(), asked + 5);
  EXPECT_LE(holder_.known.size(), asked + 12) << "five times a second, not in a loop";
  holder_.at_once.reset();
  scheduler_.RunFor(milliseconds(500));
  Answer(State(58, {"b"}));
  EXPECT_THAT(epochs_, ElementsAre(57, 58));
}

TEST_F(FollowerTest, AsksAgainAtOnceAfterAQuietWatch) {
  Start();
  Answer(State(3));
  scheduler_.RunFor(seconds(5));
  const size_t asked = holder_.known.size();
  Answer(State(3));
  EXPECT_EQ(holder_.known.size(), asked + 1);
  EXPECT_THAT(epochs_, ElementsAre(3)) << "the same state is no change";
}

TEST_F(FollowerTest, TakesOtherRulesUnderTheSameEpoch) {
  Start();
  Answer(State(3, {"a"}));
  proto::ClusterState state = State(3, {"a"});
  state.set_policy_version(2);
  Answer(state);
  EXPECT_THAT(epochs_, ElementsAre(3, 3));
  EXPECT_EQ(follower_->state().policy_version(), 2u);
}

TEST_F(FollowerTest, RefusesAStateThatIsNone) {
  Start();
  const uint64_t warnings = LogCounts().warnings;
  Answer(State(3, {"b", "a"}));
  scheduler_.RunFor(milliseconds(250));
  Answer(State(3, {"a", "a"}));
  scheduler_.RunFor(milliseconds(250));
  proto::ClusterState state = State(3);
  state.set_segment_blocks(0);
  Answer(state);
  scheduler_.RunFor(milliseconds(250));
  Answer(state);
  scheduler_.RunFor(milliseconds(250));
  EXPECT_EQ(LogCounts().warnings, warnings + 2) << "one line for each cause in turn";
  Answer(State(3, {"a"}));
  EXPECT_THAT(epochs_, ElementsAre(3));
}

TEST_F(FollowerTest, ARefusedWatchIsTriedAgainLater) {
  Start();
  Answer({}, absl::UnimplementedError("no coordinator"));
  EXPECT_EQ(holder_.known.size(), 1u);
  scheduler_.RunFor(milliseconds(250));
  EXPECT_EQ(holder_.known.size(), 2u);
  Answer(State(3));
  EXPECT_THAT(epochs_, ElementsAre(3));
}

TEST_F(FollowerTest, AHolderThatForgetsAWatchIsAskedAgain) {
  Start();
  scheduler_.RunFor(seconds(11));
  EXPECT_EQ(holder_.known.size(), 2u);
}

TEST_F(FollowerTest, FencesByTheMembersItKnowsAndAdmitsNobody) {
  proto::RegisterRequest request;
  request.set_node("b");
  request.set_incarnation(90);
  EXPECT_EQ(*follower_->Register(request), 90u) << "nothing is known";
  Start();
  Answer(State(3, {"a", "b", "c"}));
  EXPECT_EQ(follower_->Register(request).status().code(), absl::StatusCode::kFailedPrecondition);
  request.set_starting(true);
  EXPECT_EQ(follower_->Register(request).status().code(), absl::StatusCode::kUnavailable)
      << "a number of its own would make a zombie of a process that the holder has just admitted";
  request.set_incarnation(100);
  EXPECT_EQ(*follower_->Register(request), 100u) << "whom the holder has admitted";
  request.set_starting(false);
  EXPECT_EQ(*follower_->Register(request), 100u);
  request.set_node("new");
  request.set_incarnation(1);
  EXPECT_EQ(*follower_->Register(request), 1u);
  proto::ReportRequest report;
  report.set_incarnation(99);
  EXPECT_EQ(follower_->Report("b", report).status().code(), absl::StatusCode::kFailedPrecondition);
  report.set_incarnation(100);
  EXPECT_EQ(*follower_->Report("b", report), 0u);
  follower_->ConnectionLost("b", 100);
  follower_->NameEpoch(1000);
  EXPECT_EQ(follower_->state().epoch(), 3u);
}

TEST_F(FollowerTest, StopsAtAnyMoment) {
  for (int steps = 0; steps < 120; ++steps) {
    host_.loop().Enter(
        [&] { follower_->Start([this] { epochs_.push_back(follower_->state().epoch()); }); });
    for (int i = 0; i < steps; ++i) {
      scheduler_.Step();
      if (holder_.waiting && steps % 3 == 0) {
        holder_.Answer(absl::OkStatus(), State(1 + static_cast<uint64_t>(i)));
      }
    }
    if (steps % 4 == 0) {
      holder_.Close();
    }
    Stop();
    Follower::Options options;
    options.holder = kAddress;
    options.name = "c1";
    options.instance = std::string(16, 'i');
    follower_ = std::make_unique<Follower>(transport_, host_.random(), options);
  }
}

}  // namespace
}  // namespace tokura::coordinator
