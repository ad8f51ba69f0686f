// Wrong bytes from a node: it is asked to check what it stores, within bounds, and nobody waits.

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client-lib/src/suspects.h"
#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr Duration kPatience = milliseconds(200);  // ClientOptions::progress_timeout

class ClientSuspectTest : public ClientTest {
 protected:
  ClientSuspectTest() { ExpectWarnings(); }

  // A node that sends wrong bytes of everything, and a client.
  FakeNode& StartWrongNode() {
    FakeNode& node = AddNode();
    StartClient();
    node.tamper = [](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
      bytes->at(bytes->size() - 9) ^= std::byte{1};
      return true;
    };
    return node;
  }
  double Said(const char* result) const {
    return Metric("tokura_client_suspects_total", {{"result", result}});
  }
};

TEST_F(ClientSuspectTest, DamagedBlockGoesAndCanBePutAgain) {
  FakeNode& node = StartWrongNode();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  const Match match = PutAndLookup(source, chain);
  node.damaged = {chain.keys()[1]};
  const BlockKey damaged = chain.keys()[1];
  node.tamper = [damaged](const BlockKey& key, PartId, std::vector<std::byte>* bytes) {
    bytes->back() ^= key == damaged ? std::byte{1} : std::byte{0};
    return true;
  };
  const GetResult got = Get(match, target.View());
  EXPECT_TRUE(got.blocks[0].ok());
  EXPECT_EQ(got.blocks[1].code(), absl::StatusCode::kDataLoss);
  RunUntil([&] { return Said("removed") == 1; });
  EXPECT_THAT(node.suspects, ElementsAre(damaged)) << "once, for all of its parts";
  EXPECT_EQ(Lookup(chain).blocks(), 1u);
  node.tamper = nullptr;
  EXPECT_EQ(Put(chain, source.View()).stored(), 2u);
  EXPECT_EQ(Get(Lookup(chain), target.View()).prefix_ok(), 2u);
  EXPECT_EQ(target.values(), source.values());
  EXPECT_EQ(node.requests[net::Op::kRemove], 1);
}

TEST_F(ClientSuspectTest, BlockThatIsSoundStays) {
  FakeNode& node = StartWrongNode();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  EXPECT_FALSE(Get(match, target.View()).blocks[0].ok());
  RunUntil([&] { return Said("sound") == 1; });
  node.tamper = nullptr;
  EXPECT_TRUE(Get(match, target.View()).blocks[0].ok());
  EXPECT_EQ(node.suspects.size(), 1u) << "nothing wrong, nothing asked";
}

TEST_F(ClientSuspectTest, AByteAnywhereIsReason) {
  FakeNode& node = StartWrongNode();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  const size_t size = node.blocks.begin()->second.parts.begin()->second.size();
  // Of the format's revision, too, which is a status of its own.
  for (size_t at = 0; at < size; at += at < 64 ? 1 : size / 97) {
    node.tamper = [at](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
      bytes->at(at) ^= std::byte{0x10};
      return true;
    };
    const size_t asked = node.suspects.size();
    ASSERT_FALSE(Get(match, target.View()).blocks[0].ok()) << at;
    RunUntil([&] { return node.suspects.size() > asked; }, seconds(1));
    ASSERT_EQ(node.suspects.size(), asked + 1) << at;
  }
}

TEST_F(ClientSuspectTest, OnceAtATimeAndNobodyWaits) {
  FakeNode& node = StartWrongNode();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  node.silent = {net::Op::kRemove};
  const TimePoint start = Now();
  EXPECT_FALSE(Get(match, target.View()).blocks[0].ok());
  EXPECT_FALSE(Get(match, target.View()).blocks[0].ok());
  EXPECT_LT(Now() - start, milliseconds(50));
  EXPECT_EQ(node.requests[net::Op::kRemove], 1);
  RunUntil([&] { return Said("unanswered") == 1; });
  node.silent = {};
  EXPECT_FALSE(Get(match, target.View()).blocks[0].ok());
  RunUntil([&] { return Said("sound") == 1; });
  EXPECT_EQ(node.requests[net::Op::kRemove], 2);
  // An answer that is none, and one that is not OK.
  node.refuse[net::Op::kRemove] = absl::InvalidArgumentError("keys has 0 bytes");
  EXPECT_FALSE(Get(match, target.View()).blocks[0].ok());
  RunUntil([&] { return Said("unanswered") == 2; });
}

TEST_F(ClientSuspectTest, OneRequestAtATimeForAllThatIsWrong) {
  constexpr uint32_t kBlocks = 40;
  FakeNode& node = StartWrongNode();
  const TokenChain chain = MakeChain(*ns_, kBlocks);
  EngineMemory source(*ns_, kBlocks), target(*ns_, kBlocks);
  const Match match = PutAndLookup(source, chain);
  ASSERT_EQ(match.blocks(), kBlocks);
  const std::vector<BlockKey> keys(chain.keys().begin(), chain.keys().end());
  node.damaged = {keys.begin(), keys.end()};
  node.silent = {net::Op::kRemove};  // What comes meanwhile waits for the first one's end.
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 0u);
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 0u);
  EXPECT_EQ(node.requests[net::Op::kRemove], 1);
  node.silent = {};
  RunUntil([&] { return Said("removed") == kBlocks - 1; });
  EXPECT_EQ(Said("unanswered"), 1) << "of the silent request";
  EXPECT_EQ(node.requests[net::Op::kRemove], 2);
  EXPECT_EQ(node.suspects.size(), kBlocks - 1) << "each once";
  EXPECT_EQ(node.blocks.size(), 1u);
}

TEST_F(ClientSuspectTest, ARequestNamesAsManyBlocksAsTheNodeTakes) {
  constexpr uint32_t kBlocks = 10;
  FakeNode& node = AddNode({.blocks_max = 3});
  StartClient();
  const TokenChain chain = MakeChain(*ns_, kBlocks);
  EngineMemory source(*ns_, kBlocks), target(*ns_, kBlocks);
  const Match match = PutAndLookup(source, chain);
  node.tamper = [](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
    bytes->back() ^= std::byte{1};
    return true;
  };
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 0u);
  RunUntil([&] { return Said("sound") == kBlocks; });
  EXPECT_GE(node.requests[net::Op::kRemove], 4);
}

TEST_F(ClientSuspectTest, BoundedHoweverManyBlocksAreWrong) {
  constexpr uint32_t kBlocks = Suspects::kBlocksMax + 20;
  FakeNode& node = StartWrongNode();
  const TokenChain chain = MakeChain(*ns_, kBlocks);
  EngineMemory source(*ns_, kBlocks), target(*ns_, kBlocks);
  const Match match = PutAndLookup(source, chain);
  ASSERT_EQ(match.blocks(), kBlocks);
  node.silent = {net::Op::kRemove};
  const TimePoint start = Now();
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 0u);
  ASSERT_LT(Now() - start, kPatience) << "no request has run out of time";
  EXPECT_EQ(node.requests[net::Op::kRemove], 1);
  EXPECT_EQ(Said("unanswered"), 20);
  RunUntil([&] { return Said("unanswered") == kBlocks; });
}

TEST_F(ClientSuspectTest, ClientClosesWhileANodeChecks) {
  FakeNode& node = StartWrongNode();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  node.silent = {net::Op::kRemove};
  EXPECT_FALSE(Get(match, target.View()).blocks[0].ok());
  StopClient();
  EXPECT_EQ(Said("unanswered"), 1);
}

}  // namespace
}  // namespace tokura
