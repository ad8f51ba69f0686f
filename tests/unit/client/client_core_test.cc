// The client's operations against a well-behaved node: what comes back is what was put.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClientCoreTest : public ClientTest {};

TEST_F(ClientCoreTest, GetReturnsWhatWasPut) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 5);
  EngineMemory source(*ns_, 5), target(*ns_, 5);
  source.Randomize(1);
  const PutResult put = Put(chain, source.View());
  EXPECT_EQ(put.stored(), 5u);
  EXPECT_GT(put.bytes_moved, put.bytes_logical);
  const Match match = Lookup(chain);
  ASSERT_EQ(match.blocks(), 5u);
  EXPECT_EQ(match.HolderOf(0)->node, "node-0");
  EXPECT_EQ(match.tokens(), 80u);
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.prefix_ok(), 5u);
  EXPECT_EQ(got.bytes_logical, put.bytes_logical);
  EXPECT_EQ(got.codecs.front(), "raw");
  EXPECT_EQ(source.values(), target.values());
}

TEST_F(ClientCoreTest, ResultsSayHowLongTheWireTook) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3), target(*ns_, 3);
  const TimePoint before_put = Now();
  const PutResult put = Put(chain, source.View());
  const TimePoint before_get = Now();
  EXPECT_GT(put.timings.wire, Duration::zero());
  EXPECT_LE(put.timings.wire, before_get - before_put);
  const GetResult got = Get(Lookup(chain), target.View());
  EXPECT_GT(got.timings.wire, Duration::zero());
  const Match nothing = Lookup(MakeChain(*ns_, 3, 77));
  EXPECT_EQ(Get(nothing, target.View()).timings.wire, Duration::zero());
}

// So that they leave the thread that receives, where others are free.
TEST_F(ClientCoreTest, JobsOfALargeOperationAreAStream) {
  AddNode();
  StartClient();
  const auto added = [this](Job::Load load) { return host_.pool().added(load); };
  const auto move = [this](uint32_t blocks, uint32_t salt) {
    const TokenChain chain = MakeChain(*ns_, blocks, salt);
    EngineMemory source(*ns_, blocks), target(*ns_, blocks);
    EXPECT_EQ(Get(PutAndLookup(source, chain), target.View()).prefix_ok(), blocks);
  };
  move(3, 1);  // 144 KiB
  EXPECT_GE(added(Job::Load::kSingle), 6u);
  EXPECT_EQ(added(Job::Load::kStream), 0u);
  const uint64_t singles = added(Job::Load::kSingle);
  move(44, 2);  // above 2 MiB
  EXPECT_GE(added(Job::Load::kStream), 88u);
  EXPECT_EQ(added(Job::Load::kSingle), singles);
}

TEST_F(ClientCoreTest, LossyCodecDeclaresItsError) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  source.Randomize(2);
  PutOptions options;
  options.codec = "int8";
  EXPECT_EQ(Put(chain, source.View(), options).stored(), 2u);
  const GetResult got = Get(Lookup(chain), target.View());
  ASSERT_EQ(got.prefix_ok(), 2u);
  EXPECT_EQ(got.codecs[1], "int8");
  EXPECT_GT(got.declared_error[1], 0);
  EXPECT_TRUE(got.proxy_error[1]);
  EXPECT_LT(got.bytes_moved, got.bytes_logical);
  EXPECT_NE(source.values(), target.values());
}

TEST_F(ClientCoreTest, ErrorBeyondWhatIsAcceptedIsAMiss) {
  AddNode();
  ClientOptions options;
  options.accept_proxy_error = true;
  StartClient(options);
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  source.Randomize(3);
  PutOptions put;
  put.codec = "int8";
  EXPECT_EQ(Put(chain, source.View(), put).stored(), 1u);
  const Match match = Lookup(chain);
  GetOptions get;
  get.accept.max_error = 0;
  EXPECT_EQ(Get(match, target.View(), get).blocks.front().code(), absl::StatusCode::kNotFound);
  get.accept.max_error = 1e-9;
  EXPECT_EQ(Get(match, target.View(), get).blocks.front().code(), absl::StatusCode::kNotFound);
  get.accept.max_error = 1;
  EXPECT_TRUE(Get(match, target.View(), get).blocks.front().ok());
}

