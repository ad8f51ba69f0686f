// Bits that flip on the wire between a node and its clients: in payloads, and in frames. Nothing
// wrong may come of any of them, and the flips must have happened.

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <prometheus/registry.h>
#include <sys/wait.h>

#include "common/check.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/soak_under_test.h"
#include "tests/integration/wire_flips.h"
#include "tests/integration/writers.h"

namespace tokura::integration {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr uint32_t kBlocks = kOnceBlocks;
constexpr uint64_t kPayloadBits = uint64_t{8} * 33'000;  // a little less than a part of TestSpace

// Places in a payload: closely in the part's header, record and table, then through its layers.
std::vector<uint64_t> PayloadBits() {
  std::vector<uint64_t> bits;
  for (uint64_t byte = 0; byte < 1024; byte += 24) {
    bits.push_back(8 * byte + byte / 8 % 8);
  }
  for (uint64_t bit = 8 * 1024; bit < kPayloadBits; bit += kPayloadBits / 24) {
    bits.push_back(bit);
  }
  return bits;
}

// Blocks that are DATA_LOSS; the others must be OK.
size_t CountLost(const std::vector<absl::Status>& blocks) {
  size_t lost = 0;
  for (const absl::Status& status : blocks) {
    lost += absl::IsDataLoss(status) ? 1 : 0;
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
  }
  return lost;
}

double CounterValue(const prometheus::Registry& registry, const std::string& name) {
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name == name) {
      return family.metric.front().counter.value;
    }
  }
  return -1;
}

double RejectedParts(const NodeUnderTest& node) {
  return node.Metric("tokura_node_checksum_failures_total{where=\"received\"}");
}

double BrokenConnections(const NodeUnderTest& node) {
  return node.Metric("tokura_node_connections_ended_total{reason=\"violation\"}");
}

class WireDamageTest : public NodeTest {
 protected:
  // A node with blocks of the chain, whose sends can be damaged, and a client of it.
  void StartDamagedNode(const std::vector<std::string>& flags = {}) {
    node_ = std::make_unique<NodeUnderTest>(flags, NodeLogs::kErrors, "", node_flips_.launcher());
    registry_ = std::make_shared<prometheus::Registry>();
    auto client = Client::Create(Options({node_->data()}), registry_);
    TOKURA_CHECK(client.ok());
    client_ = std::move(*client);
    ASSERT_TRUE(client_->WaitReady(seconds(20)).ok());
    space_ = *client_->OpenNamespace(TestSpace());
    source_.Fill(kOnceChain);
    ASSERT_EQ(Put(*client_, kOnceChain, source_, kBlocks), kBlocks);
  }

  TokenChain Chain() const { return MakeChain(*space_, kOnceChain, kBlocks); }

  // Statuses of a get of `match` into fresh memory, of which every block that is OK is right.
  std::vector<absl::Status> GetVerified(const Match& match) {
    target_.Clear();
    GetOptions options;
    options.deadline = Scaled(seconds(10));
    GetResult result = client_->Get(space_, match, target_.View(), options);
    for (uint32_t i = 0; i < result.blocks.size(); ++i) {
      EXPECT_TRUE(!result.blocks[i].ok() || target_.SameData(source_, i, 1))
          << "wrong bytes in block " << i;
    }
    EXPECT_TRUE(target_.CanariesIntact());
    return std::move(result.blocks);
  }

  void RemoveAll() {
    const TokenChain chain = Chain();
    client_->Remove(space_, {chain.keys().begin(), chain.keys().end()});
  }

  bool AllHit() {
    const auto match = client_->Lookup(space_, Chain());
    if (!match.ok() || match->blocks() != kBlocks) {
      return false;
    }
    const std::vector<absl::Status> blocks = GetVerified(*match);
    return std::all_of(blocks.begin(), blocks.end(), [](const auto& s) { return s.ok(); });
  }

  // The statuses' codes that a client_child printed which put a chain with these words before it.
  static std::vector<int> PutByChild(const std::string& node, std::vector<std::string> launcher) {
    launcher.insert(launcher.end(), {TOKURA_CLIENT_CHILD, node, "put"});
    const std::string out_path = FreshPath(".out");
    ChildProcess child(launcher, {out_path, ""});
    const auto ended = child.WaitForEnd(seconds(60));
    EXPECT_TRUE(ended && WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0);
    std::ifstream out(out_path);
    std::vector<int> codes;
    for (int code = 0; out >> code;) {
      codes.push_back(code);
    }
    return codes;
  }

