// Node and client processes killed, stopped and continued under load.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "tests/integration/node_fixture.h"

namespace tokura::integration {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kBlocks = 64;

Duration Since(TimePoint start) {
  return SystemClock().Now() - start;
}

TEST_F(NodeTest, KilledNodeIsAMissAndTheViewStaysStill) {
  auto node = std::make_unique<NodeUnderTest>();
  auto client = Connect({node->data()});
  KvMemory source(kBlocks), target(kBlocks);
  source.Fill(1);
  target.Clear();
  ASSERT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
  const auto space = *client->OpenNamespace(TestSpace());
  const Match match = Held(*client, 1, kBlocks);
  auto get = client->StartGet(space, match, target.View());
  node->process().Signal(SIGKILL);
  const TimePoint start = SystemClock().Now();
  const size_t got = get->Wait().prefix_ok();
  EXPECT_LT(Since(start), Scaled(seconds(5)));
  EXPECT_TRUE(target.SameData(source, 0, static_cast<uint32_t>(got)));
  const uint32_t checksum = target.Checksum();
  EXPECT_TRUE(node->process().WaitForEnd().has_value());
  EXPECT_EQ(Get(*client, 1, source, kBlocks, milliseconds(300)), 0u);
  EXPECT_EQ(target.Checksum(), checksum);
  EXPECT_TRUE(target.CanariesIntact());
}

TEST_F(NodeTest, StoppedNodeEndsGetsByTheirDeadlineAndTheViewStaysStill) {
  NodeUnderTest node;
  auto client = Connect({node.data()});
  KvMemory source(kBlocks), target(kBlocks);
  source.Fill(1);
  target.Clear();
  ASSERT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
  const auto space = *client->OpenNamespace(TestSpace());
  const Match match = Held(*client, 1, kBlocks);
  GetOptions options;
  options.deadline = milliseconds(300);
  auto get = client->StartGet(space, match, target.View(), options);
  node.process().Stop();
  const TimePoint start = SystemClock().Now();
  const size_t got = get->Wait().prefix_ok();
  EXPECT_LT(Since(start), Scaled(seconds(5)));
  EXPECT_TRUE(target.SameData(source, 0, static_cast<uint32_t>(got)));
  const uint32_t checksum = target.Checksum();
  node.process().Signal(SIGCONT);
  // When the node serves again, whatever it had still to send has long been sent.
  KvMemory again(kBlocks);
  EXPECT_TRUE(WaitFor([&] { return Get(*client, 1, again, kBlocks, seconds(1)) == kBlocks; }));
  EXPECT_TRUE(again.SameData(source, 0, kBlocks));
  EXPECT_EQ(target.Checksum(), checksum) << "the view changed after the get had returned";
  EXPECT_TRUE(target.CanariesIntact());
}

TEST_F(NodeTest, StoppedNodeReleasesTheSourceOfAPutByItsDeadline) {
  NodeUnderTest node;
  auto client = Connect({node.data()});
  auto source = std::make_unique<KvMemory>(kBlocks);
  source->Fill(1);
  const auto space = *client->OpenNamespace(TestSpace());
  PutOptions options;
  options.deadline = milliseconds(300);
  node.process().Stop();
  auto put = client->StartPut(space, MakeChain(*space, 1, kBlocks), source->View(), options);
  put->WaitReleased();
  source->Forbid();  // Every read from here on is a crash.
  put->Wait();
  node.process().Signal(SIGCONT);
  KvMemory other(kBlocks), target(kBlocks);
  other.Fill(2);
  EXPECT_TRUE(WaitFor([&] { return Put(*client, 2, other, kBlocks, seconds(1)) == kBlocks; }));
  EXPECT_EQ(Get(*client, 2, target, kBlocks), kBlocks);
  EXPECT_TRUE(target.SameData(other, 0, kBlocks));
}

TEST_F(NodeTest, RestartedNodeIsUsedAgain) {
  NodeUnderTest first;
  auto client = Connect({first.data()});
  KvMemory source(4);
  source.Fill(1);
  ASSERT_EQ(Put(*client, 1, source, 4), 4u);
  first.process().Signal(SIGKILL);
  ASSERT_TRUE(first.process().WaitForEnd().has_value());
  NodeUnderTest second({"--listen", first.data()});
  KvMemory target(4);
  EXPECT_TRUE(WaitFor([&] { return Put(*client, 1, source, 4, seconds(1)) == 4; }));
  EXPECT_EQ(Get(*client, 1, target, 4), 4u);
  EXPECT_TRUE(target.SameData(source, 0, 4));
}

TEST_F(NodeTest, ContinuedZombieIsFencedByItsLowerIncarnation) {
  NodeUnderTest zombie({"--name", "twin"});
  auto client = Connect({zombie.data()});
  KvMemory stale(4), fresh(4), target(4);
  stale.Fill(1);
  fresh.Fill(2);
  ASSERT_EQ(Put(*client, 1, stale, 4), 4u);
  zombie.process().Stop();
  NodeUnderTest replacement({"--name", "twin"});
  ASSERT_TRUE(client->SetNodes({replacement.data()}).ok());
  ASSERT_TRUE(WaitFor([&] { return Put(*client, 2, fresh, 4, seconds(1)) == 4; }));
  zombie.process().Signal(SIGCONT);
  ASSERT_TRUE(client->SetNodes({zombie.data()}).ok());
  absl::Status ready;
  EXPECT_TRUE(WaitFor([&] {
    ready = client->WaitReady(milliseconds(100));
    EXPECT_FALSE(ready.ok()) << "the zombie is used";
    return ready.ok() || absl::StrContains(ready.message(), "fenced");
  })) << ready;
  EXPECT_EQ(Get(*client, 1, target, 4, milliseconds(300)), 0u);
  ASSERT_TRUE(client->SetNodes({replacement.data()}).ok());
  EXPECT_TRUE(WaitFor([&] { return Get(*client, 2, target, 4, seconds(1)) == 4; }));
  EXPECT_TRUE(target.SameData(fresh, 0, 4));
}

TEST_F(NodeTest, KilledWriterLeavesNothingBehind) {
  NodeUnderTest node;
  auto client = Connect({node.data()});
  ChildProcess writer({TOKURA_CLIENT_CHILD, node.data(), "puts"});
  ASSERT_TRUE(WaitFor(
      [&] { return node.Metric("tokura_node_put_parts_total{result=\"stored\"}") > kBlocks; }));
  writer.Signal(SIGKILL);
  EXPECT_TRUE(WaitFor([&] {
    return node.Metric("tokura_transport_endpoints{state=\"open\"}") == 1 &&
           node.Metric("tokura_tier_reserved_bytes{tier=\"host\"}") == 0 &&
           node.Metric("tokura_tier_incomplete_blocks{tier=\"host\"}") == 0 &&
           node.Metric("tokura_node_inflight_requests") == 0;
  }));
  KvMemory source(kBlocks);
  source.Fill(1);
  EXPECT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
}

TEST_F(NodeTest, StoppedWriterDoesNotStopOthers) {
  NodeUnderTest node;
  auto client = Connect({node.data()});
  ChildProcess writer({TOKURA_CLIENT_CHILD, node.data(), "puts"});
  ASSERT_TRUE(WaitFor(
      [&] { return node.Metric("tokura_node_put_parts_total{result=\"stored\"}") > kBlocks; }));
  writer.Stop();
  KvMemory source(kBlocks);
  source.Fill(1);
  EXPECT_EQ(Put(*client, 1, source, kBlocks), kBlocks);
  EXPECT_TRUE(WaitFor([&] {
    return node.Metric("tokura_transport_endpoints{state=\"open\"}") == 1 &&
           node.Metric("tokura_tier_reserved_bytes{tier=\"host\"}") == 0;
  })) << "the stopped writer keeps its reservations";
}

TEST_F(NodeTest, StoppedHolderOfAllLeasesDelaysOthersByLeaseAgeAtMost) {
  // Silence alone must not be what ends it: only the age of the leases.
  NodeUnderTest node({"--lease-age", "3s", "--heartbeat", "30s", "--dead-after", "60s"});
  auto client = Connect({node.data()});
  ChildProcess holder({TOKURA_CLIENT_CHILD, node.data(), "leases"});
  KvMemory source(kBlocks);
  source.Fill(1);
  uint64_t seed = 100;
  ASSERT_TRUE(WaitFor([&] { return Put(*client, ++seed, source, kBlocks) == 0; }))
      << "the arena is never full of pinned blocks";
  holder.Stop();
  const TimePoint start = SystemClock().Now();
  // A chain of its own: nothing of it may be held already.
  KvMemory other(kBlocks);
  other.Fill(2);
  EXPECT_TRUE(WaitFor([&] { return Put(*client, 2, other, kBlocks) == kBlocks; }));
  EXPECT_LT(Since(start), Scaled(seconds(5)));
}

TEST_F(NodeTest, FullPoolRefusesOrEvictsAndMemoryStaysFlat) {
  NodeUnderTest node;  // 32 MiB
  auto client = Connect({node.data()});
  KvMemory source(kBlocks);
  const uint64_t rounds_to_fill = (uint64_t{40} << 20) / (source.block_bytes() * kBlocks) + 1;
  uint64_t seed = 0;
  const auto put_rounds = [&](uint64_t rounds) {
    for (uint64_t i = 0; i < rounds; ++i) {
      source.Fill(++seed);
      Put(*client, seed, source, kBlocks);
    }
  };
  put_rounds(rounds_to_fill);
  const uint64_t full = node.process().ResidentBytes();
  put_rounds(3 * rounds_to_fill);
  EXPECT_LT(node.process().ResidentBytes(), full + (uint64_t{8} << 20) + kKeptBySanitizerBytes);
  int status = 0;
  node.Http("/healthz", &status);
  EXPECT_EQ(status, 200);
  KvMemory target(kBlocks);
  EXPECT_EQ(Put(*client, seed, source, kBlocks), kBlocks);
  EXPECT_EQ(Get(*client, seed, target, kBlocks), kBlocks);
  EXPECT_TRUE(target.SameData(source, 0, kBlocks));
}

}  // namespace
}  // namespace tokura::integration
