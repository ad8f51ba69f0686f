// Leases as clients see them, on the simulator.

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/node/server_request_testing.h"

namespace tokura::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// ---- leases ----

TEST_F(ServerRequestTest, LeaseServesAnyConnectionOfItsTenant) {
  StartNode(SmallOptions(), {}, /*loops=*/2);
  TestClient& scheduler = Connect();
  TestClient& worker = Connect();
  TestClient::Options stranger_options;
  stranger_options.tenant = "stranger";
  TestClient& stranger = Connect(stranger_options);
  const Chain chain{.blocks = 2};
  ASSERT_THAT(Put(worker, chain), ElementsAre(kOk, kOk));
  const auto acquired = Acquire(scheduler, {.blocks = 3});
  EXPECT_EQ(acquired.held().prefix_blocks(), 2u) << "cut to the first gap";
  const std::string lease = acquired.lease();
  EXPECT_EQ(node_->accounting().pinned_forms, 2u);
  EXPECT_FALSE(Renew(stranger, lease));
  Release(stranger, lease);
  EXPECT_EQ(node_->accounting().leases, 1u);
  EXPECT_TRUE(Renew(worker, lease));
  proto::GetRequest get = GetMessage(chain);
  get.set_lease(lease);
  TestCall& call = Await(worker.Send(net::Op::kGet, get));
  EXPECT_THAT(Codes(call.As<proto::GetReply>().statuses()), ElementsAre(kOk, kOk));
  ExpectBytes(call, chain);
  scheduler.Close(net::CloseMode::kFlush);
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().leases == 0; }, milliseconds(500)))
      << "goes with its owner, not by its age";
  ExpectIdle();
  get.set_lease(lease);
  EXPECT_THAT(GetCodes(worker, get), ElementsAre(kOk, kOk))
      << "a lease that has ended is no error where the blocks are still there";
}

TEST_F(ServerRequestTest, AcquireOfNothingGivesNoLease) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const auto acquired = Acquire(client, {.blocks = 3});
  EXPECT_EQ(acquired.held().prefix_blocks(), 0u);
  EXPECT_EQ(acquired.lease(), "");
  EXPECT_EQ(node_->accounting().leases, 0u);
}

TEST_F(ServerRequestTest, LeaseExpiresWithoutRenewalAndAtItsMaximum) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  const std::string idle = Acquire(client, chain).lease();
  const std::string renewed = Acquire(client, chain).lease();
  for (int i = 0; i < 3; ++i) {
    RunFor(seconds(1));
    EXPECT_TRUE(Renew(client, renewed));
  }
  EXPECT_EQ(node_->accounting().leases, 1u);
  EXPECT_FALSE(Renew(client, idle));
  for (int i = 0; i < 4; ++i) {
    RunFor(seconds(1));
    Renew(client, renewed);
  }
  EXPECT_EQ(node_->accounting().leases, 0u) << "lease_age_max";
  EXPECT_GE(Metric("tokura_node_leases_expired_total"), 2);
  EXPECT_TRUE(client.channel().ready()) << "idle leases cost no connection";
  ExpectIdle();
}

TEST_F(ServerRequestTest, ExpiredLeaseEndsTheTransfersThatUseIt) {
  NodeOptions options = SmallOptions();
  OneTransferAtATime(options);
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk));
  proto::GetRequest get = GetMessage(chain);
  get.set_lease(Acquire(client, chain).lease());
  const TestClient::Sent sent = StartHeldGet(client, get, seconds(60));
  ASSERT_TRUE(RunUntil([&] { return sent.call->payloads().size() == 1; }));
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  EXPECT_EQ(sent.call->payloads().size(), 1u);
  ExpectIdle();
}

TEST_F(ServerRequestTest, TransfersKeepTheLeaseThatTheyUse) {
  NodeOptions options = SmallOptions();
  OneTransferAtATime(options);
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 3};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  const std::string lease = Acquire(client, chain).lease();
  proto::GetRequest get = GetMessage(chain);
  get.set_lease(lease);
  const TestClient::Sent sent = StartHeldGet(client, get, seconds(60));
  for (size_t i = 0; i < chain.blocks; ++i) {
    ASSERT_TRUE(RunUntil([&] { return sent.call->payloads().size() == i + 1; }));
    RunFor(milliseconds(1500));
    client.host().loop().Enter([&] { sent.call->Receive(*sent.call->payloads()[i]); });
  }
  EXPECT_THAT(Codes(Await(sent).As<proto::GetReply>().statuses()), ElementsAre(kOk, kOk, kOk));
  EXPECT_TRUE(Renew(client, lease));
}

TEST_F(ServerRequestTest, TransferThatOutlivesItsLeaseCostsTheConnection) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain leased{.first = 1};
  const Chain moves{.first = 10};
  ASSERT_THAT(Put(client, leased), ElementsAre(kOk));
  ASSERT_THAT(Put(client, moves), ElementsAre(kOk));
  proto::GetRequest get = GetMessage(leased);
  get.set_lease(Acquire(client, leased).lease());
  const TestClient::Sent held = StartHeldGet(client, get, milliseconds(200));
  ASSERT_TRUE(RunUntil([&] { return held.call->payloads().size() == 1; }));
  const TimePoint offered = scheduler_.Now();
  while (!client.down().has_value() && scheduler_.Now() - offered < seconds(5)) {
    client.Send(net::Op::kGet, GetMessage(moves), milliseconds(200));
    RunFor(milliseconds(200));
  }
  EXPECT_TRUE(client.down().has_value());
  EXPECT_LE(scheduler_.Now() - offered, SmallOptions().lease_age * 5 / 4 + milliseconds(500));
  ExpectIdle();
}

TEST_F(ServerRequestTest, ProbingPinsNothingAndRenewsNothing) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  const std::string lease = Acquire(client, chain).lease();
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(Lookup(client, chain), 1u);
    RunFor(milliseconds(100));
  }
  EXPECT_EQ(node_->accounting().leases, 0u) << "lookups have kept the lease alive";
  EXPECT_EQ(node_->accounting().pinned_forms, 0u);
}

TEST_F(ServerRequestTest, LeaseServesWhatItPinsThoughTheBlockWasRemoved) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  proto::GetRequest get = GetMessage(chain);
  get.set_lease(Acquire(client, chain).lease());
  Remove(client, chain);
  Chain later = chain;
  later.content = 2;
  ASSERT_THAT(Put(client, later), ElementsAre(kOk));
  TestCall& call = Await(client.Send(net::Op::kGet, get));
  EXPECT_THAT(Codes(call.As<proto::GetReply>().statuses()), ElementsAre(kOk));
  ExpectBytes(call, chain);
  // Where the lease's form is not what is wanted, what the store has is.
  get.set_content_ids(IdBytes(Content(2)));
  TestCall& other = Await(client.Send(net::Op::kGet, get));
  ExpectBytes(other, later);
  Release(client, get.lease());
  ExpectIdle();
}

TEST_F(ServerRequestTest, AcquireNamesABlockOnce) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  proto::AcquireRequest acquire;
  acquire.set_fingerprint(IdBytes(Space()));
  acquire.set_keys(Keys(chain) + Keys(chain));
  EXPECT_EQ(Await(client.Send(net::Op::kAcquire, acquire)).status().code(),
            absl::StatusCode::kInvalidArgument);
  ExpectIdle();
}

}  // namespace
}  // namespace tokura::node