  WireFlips node_flips_;
  std::unique_ptr<NodeUnderTest> node_;
  std::shared_ptr<prometheus::Registry> registry_;  // owners: the client and this
  std::unique_ptr<Client> client_;
  NamespaceRef space_;
  KvMemory source_{kBlocks};
  KvMemory target_{kBlocks};
};

TEST_F(WireDamageTest, FlippedBitInAPayloadToTheClientIsALossOfThatBlock) {
  StartDamagedNode();
  const Match match = Held(*client_, kOnceChain, kBlocks);
  ASSERT_TRUE(AllHit()) << "without a flip";
  uint64_t rounds = 0;
  for (const uint64_t bit : PayloadBits()) {
    node_flips_.Arm({WireFlipTarget::kPayload, bit, static_cast<uint32_t>(rounds % kBlocks)});
    const std::vector<absl::Status> blocks = GetVerified(match);
    ++rounds;
    ASSERT_EQ(node_flips_.flips(), rounds) << "no bit flipped";
    EXPECT_EQ(CountLost(blocks), 1u) << "bit " << bit;
  }
  EXPECT_EQ(CounterValue(*registry_, "tokura_client_data_loss_total"), rounds);
  EXPECT_TRUE(AllHit()) << "what the node holds was never damaged";
  EXPECT_TRUE(WaitFor([&] {
    return node_->Metric("tokura_node_suspect_blocks_total{result=\"failed_precondition\"}") > 0;
  })) << "as the node found out itself";
  EXPECT_EQ(node_->Metric("tokura_node_suspect_blocks_total{result=\"ok\"}"), 0);
}

TEST_F(WireDamageTest, FlippedBitInAPayloadToTheNodeIsAPutRefused) {
  StartDamagedNode();
  WireFlips flips;
  RemoveAll();
  const std::vector<int> undamaged = PutByChild(node_->data(), flips.launcher());
  EXPECT_EQ(undamaged, std::vector<int>(kBlocks, 0)) << "without a flip";
  EXPECT_EQ(RejectedParts(*node_), 0);
  EXPECT_TRUE(AllHit());
  uint64_t rounds = 0;
  for (uint64_t bit = 3; bit < kPayloadBits; bit += kPayloadBits / 5) {
    RemoveAll();
    flips.Arm({WireFlipTarget::kPayload, bit, static_cast<uint32_t>(rounds)});
    const std::vector<int> codes = PutByChild(node_->data(), flips.launcher());
    ++rounds;
    ASSERT_EQ(flips.flips(), rounds) << "no bit flipped";
    ASSERT_EQ(codes.size(), kBlocks);
    EXPECT_EQ(std::count(codes.begin(), codes.end(), 0), kBlocks - 1) << "bit " << bit;
    const auto refused = std::find_if(codes.begin(), codes.end(), [](int code) { return code; });
    ASSERT_NE(refused, codes.end());
    EXPECT_EQ(*refused, static_cast<int>(absl::StatusCode::kDataLoss));
    EXPECT_EQ(RejectedParts(*node_), rounds);
    const auto held = client_->Lookup(space_, Chain());
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(held->blocks(), refused - codes.begin()) << "the prefix ends at the damaged block";
    EXPECT_EQ(Put(*client_, kOnceChain, source_, kBlocks), kBlocks);
    EXPECT_TRUE(AllHit()) << "of what the child stored, or of what replaces it";
  }
}

TEST_F(WireDamageTest, FlippedBitThatTheNodeDoesNotLookForIsFoundByTheReader) {
  StartDamagedNode({"--verify-on-put=false"});
  RemoveAll();
  WireFlips flips;
  flips.Arm({WireFlipTarget::kPayload, kPayloadBits / 2});
  EXPECT_EQ(PutByChild(node_->data(), flips.launcher()), std::vector<int>(kBlocks, 0));
  ASSERT_EQ(flips.flips(), 1u) << "no bit flipped";
  const std::vector<absl::Status> blocks = GetVerified(Held(*client_, kOnceChain, kBlocks));
  EXPECT_EQ(CountLost(blocks), 1u);
  // Who has the node look makes room for the block.
  EXPECT_TRUE(WaitFor(
      [&] { return node_->Metric("tokura_node_suspect_blocks_total{result=\"ok\"}") == 1; }));
  EXPECT_EQ(Put(*client_, kOnceChain, source_, kBlocks), kBlocks);
  EXPECT_TRUE(AllHit());
}

