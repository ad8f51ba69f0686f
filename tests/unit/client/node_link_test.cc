// The connection to one address by itself: what its owner is told, and how often.

#include "client-lib/src/node_link.h"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/part.h"
#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Owner final : public NodeLink::Owner {
 public:
  absl::Status AdmitNode(NodeLink& link, const proto::Welcome&) override {
    if (on_admit) {
      on_admit(link);
    }
    return absl::OkStatus();
  }
  uint64_t FencedBelow(const std::string&) const override { return 0; }
  void OnLinkUp(NodeLink&) override { ++ups; }
  void OnLinkDraining(NodeLink&, const absl::Status&) override { ++drains; }
  void OnLinkLost(NodeLink&, const absl::Status&) override { ++losses; }
  void OnLinkStopped(NodeLink&) override { ++stops; }
  void OnLinkFailed(NodeLink& link) override {
    ++failures;
    if (on_failed) {
      on_failed(link);
    }
  }

  std::function<void(NodeLink&)> on_admit;
  std::function<void(NodeLink&)> on_failed;
  int ups = 0, drains = 0, losses = 0, stops = 0, failures = 0;
};

class NodeLinkTest : public ClientTest {
 protected:
  NodeLinkTest() { ExpectWarnings(); }
  std::shared_ptr<NodeLink> Make(const std::string& address) {
    NodeLink::Options options;
    options.address = *net::Address::Parse(address);
    const std::array<std::byte, 16> instance{};
    options.channel.hello = net::MakeHello(transport_, "client", "test", instance);
    options.channel.hello.set_format_version(kernels::FormatVersionString());
    return std::make_shared<NodeLink>(transport_, metrics_, std::move(options), owner_);
  }
  void Stop(NodeLink& link) {
    OnLoop([&] { link.Stop(); });
    RunUntil([&] { return owner_.stops > 0; }, seconds(2));
    RunFor(seconds(1));
    EXPECT_EQ(owner_.stops, 1);
  }

  ClientMetrics metrics_{registry_};
  Owner owner_;
};

TEST_F(NodeLinkTest, IsBeingMetUntilTheFirstAttemptSucceeds) {
  FakeNode& node = AddNode();
  const auto link = Make(node.address());
  OnLoop([&] { link->Start(); });
  EXPECT_TRUE(link->meeting());
  RunUntil([&] { return owner_.ups == 1; }, seconds(1));
  EXPECT_FALSE(link->meeting());
  node.Goodbye();
  RunUntil([&] { return owner_.losses == 1; }, seconds(1));
  EXPECT_EQ(owner_.drains, 1);
  EXPECT_EQ(owner_.failures, 0);
  Stop(*link);
}

TEST_F(NodeLinkTest, TellsOfTheFirstFailureOnly) {
  const auto link = Make("10.9.9.9:7000");
  OnLoop([&] { link->Start(); });
  RunFor(seconds(10));
  EXPECT_EQ(owner_.failures, 1);
  EXPECT_FALSE(link->meeting());
  EXPECT_EQ(owner_.losses, 0);
  Stop(*link);
}

TEST_F(NodeLinkTest, MeetsAgainWithoutWaiting) {
  const auto link = Make("10.0.0.1:7000");
  OnLoop([&] { link->MeetAgain(); });
  OnLoop([&] { link->Start(); });
  RunUntil([&] { return owner_.failures == 1; }, seconds(5));
  RunFor(seconds(10));
  const FakeNode& node = AddNode();
  OnLoop([&] { link->MeetAgain(); });
  EXPECT_TRUE(link->meeting());
  OnLoop([&] { link->MeetAgain(); });
  RunUntil([&] { return owner_.ups == 1; }, milliseconds(5));
  OnLoop([&] { link->MeetAgain(); });
  EXPECT_FALSE(link->meeting());
  RunFor(seconds(1));
  EXPECT_EQ(node.hellos.size(), 1u);
  Stop(*link);
  OnLoop([&] { link->MeetAgain(); });
  RunFor(seconds(1));
  EXPECT_EQ(node.hellos.size(), 1u);
}

TEST_F(NodeLinkTest, StoppedRightAfterTheConnectionEndedItTellsSoOnce) {
  const auto link = Make("10.9.9.9:7000");
  owner_.on_failed = [](NodeLink& failed) { failed.Stop(); };
  OnLoop([&] { link->Start(); });
  RunUntil([&] { return owner_.stops > 0; }, seconds(5));
  RunFor(seconds(5));
  EXPECT_EQ(owner_.stops, 1);
}

TEST_F(NodeLinkTest, DroppedBeforeItWasAnnouncedItIsNotLost) {
  FakeNode& node = AddNode();
  const auto link = Make(node.address());
  bool dropped = false;
  owner_.on_admit = [&](NodeLink& admitted) {
    if (!std::exchange(dropped, true)) {
      host_.loop().Post([&admitted] { admitted.Drop(absl::UnavailableError("superseded")); });
    }
  };
  OnLoop([&] { link->Start(); });
  RunUntil([&] { return dropped; }, seconds(1));
  RunFor(milliseconds(50));
  EXPECT_EQ(owner_.ups, 0);
  EXPECT_EQ(owner_.losses, 0);
  RunUntil([&] { return owner_.ups == 1; }, seconds(5));
  Stop(*link);
  EXPECT_EQ(owner_.losses, 1);
}

TEST_F(NodeLinkTest, StoppedBeforeItStartsItNeverConnects) {
  FakeNode& node = AddNode();
  const auto link = Make(node.address());
  OnLoop([&] {
    link->Stop();
    link->Start();
  });
  RunFor(seconds(2));
  EXPECT_EQ(owner_.stops, 1);
  EXPECT_TRUE(node.hellos.empty());
}

TEST_F(NodeLinkTest, StoppedWhileItIsAdmittedItEnds) {
  FakeNode& node = AddNode();
  const auto link = Make(node.address());
  owner_.on_admit = [](NodeLink& admitted) { admitted.Stop(); };
  OnLoop([&] { link->Start(); });
  RunUntil([&] { return owner_.stops > 0; }, seconds(5));
  RunFor(seconds(1));
  EXPECT_EQ(owner_.stops, 1);
  EXPECT_EQ(owner_.ups, 0);
  RunUntil([&] { return node.open_channels == 0; }, seconds(1));
}

}  // namespace
}  // namespace tokura