TEST_F(ClientCoreTest, LayerRangeTouchesOnlyItsLayers) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  source.Randomize(4);
  target.Fill(-1);
  Put(chain, source.View());
  GetOptions options;
  options.first_layer = 1;
  options.layers = 1;
  EXPECT_EQ(Get(Lookup(chain), target.View(), options).prefix_ok(), 2u);
  EngineMemory untouched(*ns_, 2);
  untouched.Fill(-1);
  for (uint32_t block = 0; block < 2; ++block) {
    EXPECT_EQ(target.Block(0, block, 1, 1), source.Block(0, block, 1, 1));
    EXPECT_EQ(target.Block(0, block, 0, 1), untouched.Block(0, block, 0, 1));
    EXPECT_EQ(target.Block(0, block, 2, 1), untouched.Block(0, block, 2, 1));
  }
}

TEST_F(ClientCoreTest, BlockRangeTouchesOnlyItsBlocks) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4), target(*ns_, 4), untouched(*ns_, 4);
  source.Randomize(5);
  target.Fill(-1);
  untouched.Fill(-1);
  Put(chain, source.View());
  GetOptions options;
  options.first_block = 1;
  options.blocks = 2;
  EXPECT_EQ(Get(Lookup(chain), target.View(), options).blocks.size(), 2u);
  EXPECT_EQ(target.Block(0, 0), untouched.Block(0, 0));
  EXPECT_EQ(target.Block(0, 1), source.Block(0, 1));
  EXPECT_EQ(target.Block(0, 2), source.Block(0, 2));
  EXPECT_EQ(target.Block(0, 3), untouched.Block(0, 3));
}

TEST_F(ClientCoreTest, TwoWritersOfOneShardEachServeOneReaderOfBoth) {
  NamespaceSpec spec = SmallSpec();
  spec.head_shards = 2;
  ns_ = std::make_shared<const Namespace>(spec);
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory rank0(*ns_, 2, 0, 1), rank1(*ns_, 2, 1, 1), both(*ns_, 2);
  rank0.Randomize(6);
  rank1.Randomize(7);
  PutOptions options;
  options.content_id_base = ContentId{{7}};
  EXPECT_EQ(Put(chain, rank0.View(), options).stored(), 2u);
  EXPECT_EQ(Lookup(chain).blocks(), 0u) << "half a block is not visible";
  EXPECT_EQ(Put(chain, rank1.View(), options).stored(), 2u);
  const Match match = Lookup(chain);
  ASSERT_EQ(match.blocks(), 2u);
  EXPECT_EQ(match.content_ids[0], (ContentId{{7}}));
  EXPECT_EQ(Get(match, both.View()).prefix_ok(), 2u);
  EngineMemory again1(*ns_, 2, 1, 1);
  EXPECT_EQ(Get(match, again1.View()).prefix_ok(), 2u);
  EXPECT_EQ(again1.values(), rank1.values());
  EXPECT_EQ(node.gets.back().first_shard(), 1u);
  // Heads of both ranks follow each other.
  const std::vector<float> joined = both.Block(0, 0, 0, 1);
  const std::vector<float> first = rank0.Block(0, 0, 0, 1);
  const std::vector<float> second = rank1.Block(0, 0, 0, 1);
  const size_t head = first.size() / 2;  // K then V of one head
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + head, joined.begin()));
  EXPECT_TRUE(std::equal(second.begin(), second.begin() + head, joined.begin() + head));
}

TEST_F(ClientCoreTest, SlidingGroupIsAskedForOnlyNearTheEnd) {
  NamespaceSpec spec = SmallSpec();
  spec.groups.push_back(spec.groups[0]);
  spec.groups[1].kind = AttentionKind::kSliding;
  spec.groups[1].window = 20;
  spec.groups[1].layers = {3};
  ns_ = std::make_shared<const Namespace>(spec);
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4), target(*ns_, 4);
  source.Randomize(8);
  SequenceView old_blocks = source.View();
  old_blocks.groups[1].layers.clear();  // the engine has freed them
  PutOptions options;
  options.blocks = 2;
  EXPECT_EQ(Put(chain, old_blocks, options).stored(), 2u);
  EXPECT_EQ(node.puts.back().group_mask(), 1u);
  options.first_block = 2;
  EXPECT_EQ(Put(chain, source.View(), options).stored(), 2u);
  EXPECT_EQ(node.puts.back().group_mask(), 3u);
  const Match match = Lookup(chain);
  ASSERT_EQ(match.blocks(), 4u);
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 4u);
  EXPECT_EQ(target.Block(0, 0), source.Block(0, 0));
  EXPECT_EQ(target.Block(1, 2), source.Block(1, 2));
  EXPECT_EQ(target.Block(1, 3), source.Block(1, 3));
  // A shorter chain would end in blocks whose sliding group is gone.
  EXPECT_EQ(Lookup(MakeChain(*ns_, 2)).blocks(), 0u);
}

