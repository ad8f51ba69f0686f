// The link that keeps itself alive, over the simulated network: losses, drains, backoff, and a stop
// at any moment.

#include "common/net/reconnector.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/transport.h"

namespace tokura::net {
namespace {

using sim::SimHost;
using sim::SimNetwork;
using sim::SimScheduler;
using sim::SimTransport;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

const Address kAddress{"10.0.0.1", 7000};

class RecordingCall final : public Call {
 public:
  void OnPayload(const FrameHeader&, IncomingPayload) override {}
  void OnReply(absl::Status got, std::span<const std::byte>) override {
    ++replies;
    status = std::move(got);
  }
  int replies = 0;
  absl::Status status;
};

// Who is listened to at the address. Answers requests unless told to keep silent.
class Peer final : public ServerChannelOwner {
 public:
  Peer(SimScheduler& scheduler, SimTransport& transport)
      : scheduler_(scheduler), transport_(transport) {}

  void Listen() {
    transport_.loop().Enter([this] {
      auto listener = transport_.Listen(
          kAddress, {}, [this](Transport& owner, std::unique_ptr<Connection> connection) {
            accepted.push_back(scheduler_.Now());
            ServerChannel::Options options;
            options.node = "holder";
            options.incarnation = incarnation;
            options.format_version = "0.7";
            channels.push_back(
                ServerChannel::Accept(owner, std::move(connection), std::move(options), *this));
            return &channels.back()->handler();
          });
      listener_ = std::move(listener).value();
    });
  }
  void Close() {
    transport_.loop().Enter([this] {
      for (const auto& channel : channels) {
        channel->Close(CloseMode::kAbort);
      }
    });
  }

  absl::Status OnHello(ServerChannel&, const proto::Hello& hello, proto::Welcome*) override {
    roles.push_back(hello.role());
    return verdict;
  }
  void OnRequest(ServerChannel& channel, const FrameHeader& frame,
                 std::span<const std::byte>) override {
    if (answer) {
      channel.Reply(frame, absl::OkStatus(), &body_);
    } else {
      pending = frame;
    }
  }
  void OnPayload(ServerChannel&, const FrameHeader&, IncomingPayload) override {}
  void OnClosed(ServerChannel&, absl::Status) override { ++closes; }

  uint64_t incarnation = 5;
  bool answer = true;
  absl::Status verdict;
  std::vector<TimePoint> accepted;
  std::vector<std::string> roles;
  std::vector<std::unique_ptr<ServerChannel>> channels;
  FrameHeader pending;
  int closes = 0;

 private:
  SimScheduler& scheduler_;
  SimTransport& transport_;
  std::unique_ptr<Listener> listener_;
  proto::StatReply body_;
};

class Owner final : public Reconnector::Owner {
 public:
  absl::Status AdmitPeer(Reconnector&, const proto::Welcome& welcome) override {
    log.push_back("admit " + welcome.node());
    return verdict;
  }
  void OnLinkUp(Reconnector& link) override {
    log.push_back("up");
    EXPECT_TRUE(link.usable());
    EXPECT_TRUE(link.trouble().ok());
    if (send_when_up) {
      calls.push_back(std::make_shared<RecordingCall>());
      EXPECT_NE(link.Send(Op::kWatch, proto::StatRequest(), kNever, calls.back()), 0u);
    }
    if (stop_when_up) {
      link.Stop();
    }
    if (drop_when_up) {
      link.Drop(absl::UnavailableError("does not do its work"));
    }
  }
  void OnLinkDraining(Reconnector& link) override {
    log.push_back("draining");
    EXPECT_FALSE(link.usable());
  }
  void OnLinkLost(Reconnector& link, const absl::Status& why) override {
    log.push_back("lost");
    EXPECT_FALSE(why.ok());
    EXPECT_FALSE(link.usable());
    if (stop_when_lost) {
      link.Stop();
    }
  }
  void OnLinkStopped(Reconnector&) override {
    log.push_back("stopped");
    link.reset();  // the last call: its owner may let go at once
  }

  size_t Count(std::string_view what) const {
    return static_cast<size_t>(std::count(log.begin(), log.end(), what));
  }

