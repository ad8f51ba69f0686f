// Requests that cannot be sent any more, and answers that come too late: nothing hangs, nothing
// aborts, and what a node grants to nobody is given back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client-lib/src/lookup_operation.h"
#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClientDrainTest : public ClientTest {
 protected:
  ClientDrainTest() { ExpectWarnings(); }
  static ClientOptions Pooled() {
    ClientOptions options;
    options.inline_decode_bytes = 0;
    return options;
  }
};

TEST_F(ClientDrainTest, BatchesOfAPutThatWereNotSentAreUnavailable) {
  FakeNode& node = AddNode({.blocks_max = 1});
  StartClient(Pooled());
  node.silent = {net::Op::kPut};
  EngineMemory source(*ns_, 10);
  const auto put = StartPut(MakeChain(*ns_, 10), source.View());
  RunUntil([&] { return node.requests[net::Op::kPut] >= 1; });
  host_.pool().Pause();
  node.Goodbye();
  RunUntil([&] { return !core_->ready(); });
  host_.pool().Continue();
  RunUntil([&] { return put->result.has_value(); });
  EXPECT_EQ(put->result->blocks.front().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(put->result->blocks.back().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientDrainTest, SentBatchesOfAPutFinish) {
  FakeNode& node = AddNode({.blocks_max = 1, .requests_max = 1});
  StartClient(Pooled());
  EngineMemory source(*ns_, 3);
  source.Randomize(1);
  const TokenChain chain = MakeChain(*ns_, 3);
  network_.link(host_.ip(), node.host().ip()).bytes_per_second = 2'000'000;
  const auto put = StartPut(chain, source.View());
  RunUntil([&] { return node.requests[net::Op::kPut] == 1; });
  node.Goodbye();
  RunUntil([&] { return put->result.has_value(); });
  EXPECT_TRUE(put->result->blocks[0].ok()) << put->result->blocks[0];
  EXPECT_EQ(put->result->blocks[1].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(put->result->blocks[2].code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientDrainTest, QueuedBatchesOfAGetGoToAnotherNodeAtOnce) {
  FakeNode& a = AddNode({.name = "a", .ip = "10.0.0.1", .blocks_max = 1, .requests_max = 1});
  FakeNode& b = AddNode({.name = "b", .ip = "10.0.0.2", .blocks_max = 1});
  StartClient();
  TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3), target(*ns_, 3);
  Match match = PutAndLookup(source, chain);
  (a.blocks.empty() ? a : b).blocks = (a.blocks.empty() ? b : a).blocks;
  match.holders.front().node = "a";
  a.silent = {net::Op::kGet};
  GetOptions options;
  options.deadline = seconds(5);
  const auto get = StartGet(match, target.View(), options);
  RunUntil([&] { return a.requests[net::Op::kGet] == 1; });
  const TimePoint start = Now();
  a.Goodbye();
  RunUntil([&] { return b.gets.size() == 2; });
  EXPECT_LT(Now() - start, milliseconds(20));
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_EQ(get->result->prefix_ok(), 3u);
  EXPECT_EQ(target.values(), source.values());
}

TEST_F(ClientDrainTest, WaitersForCapacityOfADeadNodeAreAnswered) {
  FakeNode& node = AddNode({.requests_max = 1});
  StartClient();
  node.silent = {net::Op::kLookup};
  int done = 0;
  OnLoop([&] {
    for (int i = 0; i < 3; ++i) {
      core_->Lookup(ns_, MakeChain(*ns_, 2), {}, [&](auto) { ++done; });
    }
  });
  RunUntil([&] { return node.requests[net::Op::kLookup] == 1; });
  const TimePoint start = Now();
  node.Kill();
  RunUntil([&] { return done == 3; });
  EXPECT_LT(Now() - start, milliseconds(100));
}

TEST_F(ClientDrainTest, CancelledPutSendsNothingThatWaited) {
  FakeNode& node = AddNode({.blocks_max = 1, .requests_max = 1});
  StartClient();
  EngineMemory source(*ns_, 4);
  node.silent = {net::Op::kLookup};
  // The node's one request is a lookup's: every batch of the put waits.
  bool looked = false;
  OnLoop([&] { core_->Lookup(ns_, MakeChain(*ns_, 1), {}, [&](auto) { looked = true; }); });
  const auto put = StartPut(MakeChain(*ns_, 4), source.View());
  RunFor(milliseconds(20));
  OnLoop([&] { core_->Cancel(put->id); });
  RunUntil([&] { return put->result.has_value(); });
  for (const absl::Status& status : put->result->blocks) {
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  }
  RunUntil([&] { return looked; });
  RunFor(seconds(1));
  EXPECT_EQ(node.requests[net::Op::kPut], 0);
}

TEST_F(ClientDrainTest, LeaseOfACancelledAcquireIsReleased) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2);
  const Match match = PutAndLookup(source, chain);
  std::optional<absl::Status> status;
  ClientCore::OperationId id = 0;
  OnLoop([&] {
    id = core_->Acquire(ns_, match, {}, [&](absl::StatusOr<Match> m) { status = m.status(); });
  });
  RunUntil([&] { return node.requests[net::Op::kAcquire] == 1; });
  OnLoop([&] { core_->Cancel(id); });
  RunUntil([&] { return status.has_value(); });
  EXPECT_TRUE(absl::IsCancelled(*status));
  RunUntil([&] { return node.requests[net::Op::kRelease] == 1; }, seconds(1));
}

TEST_F(ClientDrainTest, LeaseOverNothingUsableIsReleased) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2);
  const Match match = PutAndLookup(source, chain);
  node.describe = [](proto::LookupReply* reply) {
    for (proto::Form& form : *reply->mutable_forms()) {
      form.set_group_mask(0);
    }
  };
  EXPECT_EQ(Acquire(match).blocks(), 0u);
  RunUntil([&] { return node.requests[net::Op::kRelease] == 1; }, seconds(1));
}