TEST_F(ClientCoreTest, LookupStopsAtAHole) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4);
  Put(chain, source.View());
  node.blocks.erase(chain.keys()[2]);
  EXPECT_EQ(Lookup(chain).blocks(), 2u);
}

TEST_F(ClientCoreTest, HoleBetweenLookupAndGetIsOneMissingBlock) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4), target(*ns_, 4);
  source.Randomize(9);
  Put(chain, source.View());
  const Match match = Lookup(chain);
  node.blocks.erase(chain.keys()[1]);
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.prefix_ok(), 1u);
  EXPECT_EQ(got.blocks[1].code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(got.blocks[2].ok());
  EXPECT_TRUE(got.blocks[3].ok());
  EXPECT_EQ(target.Block(0, 3), source.Block(0, 3));
}

TEST_F(ClientCoreTest, LongestPrefixOfAllNodesWins) {
  FakeNode& a = AddNode({.name = "a", .ip = "10.0.0.1"});
  FakeNode& b = AddNode({.name = "b", .ip = "10.0.0.2"});
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3);
  Put(chain, source.View());
  FakeNode& holder = a.blocks.empty() ? b : a;
  FakeNode& other = a.blocks.empty() ? a : b;
  EXPECT_EQ(holder.blocks.size(), 3u);
  EXPECT_TRUE(other.blocks.empty()) << "a chain is put on one node";
  other.blocks[chain.keys()[0]] = holder.blocks[chain.keys()[0]];
  EXPECT_EQ(Lookup(chain).blocks(), 3u);
  holder.blocks.clear();
  EXPECT_EQ(Lookup(chain).blocks(), 1u);
}

TEST_F(ClientCoreTest, LimitsOfTheNodeSplitARequest) {
  FakeNode& node = AddNode({.blocks_max = 2, .requests_max = 1});
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 5);
  EngineMemory source(*ns_, 5), target(*ns_, 5);
  source.Randomize(10);
  EXPECT_EQ(Put(chain, source.View()).stored(), 5u);
  EXPECT_EQ(node.puts.size(), 3u);
  EXPECT_EQ(Get(Lookup(chain), target.View()).prefix_ok(), 5u);
  EXPECT_EQ(node.gets.size(), 3u);
  EXPECT_EQ(source.values(), target.values());
}

TEST_F(ClientCoreTest, RingSmallerThanTheSequenceStillMovesIt) {
  AddNode();
  ClientOptions options;
  options.ring_bytes = uint64_t{256} << 10;
  options.part_bytes_max = options.ring_bytes;
  StartClient(options);
  const TokenChain chain = MakeChain(*ns_, 40);  // 48 KiB a block
  EngineMemory source(*ns_, 40), target(*ns_, 40);
  source.Randomize(11);
  EXPECT_EQ(Put(chain, source.View()).stored(), 40u);
  EXPECT_EQ(Get(Lookup(chain), target.View()).prefix_ok(), 40u);
  EXPECT_EQ(source.values(), target.values());
  EXPECT_EQ(Metric("tokura_client_ring_used_bytes"), 0);
}

TEST_F(ClientCoreTest, AcquireRenewReleaseNameTheLease) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  Put(chain, source.View());
  const Match held = Acquire(Lookup(chain));
  EXPECT_EQ(held.blocks(), 2u);
  EXPECT_TRUE(held.held());
  EXPECT_EQ(Get(held, target.View()).prefix_ok(), 2u);
  EXPECT_EQ(node.gets.back().lease(), std::string(16, 'L'));
  OnLoop([&] {
    core_->Renew(held);
    core_->Release(held);
  });
  RunUntil([&] { return node.requests[net::Op::kRelease] == 1; });
  EXPECT_EQ(node.requests[net::Op::kRenew], 1);
}

TEST_F(ClientCoreTest, RemoveAndStat) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2);
  Put(chain, source.View());
  std::optional<std::vector<absl::StatusOr<NodeStat>>> stats;
  OnLoop([&] { core_->Stat([&](auto s) { stats = std::move(s); }); });
  RunUntil([&] { return stats.has_value(); });
  ASSERT_EQ(stats->size(), 1u);
  EXPECT_EQ((*stats)[0]->blocks, 2u);
  const RemoveResult removed = Remove({chain.keys()[0], BlockKey{{9}}});
  EXPECT_TRUE(removed.blocks[0].ok());
  EXPECT_EQ(removed.blocks[1].code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(node.blocks.size(), 1u);
}