TEST_F(WireDamageTest, FlippedBitInAFrameToTheClientIsAMissOrAReconnect) {
  StartDamagedNode();
  // A lookup's reply, eight offers, a get's reply, in which a different bit flips each time.
  constexpr uint32_t kFrames = 10;
  constexpr uint64_t kStep = 173;
  for (uint64_t round = 0; round < 2 * kFrames; ++round) {
    node_flips_.Arm(
        {WireFlipTarget::kFrame, round * kStep, static_cast<uint32_t>(round % kFrames)});
    const TimePoint start = SystemClock().Now();
    LookupOptions lookup;
    lookup.deadline = Scaled(seconds(1));
    const auto match = client_->Lookup(space_, Chain(), lookup);
    if (match.ok() && match->blocks() > 0) {
      GetVerified(*match);
    }
    EXPECT_LT(SystemClock().Now() - start, Scaled(seconds(5))) << "the client hangs";
    // Heartbeats are frames too, if nothing else was left of this round's.
    EXPECT_TRUE(WaitFor([&] { return node_flips_.flips() == round + 1; })) << "no bit flipped";
    EXPECT_TRUE(WaitFor([&] { return AllHit(); })) << "no hits again after round " << round;
    EXPECT_EQ(CounterValue(*registry_, "tokura_client_links_lost_total"), round + 1)
        << "the client believed the frame";
  }
}

TEST_F(WireDamageTest, FlippedBitInAControlMessageIsAReconnect) {
  StartDamagedNode();
  uint64_t rounds = 0;
  for (uint64_t bit = 0; bit < 128; bit += 19) {
    client_.reset();
    // In the first that a client hears: that its connection stands.
    node_flips_.Arm({WireFlipTarget::kControl, bit});
    registry_ = std::make_shared<prometheus::Registry>();
    auto client = Client::Create(Options({node_->data()}), registry_);
    TOKURA_CHECK(client.ok());
    client_ = std::move(*client);
    EXPECT_TRUE(client_->WaitReady(seconds(20)).ok());
    ++rounds;
    ASSERT_EQ(node_flips_.flips(), rounds) << "no bit flipped";
    EXPECT_TRUE(AllHit()) << "bit " << bit;
    EXPECT_EQ(node_->Metric("tokura_transport_errors_total{status=\"unavailable\"}"), rounds)
        << "the client believed the message";
  }
}

TEST_F(WireDamageTest, SoakFindsNothingWrongWhileBitsFlipBothWays) {
  constexpr uint64_t kFlips = 8;  // of each target, each way
  WireFlips client_flips;
  NodeUnderTest node({}, NodeLogs::kErrors, "", node_flips_.launcher());
  SoakUnderTest soak({"--node", node.data(), "--threads", "4", "--chains", "16"},
                     client_flips.launcher());
  const auto hits = [&] {
    return node.Metric("tokura_node_requests_total{op=\"get\",result=\"ok\"}");
  };
  for (uint64_t i = 0; i < 4 * kFlips; ++i) {
    const double before = hits();
    ASSERT_TRUE(WaitFor([&] { return hits() > before; })) << "no hits after " << i << " flips";
    WireFlips& flips = i % 2 == 0 ? node_flips_ : client_flips;
    const uint64_t flipped = flips.flips();
    flips.Arm({i / 2 % 2 == 0 ? WireFlipTarget::kPayload : WireFlipTarget::kFrame, i * 997,
               static_cast<uint32_t>(i % 3)});
    ASSERT_TRUE(WaitFor([&] { return flips.flips() == flipped + 1; })) << "no bit flipped";
  }
  const json report = soak.End();
  EXPECT_GT(report["status"].value("DATA_LOSS", 0), 0) << report.dump();
  EXPECT_EQ(RejectedParts(node), kFlips);
  EXPECT_EQ(BrokenConnections(node), kFlips);
}

}  // namespace
}  // namespace tokura::integration
