// Who is to blame when an operation does not get on: a node is dropped when it is waited for and
// does nothing, and never because this process is slow or did not run.

#include <gtest/gtest.h>

#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kPatience = milliseconds(200);  // ClientOptions::progress_timeout

class ClientBlameTest : public ClientTest {
 protected:
  ClientBlameTest() { ExpectWarnings(); }
  // Everything decoded on the pool, which tests can pause.
  static ClientOptions Pooled() {
    ClientOptions options;
    options.inline_decode_bytes = 0;
    return options;
  }
  void SlowPayloads(FakeNode& node) {
    network_.link(node.host().ip(), host_.ip()).bytes_per_second = 50'000;
  }
};

TEST_F(ClientBlameTest, NodeThatStopsInTheMiddleOfATransferIsDropped) {
  FakeNode& node = AddNode();
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4), target(*ns_, 4);
  const Match match = PutAndLookup(source, chain);
  SlowPayloads(node);
  GetOptions options;
  options.deadline = seconds(20);
  const auto get = StartGet(match, target.View(), options);
  RunUntil([&] { return node.gets.size() == 1; });
  RunFor(milliseconds(20));
  node.host().Pause();
  const TimePoint stopped = Now();
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_EQ(get->result->prefix_ok(), 0u);
  EXPECT_LT(get->ended - stopped, 2 * kPatience);
  EXPECT_FALSE(core_->ready());
  const TimePoint start = Now();
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 0u);
  EXPECT_LT(Now() - start, milliseconds(1));
  node.host().Continue();
}

TEST_F(ClientBlameTest, ReplicaIsAskedWhenATransferStalls) {
  FakeNode& a = AddNode({.name = "a", .ip = "10.0.0.1"});
  FakeNode& b = AddNode({.name = "b", .ip = "10.0.0.2"});
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 4);
  EngineMemory source(*ns_, 4), target(*ns_, 4);
  const Match match = PutAndLookup(source, chain);
  FakeNode& holder = a.blocks.empty() ? b : a;
  FakeNode& replica = a.blocks.empty() ? a : b;
  replica.blocks = holder.blocks;
  SlowPayloads(holder);
  GetOptions options;
  options.deadline = seconds(5);
  const auto get = StartGet(match, target.View(), options);
  RunUntil([&] { return holder.gets.size() == 1; });
  RunFor(milliseconds(20));
  holder.host().Pause();
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_EQ(get->result->prefix_ok(), 4u);
  EXPECT_EQ(target.values(), source.values());
  holder.host().Continue();
}

TEST_F(ClientBlameTest, SlowEncoderConvictsNobody) {
  FakeNode& node = AddNode({.blocks_max = 2});
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 10);
  EngineMemory source(*ns_, 10);
  PutOptions options;
  options.deadline = milliseconds(600);
  const auto put = StartPut(chain, source.View(), options);
  RunUntil([&] { return node.requests[net::Op::kPut] >= 1; });
  host_.pool().Pause();
  RunUntil([&] { return put->result.has_value(); });
  EXPECT_TRUE(core_->ready());
  host_.pool().Continue();
  RunFor(seconds(1));
  EXPECT_EQ(node.hellos.size(), 1u);
}

TEST_F(ClientBlameTest, SlowDecoderAndFullRingConvictNobody) {
  FakeNode& node = AddNode();
  ClientOptions options = Pooled();
  options.ring_bytes = uint64_t{256} << 10;
  options.part_bytes_max = options.ring_bytes;
  StartClient(options);
  const TokenChain chain = MakeChain(*ns_, 20);
  EngineMemory source(*ns_, 20), target(*ns_, 20), other(*ns_, 20), third(*ns_, 20);
  const Match match = PutAndLookup(source, chain);
  GetOptions get;
  get.deadline = milliseconds(600);
  host_.pool().Pause();
  const auto gets = {StartGet(match, target.View(), get), StartGet(match, other.View(), get),
                     StartGet(match, third.View(), get)};
  RunUntil([&] { return Metric("tokura_client_ring_waiters") > 0; });
  for (const auto& pending : gets) {
    RunUntil([&] { return pending->result.has_value(); });
    EXPECT_EQ(pending->result->blocks[0].code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(core_->ready());
  host_.pool().Continue();
  RunFor(seconds(1));
  EXPECT_EQ(node.hellos.size(), 1u);
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 20u);
}

TEST_F(ClientBlameTest, NodeThatIsSlowButMovesIsNotDropped) {
  FakeNode& node = AddNode({.blocks_max = 1});
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 12);
  EngineMemory source(*ns_, 12), target(*ns_, 12);
  const Match match = PutAndLookup(source, chain);
  // Twelve requests queue for most of a second behind one another.
  network_.link(node.host().ip(), host_.ip()).bytes_per_second = 500'000;
  GetOptions options;
  options.deadline = seconds(20);
  EXPECT_EQ(Get(match, target.View(), options).prefix_ok(), 12u);
  EXPECT_EQ(node.hellos.size(), 1u);
}

TEST_F(ClientBlameTest, PauseOfThisProcessConvictsNobody) {
  FakeNode& node = AddNode();
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  const Match match = PutAndLookup(source, chain);
  bool looked = false;
  OnLoop([&] { core_->Lookup(ns_, chain, {}, [&](auto) { looked = true; }); });
  const auto get = StartGet(match, target.View());
  const auto put = StartPut(MakeChain(*ns_, 2, 2), source.View());
  host_.Pause();
  RunFor(milliseconds(250));
  host_.Continue();
  RunUntil([&] { return looked && get->result && put->result; });
  EXPECT_TRUE(core_->ready());
  RunFor(seconds(1));
  EXPECT_EQ(node.hellos.size(), 1u);
}

TEST_F(ClientBlameTest, NodeThatOnlyWelcomesIsProbedLessAndLess) {
  FakeNode& node = AddNode();
  StartClient();
  node.silent = {net::Op::kLookup};
  const TimePoint start = Now();
  while (Now() - start < seconds(10)) {
    Lookup(MakeChain(*ns_, 1));
    RunFor(milliseconds(10));
  }
  // Backoffs of 0.1, 0.2, 0.4, 0.8, 1.6, 2 and 2 s, each followed by one deadline.
  EXPECT_LE(node.hellos.size(), 9u);
  EXPECT_GE(node.hellos.size(), 5u);
  node.silent.clear();
  RunUntil([&] { return core_->ready(); });
  Lookup(MakeChain(*ns_, 1));
  EXPECT_TRUE(core_->ready());
}

}  // namespace
}  // namespace tokura