  std::shared_ptr<Reconnector> link;
  absl::Status verdict;
  bool send_when_up = false, stop_when_up = false, stop_when_lost = false, drop_when_up = false;
  std::vector<std::string> log;
  std::vector<std::shared_ptr<RecordingCall>> calls;
};

// One link and its peer.
class World {
 public:
  explicit World(uint64_t seed = 1) : scheduler(seed) {
    SetLogLevel(LogLevel::kError);  // lost links warn; tests count them
    SetFormatVersion("0.7");
    const std::byte instance[16] = {};
    owner.link = std::make_shared<Reconnector>(
        transport, host.random(),
        Reconnector::Options{.address = kAddress,
                             .channel = {MakeHello(transport, "node", "n0", instance), {}},
                             .breaker = {},
                             .component = "test"},
        owner);
  }
  ~World() {
    On([this] { Stop(); });
    peer.Close();
    scheduler.RunFor(seconds(20));
    EXPECT_EQ(owner.Count("stopped"), 1u);
    EXPECT_EQ(owner.Count("up"), owner.Count("lost"));
    EXPECT_EQ(owner.link, nullptr);
    for (const auto& call : owner.calls) {
      EXPECT_EQ(call->replies, 1);
    }
    EXPECT_EQ(static_cast<size_t>(peer.closes), peer.channels.size());
  }

  void On(const std::function<void()>& task) { host.loop().Enter(task); }
  void Start() {
    On([this] { owner.link->Start(); });
  }
  void Stop() {
    if (owner.link) {
      owner.link->Stop();
    }
  }
  std::shared_ptr<RecordingCall> Send() {
    owner.calls.push_back(std::make_shared<RecordingCall>());
    On([this] {
      owner.link->Send(Op::kReport, proto::StatRequest(), host.Now() + milliseconds(400),
                       owner.calls.back());
      EXPECT_EQ(owner.calls.back()->replies, 0) << "inline";
    });
    return owner.calls.back();
  }