TEST_F(ClientDrainTest, RepliesWithCodecNamesNobodyKnowsAreRefused) {
  const TokenChain chain = MakeChain(*ns_, 1);
  proto::LookupReply reply;
  reply.set_prefix_blocks(1);
  reply.add_form_of_block(0);
  reply.set_content_ids(std::string(ContentId::kBytes, 'c'));
  reply.add_forms()->set_group_mask(1);
  for (const std::string& name : {std::string("raw"), std::string("kivi4")}) {
    reply.mutable_forms(0)->set_codec(name);
    EXPECT_EQ(MatchFromReply(*ns_, chain.keys(), reply).blocks(), 1u);
  }
  for (const std::string& name : {std::string(), std::string("rot13"), std::string(1 << 20, 'r')}) {
    reply.mutable_forms(0)->set_codec(name);
    EXPECT_EQ(MatchFromReply(*ns_, chain.keys(), reply).blocks(), 0u);
  }
}

TEST_F(ClientDrainTest, WaitingForReadinessEndsWithTheClient) {
  ClientOptions options;
  options.nodes = {"10.9.9.9:7000"};
  StartClient(options);
  std::vector<absl::StatusCode> codes;
  std::function<void(absl::Status)> again = [&](const absl::Status& status) {
    codes.push_back(status.code());
    if (codes.size() < 3) {
      core_->WhenReady(Now() + seconds(1), again);
    }
  };
  OnLoop([&] {
    core_->WhenReady(Now() + seconds(1), again);
    core_->Shutdown([] {});
  });
  RunFor(milliseconds(1));
  EXPECT_THAT(codes, ::testing::Each(absl::StatusCode::kCancelled));
  EXPECT_EQ(codes.size(), 3u);
  RunFor(seconds(5));
  OnLoop([&] { core_.reset(); });
  RunFor(seconds(5));
  EXPECT_EQ(codes.size(), 3u);
}

TEST_F(ClientDrainTest, DurationMaxIsNoLimit) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  source.Randomize(1);
  PutOptions put;
  put.deadline = Duration::max();
  EXPECT_EQ(Put(chain, source.View(), put).stored(), 2u);
  LookupOptions lookup;
  lookup.deadline = Duration::max();
  GetOptions get;
  get.deadline = Duration::max();
  EXPECT_EQ(Get(Lookup(chain, lookup), target.View(), get).prefix_ok(), 2u);
  EXPECT_EQ(target.values(), source.values());
}

}  // namespace
}  // namespace tokura