TEST_F(ClientCoreTest, WithoutNodesEverythingIsAMiss) {
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory memory(*ns_, 2);
  EXPECT_EQ(Lookup(chain).blocks(), 0u);
  const PutResult put = Put(chain, memory.View());
  EXPECT_EQ(put.blocks[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Remove({chain.keys()[0]}).blocks[0].code(), absl::StatusCode::kNotFound);
  Match match;
  match.fingerprint = ns_->fingerprint();
  match.keys.assign(chain.keys().begin(), chain.keys().end());
  EXPECT_EQ(Get(match, memory.View()).blocks[0].code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientCoreTest, BadViewsAndRangesAreInvalid) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory memory(*ns_, 2);
  EXPECT_EQ(Put(chain, memory.View()).stored(), 2u);
  const Match match = Lookup(chain);
  const auto code_of = [&](SequenceView view, GetOptions options = {}) {
    return Get(match, std::move(view), std::move(options)).blocks.front().code();
  };
  SequenceView view = memory.View();
  view.groups[0].heads = 1;
  EXPECT_EQ(code_of(view), absl::StatusCode::kInvalidArgument);
  view = memory.View();
  view.groups[0].tokens = 16;
  EXPECT_EQ(code_of(view), absl::StatusCode::kInvalidArgument);
  view = memory.View();
  view.groups.clear();
  EXPECT_EQ(code_of(view), absl::StatusCode::kInvalidArgument);
  view = memory.View();
  view.first_token = 16;
  EXPECT_EQ(code_of(view), absl::StatusCode::kInvalidArgument);
  view = memory.View();
  view.first_shard = 1;
  EXPECT_EQ(code_of(view), absl::StatusCode::kInvalidArgument);
  GetOptions options;
  options.blocks = 3;
  EXPECT_EQ(code_of(memory.View(), options), absl::StatusCode::kInvalidArgument);
  options = {};
  options.first_layer = 2;
  options.layers = 2;
  EXPECT_EQ(code_of(memory.View(), options), absl::StatusCode::kInvalidArgument);
  PutOptions put;
  put.codec = "no-such-codec";
  EXPECT_EQ(Put(chain, memory.View(), put).blocks.front().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClientCoreTest, ViewMayBeginInTheMiddleOfTheSequence) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4), tail(*ns_, 2);
  source.Randomize(12);
  Put(chain, source.View());
  GetOptions options;
  options.first_block = 2;
  SequenceView view = tail.View();
  view.first_token = 32;
  EXPECT_EQ(Get(Lookup(chain), view, options).prefix_ok(), 2u);
  EXPECT_EQ(tail.Block(0, 0), source.Block(0, 2));
  EXPECT_EQ(tail.Block(0, 1), source.Block(0, 3));
}

TEST_F(ClientCoreTest, OperationsBeyondTheLimitAreRefused) {
  ExpectWarnings();
  FakeNode& node = AddNode();
  node.silent = {net::Op::kLookup};
  ClientOptions options;
  options.operations_max = 2;
  StartClient(options);
  const TokenChain chain = MakeChain(*ns_, 1);
  int answered = 0;
  absl::Status third;
  OnLoop([&] {
    core_->Lookup(ns_, chain, {}, [&](auto) { ++answered; });
    core_->Lookup(ns_, chain, {}, [&](auto) { ++answered; });
    core_->Lookup(ns_, chain, {}, [&](auto m) { third = m.status(); });
  });
  RunUntil([&] { return answered == 2; });
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Metric("tokura_client_operations_rejected_total"), 1);
}

TEST_F(ClientCoreTest, ReportsEveryLayerOnceAndInTime) {
  AddNode();
  ClientOptions options;
  options.inline_decode_bytes = 0;
  StartClient(options);
  const TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3), target(*ns_, 3);
  source.Randomize(13);
  Put(chain, source.View());
  std::vector<uint32_t> layers;
  GetOptions get;
  get.on_layer = [&](size_t group, uint32_t layer) {
    EXPECT_EQ(group, 0u);
    layers.push_back(layer);
    for (uint32_t block = 0; block < 3; ++block) {
      EXPECT_EQ(target.Block(0, block, layer, 1), source.Block(0, block, layer, 1));
    }
  };
  EXPECT_EQ(Get(Lookup(chain), target.View(), get).prefix_ok(), 3u);
  EXPECT_THAT(layers, ::testing::ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tokura