  SimScheduler scheduler;
  SimNetwork network{scheduler, {}};
  SimHost peer_host{scheduler, {.name = "peer", .ip = "10.0.0.1"}};
  SimHost host{scheduler, {.name = "host", .ip = "10.0.0.2"}};
  SimTransport peer_transport{network, peer_host.loop()};
  SimTransport transport{network, host.loop()};
  Peer peer{scheduler, peer_transport};
  Owner owner;
};

TEST(Reconnector, ConnectsAndPassesRequests) {
  World world;
  world.peer.Listen();
  world.Start();
  world.scheduler.RunFor(milliseconds(50));
  EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up"));
  EXPECT_THAT(world.peer.roles, ElementsAre("node"));
  EXPECT_EQ(world.owner.link->peer(), "holder");
  EXPECT_EQ(world.owner.link->peer_incarnation(), 5u);
  const auto call = world.Send();
  world.scheduler.RunFor(milliseconds(10));
  EXPECT_EQ(call->replies, 1);
  EXPECT_TRUE(call->status.ok()) << call->status;
}

TEST(Reconnector, AnswersAtOnceWhileThereIsNoConnection) {
  World world;
  const auto before = world.Send();
  world.Start();
  const auto during = world.Send();
  world.scheduler.RunFor(milliseconds(1));
  EXPECT_EQ(before->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(during->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.owner.link->trouble().code(), absl::StatusCode::kUnavailable);
}

TEST(Reconnector, KeepsTryingUntilSomebodyListensAndLogsItOnce) {
  World world;
  const uint64_t warnings = LogCounts().warnings;
  world.Start();
  world.scheduler.RunFor(seconds(30));
  EXPECT_EQ(LogCounts().warnings, warnings + 1);
  world.peer.Listen();
  world.scheduler.RunFor(seconds(5));
  EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up"));
}

TEST(Reconnector, WaitsLongerAfterEveryFailureWithJitter) {
  World world;
  world.peer.verdict = absl::ResourceExhaustedError("too many connections");
  world.peer.Listen();
  world.Start();
  world.scheduler.RunFor(seconds(20));
  const std::vector<TimePoint>& tries = world.peer.accepted;
  ASSERT_GE(tries.size(), 8u);
  Duration backoff = milliseconds(100);
  bool jittered = false;
  for (size_t i = 1; i < tries.size(); ++i) {
    const Duration gap = tries[i] - tries[i - 1];
    EXPECT_GE(gap, backoff) << i;
    EXPECT_LE(gap, backoff + backoff / 2 + milliseconds(20)) << i;
    jittered |= gap > backoff + backoff / 10;
    backoff = std::min<Duration>(backoff * 2, seconds(2));
  }
  EXPECT_TRUE(jittered) << "retries of many processes must spread";
  EXPECT_TRUE(world.owner.log.empty());
}

TEST(Reconnector, TwoProcessesDoNotRetryInStep) {
  World one(1), other(2);
  for (World* world : {&one, &other}) {
    world->peer.verdict = absl::ResourceExhaustedError("too many connections");
    world->peer.Listen();
    world->Start();
    world->scheduler.RunFor(seconds(10));
  }
  EXPECT_NE(one.peer.accepted[3] - one.peer.accepted[2],
            other.peer.accepted[3] - other.peer.accepted[2]);
}

TEST(Reconnector, TellsOfALossOnceAndComesBack) {
  World world;
  world.peer.Listen();
  world.peer.answer = false;
  world.Start();
  world.scheduler.RunFor(milliseconds(50));
  const auto call = world.Send();
  world.scheduler.RunFor(milliseconds(5));
  const uint64_t warnings = LogCounts().warnings;
  world.peer.Close();
  world.scheduler.RunFor(milliseconds(20));
  EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up", "lost"));
  EXPECT_EQ(call->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(LogCounts().warnings, warnings + 1);
  world.scheduler.RunFor(seconds(1));
  EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up", "lost", "admit holder", "up"));
}

TEST(Reconnector, NoticesAPeerThatFallsSilent) {
  World world;
  world.peer.Listen();
  world.Start();
  world.scheduler.RunFor(milliseconds(50));
  world.peer_host.Pause();
  world.scheduler.RunFor(seconds(3));
  EXPECT_EQ(world.owner.Count("lost"), 1u);
  world.peer_host.Continue();
  world.scheduler.RunFor(seconds(5));
  EXPECT_EQ(world.owner.Count("up"), 2u);
}

TEST(Reconnector, LetsADrainingPeerFinishBeforeItCloses) {
  World world;
  world.peer.Listen();
  world.peer.answer = false;
  world.Start();
  world.scheduler.RunFor(milliseconds(50));
  const auto call = world.Send();
  world.scheduler.RunFor(milliseconds(5));
  const uint64_t warnings = LogCounts().warnings;
  world.peer_host.loop().Enter([&] { world.peer.channels[0]->SendGoodbye("restart"); });
  world.scheduler.RunFor(milliseconds(20));
  EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up", "draining"));
  EXPECT_EQ(world.Send()->replies, 0);
  world.peer_host.loop().Enter([&] {
    proto::StatReply reply;
    world.peer.channels[0]->Reply(world.peer.pending, absl::OkStatus(), &reply);
  });
  world.scheduler.RunFor(milliseconds(20));
  EXPECT_TRUE(call->status.ok()) << call->status;
  EXPECT_EQ(call->replies, 1);
  EXPECT_EQ(world.owner.calls.back()->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up", "draining", "lost"));
  EXPECT_EQ(LogCounts().warnings, warnings) << "a drain is no trouble";
  world.scheduler.RunFor(seconds(1));
  EXPECT_EQ(world.owner.Count("up"), 2u);
}

TEST(Reconnector, ClosesAndRetriesWhenTheOwnerRefusesThePeer) {
  World world;
  world.peer.Listen();
  world.owner.verdict = absl::FailedPreconditionError("not the one");
  world.Start();
  world.scheduler.RunFor(seconds(1));
  EXPECT_GE(world.peer.accepted.size(), 2u);
  EXPECT_EQ(world.owner.Count("up"), 0u);
  world.owner.verdict = absl::OkStatus();
  world.scheduler.RunFor(seconds(3));
  EXPECT_EQ(world.owner.Count("up"), 1u);
}

TEST(Reconnector, DropIsALossAtOnceAndABackoff) {
  World world;
  world.peer.Listen();
  world.peer.answer = false;
  world.Start();
  world.scheduler.RunFor(milliseconds(50));
  const auto call = world.Send();
  world.On([&] {
    world.owner.link->Drop(absl::DeadlineExceededError("no work done"));
    EXPECT_EQ(world.owner.log.back(), "lost");
    EXPECT_EQ(world.owner.link->trouble().message(), "no work done");
    world.owner.link->Drop(absl::DeadlineExceededError("again"));
  });
  world.scheduler.RunFor(milliseconds(80));
  EXPECT_EQ(call->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.peer.accepted.size(), 1u) << "before the backoff is over";
  world.scheduler.RunFor(seconds(1));
  EXPECT_EQ(world.owner.Count("up"), 2u);
}

TEST(Reconnector, WelcomeWithoutAnAnswerDoesNotResetTheBackoff) {
  const auto gap_after = [](bool answered) {
    World world;
    world.peer.Listen();
    world.owner.drop_when_up = !answered;
    world.Start();
    for (int i = 0; i < 5; ++i) {
      world.scheduler.RunFor(seconds(4));
      if (answered) {
        world.Send();
        world.scheduler.RunFor(milliseconds(10));
        world.peer.Close();
      }
    }
    world.scheduler.RunFor(seconds(4));
    const std::vector<TimePoint>& tries = world.peer.accepted;
    return answered ? world.scheduler.Now() - tries.back() : tries.back() - tries[tries.size() - 2];
  };
  EXPECT_GE(gap_after(false), seconds(2));
  EXPECT_GE(gap_after(true), seconds(4) - milliseconds(200)) << "it came back within the minimum";
}

TEST(Reconnector, MayBeStoppedInsideItsOwnCallbacks) {
  {
    World world;
    world.peer.Listen();
    world.owner.stop_when_up = true;
    world.owner.send_when_up = true;
    world.Start();
    world.scheduler.RunFor(seconds(2));
    EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up", "lost", "stopped"));
  }
  World world;
  world.peer.Listen();
  world.owner.stop_when_lost = true;
  world.Start();
  world.scheduler.RunFor(milliseconds(50));
  world.On([&] { world.owner.link->Drop(absl::UnavailableError("enough")); });
  world.scheduler.RunFor(seconds(2));
  EXPECT_THAT(world.owner.log, ElementsAre("admit holder", "up", "lost", "stopped"));
}

TEST(Reconnector, StopBeforeStartIsAnsweredToo) {
  World world;
  world.On([&] {
    world.owner.link->Stop();
    world.owner.link->Stop();
    EXPECT_TRUE(world.owner.log.empty()) << "inline";
  });
  world.scheduler.RunFor(milliseconds(1));
  EXPECT_THAT(world.owner.log, ElementsAre("stopped"));
}

// Stop after every number of events of a run with a loss, a drain and a reconnection in it: exactly
// one OnLinkStopped, one loss for each time up, one answer for each request (World checks them).
TEST(Reconnector, StopsCleanlyAtAnyMoment) {
  bool all = false;
  for (int steps = 0; !all; ++steps) {
    bool over = false;  // outlives the world, whose last events set it
    World world(7);
    world.owner.send_when_up = true;
    world.peer.answer = steps % 2 == 0;
    world.peer.Listen();
    world.scheduler.After(milliseconds(20), [&] { world.peer.Close(); });
    world.scheduler.After(milliseconds(400), [&] {
      world.peer_host.loop().Enter([&] {
        for (const auto& channel : world.peer.channels) {
          channel->SendGoodbye("drain");
        }
      });
    });
    world.scheduler.After(milliseconds(800), [&] { over = true; });
    world.Start();
    for (int i = 0; i < steps && !over; ++i) {
      world.scheduler.Step();
    }
    all = over;
  }
}

}  // namespace
}  // namespace tokura::net
