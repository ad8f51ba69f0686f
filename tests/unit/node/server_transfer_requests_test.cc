// GET and PUT on the simulator: what is stored and served, in and out of order, and what is left
// behind when clients stop, die or cancel.

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/node/server_request_testing.h"

namespace tokura::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;

// ---- put and get ----

TEST_F(ServerRequestTest, GetReturnsTheBytesThatWerePut) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 3, .group_mask = 5, .shards = 2};
  EXPECT_EQ(Lookup(client, chain), 0u);
  EXPECT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  EXPECT_EQ(Lookup(client, chain), 3u);
  TestCall& call = Await(client.Send(net::Op::kGet, GetMessage(chain)));
  const auto reply = call.As<proto::GetReply>();
  EXPECT_THAT(Codes(reply.statuses()), ElementsAre(kOk, kOk, kOk));
  EXPECT_EQ(reply.payloads(), 12u);
  EXPECT_EQ(call.payloads().size(), 12u);
  ExpectBytes(call, chain);
  ExpectIdle();
  EXPECT_EQ(PutParts("stored"), 12);
  EXPECT_EQ(Requests("put", "ok"), 1);
  EXPECT_EQ(Requests("get", "ok"), 1);
  EXPECT_EQ(Requests("lookup", "ok"), 2);
  EXPECT_EQ(Metric("tokura_tier_lookups_total", {{"tier", "host"}, {"result", "hit"}}), 3);
  EXPECT_EQ(Metric("tokura_tier_lookups_total", {{"tier", "none"}, {"result", "miss"}}), 3);
  EXPECT_EQ(Metric("tokura_node_get_blocks_total", {{"result", "ok"}}), 3);
  EXPECT_EQ(Metric("tokura_node_request_duration_seconds", {{"op", "get"}}), 1);
  double bytes = 0;
  ForEachPart(chain, [&](uint32_t block, PartId part) {
    bytes += static_cast<double>(Part(chain, block, part).size());
  });
  EXPECT_EQ(Metric("tokura_node_received_bytes_total"), bytes);
  EXPECT_EQ(Metric("tokura_node_sent_bytes_total"), bytes);
  RunFor(seconds(1));  // The next ticks copy the store's numbers.
  EXPECT_EQ(Metric("tokura_tier_stored_bytes", {{"tier", "host"}}), bytes);
  EXPECT_EQ(Metric("tokura_tier_blocks", {{"tier", "host"}}), 3);
  EXPECT_GT(Metric("tokura_tier_logical_bytes", {{"tier", "host"}}), 0);
  EXPECT_GT(Metric("tokura_tier_used_bytes", {{"tier", "host"}}), bytes);
  EXPECT_EQ(Metric("tokura_codec_held_bytes", {{"codec", "raw"}, {"as", "stored"}}), bytes);
}

TEST_F(ServerRequestTest, LayerRangeIsThePrefixAndThoseLayers) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 1};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  proto::GetRequest get = GetMessage(chain);
  get.set_first_layer(1);
  get.set_layer_count(1);
  TestCall& call = Await(client.Send(net::Op::kGet, get));
  ASSERT_EQ(call.payloads().size(), 1u);
  ASSERT_TRUE(RunUntil([&] { return Arrived(call); }));
  const std::vector<std::byte> whole = Part(chain, 0, {});
  const std::vector<std::byte>& got = call.payloads()[0]->bytes;
  auto reader = kernels::PartReader::Open(got);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const kernels::PartInfo& info = reader->info();
  EXPECT_EQ(info.part_bytes, whole.size());
  const size_t layer = info.layer_offset[2] - info.layer_offset[1];
  ASSERT_EQ(got.size(), info.prefix_bytes + layer);
  EXPECT_TRUE(reader->VerifyLayer(1, std::span(got).subspan(info.prefix_bytes)).ok());

  get.set_first_layer(2);
  get.set_layer_count(UINT32_MAX);  // Cut to what the group has, whatever the sum comes to.
  TestCall& last = Await(client.Send(net::Op::kGet, get));
  ASSERT_TRUE(RunUntil([&] { return Arrived(last); }));
  EXPECT_TRUE(
      reader->VerifyLayer(2, std::span(last.payloads()[0]->bytes).subspan(info.prefix_bytes)).ok());
}

TEST_F(ServerRequestTest, ChecksOfALargePutAreAStream) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const auto streams = [this] { return node_host_->pool().added(Job::Load::kStream); };
  EXPECT_THAT(Put(client, {.blocks = 2}), ElementsAre(kOk, kOk));
  EXPECT_EQ(streams(), 0u);
  Chain large{.first = 100, .heads = 8};
  large.blocks = static_cast<uint32_t>((size_t{2} << 20) / Part(large, 0, {}).size() + 1);
  EXPECT_THAT(Put(client, large), Each(kOk));
  EXPECT_GE(streams(), large.blocks);
}

TEST_F(ServerRequestTest, ABlockWithADamagedPrefixGoesAndCanBePutAgain) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk));
  const std::span<std::byte> arena = node_transports_.front()->registered().front();
  const std::vector<std::byte> stored = Part(chain, 1, {});
  const auto found = std::search(arena.begin(), arena.end(), stored.begin(), stored.end());
  ASSERT_NE(found, arena.end());
  found[20] ^= std::byte{1};

  proto::GetRequest get = GetMessage(chain);
  get.set_first_layer(1);
  get.set_layer_count(1);
  EXPECT_THAT(GetCodes(client, get), ElementsAre(kOk, absl::StatusCode::kDataLoss));
  EXPECT_EQ(Metric("tokura_node_checksum_failures_total", {{"where", "stored"}}), 1);
  RunFor(seconds(1));  // The next ticks copy the store's numbers.
  EXPECT_EQ(Metric("tokura_evictions_total", {{"tier", "host"}, {"reason", "damaged"}}), 1);
  EXPECT_EQ(Lookup(client, chain), 1u) << "it is no hit any more";
  EXPECT_THAT(GetCodes(client, get), ElementsAre(kOk, absl::StatusCode::kNotFound));
  EXPECT_THAT(Put(client, chain), ElementsAre(kOk, kOk));
  EXPECT_EQ(PutParts("stored"), 3);
  EXPECT_EQ(PutParts("held"), 1) << "the healthy one";
  EXPECT_THAT(GetCodes(client, get), ElementsAre(kOk, kOk));
  ExpectIdle();
}

TEST_F(ServerRequestTest, GetServesWhatIsThereAndReportsTheRest) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  ASSERT_THAT(Put(client, {.first = 1}), ElementsAre(kOk));
  ASSERT_THAT(Put(client, {.first = 3}), ElementsAre(kOk));
  const Chain all{.first = 1, .blocks = 3};
  TestCall& call = Await(client.Send(net::Op::kGet, GetMessage(all)));
  const auto reply = call.As<proto::GetReply>();
  EXPECT_THAT(Codes(reply.statuses()), ElementsAre(kOk, absl::StatusCode::kNotFound, kOk));
  EXPECT_EQ(reply.payloads(), 2u);
  ExpectBytes(call, all);
  EXPECT_EQ(Metric("tokura_node_get_blocks_total", {{"result", "not_found"}}), 1);
}

TEST_F(ServerRequestTest, GetOfGroupsAndShardsThatAFormLacks) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.group_mask = 1, .shards = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  proto::GetRequest get = GetMessage(chain);
  get.set_group_mask(2);
  EXPECT_THAT(GetCodes(client, get), ElementsAre(absl::StatusCode::kNotFound));
  get.set_group_mask(1);
  get.set_first_shard(1);
  get.set_shard_count(2);
  EXPECT_THAT(GetCodes(client, get), ElementsAre(absl::StatusCode::kInvalidArgument));
  get.set_shard_count(1);
  TestCall& call = Await(client.Send(net::Op::kGet, get));
  ASSERT_EQ(call.payloads().size(), 1u);
  EXPECT_EQ(call.payloads()[0]->frame.shard, 1u);
  ExpectBytes(call, chain);
}

TEST_F(ServerRequestTest, ContentIdsPickExactlyThatContent) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.content = 4};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  proto::GetRequest get = GetMessage(chain);
  get.set_content_ids(IdBytes(Content(5)));
  EXPECT_THAT(GetCodes(client, get), ElementsAre(absl::StatusCode::kNotFound));
  get.set_content_ids(IdBytes(Content(4)));
  EXPECT_THAT(GetCodes(client, get), ElementsAre(kOk));
  get.set_content_ids(std::string(16, '\0'));
  EXPECT_THAT(GetCodes(client, get), ElementsAre(kOk));
}

TEST_F(ServerRequestTest, SecondPutOfAFormIsAnsweredWithoutATransfer) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  ASSERT_THAT(Put(client, {.content = 1}), ElementsAre(kOk));
  const double received = Metric("tokura_node_received_bytes_total");
  const Chain again{.content = 2};
  const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(again));
  const auto outcome = client.Offer(sent.id, 0, {}, Part(again, 0, {}));
  EXPECT_THAT(PutCodes(sent), ElementsAre(kOk));
  ASSERT_TRUE(RunUntil([&] { return outcome->has_value(); }));
  EXPECT_EQ((*outcome)->code(), absl::StatusCode::kResourceExhausted) << "not rejected";
  EXPECT_EQ(Metric("tokura_node_received_bytes_total"), received);
  EXPECT_EQ(PutParts("held"), 1);
  TestCall& call = Await(client.Send(net::Op::kGet, GetMessage(again)));
  ExpectBytes(call, {.content = 1});
}

TEST_F(ServerRequestTest, FlippedBitOfAPutIsDataLossAndInvisible) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain));
  client.Offer(sent.id, 0, {}, Damaged(Part(chain, 0, {})));
  client.Offer(sent.id, 1, {}, Part(chain, 1, {}));
  const auto reply = Await(sent).As<proto::PutReply>();
  EXPECT_THAT(Codes(reply.statuses()), ElementsAre(absl::StatusCode::kDataLoss, kOk));
  ASSERT_EQ(reply.reasons_size(), 1);
  EXPECT_NE(reply.reasons(0), "");
  EXPECT_EQ(Lookup(client, chain), 0u);
  EXPECT_EQ(PutParts("corrupt"), 1);
  EXPECT_EQ(Metric("tokura_node_checksum_failures_total", {{"where", "received"}}), 1);
  ExpectIdle();
  EXPECT_EQ(node_->accounting().incomplete_blocks, 0u);
}

TEST_F(ServerRequestTest, BlockThatFailsGivesBackWhatIsStoredOfIt) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.shards = 2};
  const TestClient::Sent put = client.Send(net::Op::kPut, PutMessage(chain));
  client.Offer(put.id, 0, {0, 0}, Part(chain, 0, {0, 0}));
  ASSERT_TRUE(RunUntil([&] { return PutParts("stored") == 1; }));
  EXPECT_GT(node_->accounting().used_bytes, 0u);
  client.Offer(put.id, 0, {0, 1}, Damaged(Part(chain, 0, {0, 1})));
  EXPECT_THAT(PutCodes(put), ElementsAre(absl::StatusCode::kDataLoss));
  EXPECT_EQ(node_->accounting().used_bytes, 0u);
}

TEST_F(ServerRequestTest, SkippedChecksumsWouldLetDamageIn) {
  PlantedBugs bugs;
  bugs.skip_crc = true;
  StartNode(SmallOptions(), bugs);
  TestClient& client = Connect();
  const Chain chain;
  const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain));
  client.Offer(sent.id, 0, {}, Damaged(Part(chain, 0, {})));
  EXPECT_THAT(PutCodes(sent), ElementsAre(kOk));
}

TEST_F(ServerRequestTest, PartOfAnotherIdentityIsDataLoss) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  const kernels::PartIdentity right = Identity(chain, 0, {});
  std::vector<kernels::PartIdentity> wrong(4, right);
  wrong[0].fingerprint = Space(9);
  wrong[1].key = Key(77);
  wrong[2].content_id = Content(77);
  wrong[3].part = {0, 1};
  for (const kernels::PartIdentity& identity : wrong) {
    const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain));
    client.Offer(sent.id, 0, {}, MakePart(identity, 1));
    EXPECT_THAT(PutCodes(sent), ElementsAre(absl::StatusCode::kDataLoss));
  }
  // Another codec than announced.
  proto::PutRequest put = PutMessage(chain);
  put.set_codec("kivi4");
  const TestClient::Sent sent = client.Send(net::Op::kPut, put);
  client.Offer(sent.id, 0, {}, Part(chain, 0, {}));
  EXPECT_THAT(PutCodes(sent), ElementsAre(absl::StatusCode::kDataLoss));
  EXPECT_EQ(PutParts("corrupt"), 5);
  EXPECT_EQ(Lookup(client, chain), 0u);
}

TEST_F(ServerRequestTest, OffersOutsideTheAnnouncementFailTheirBlock) {
  NodeOptions options = SmallOptions();
  options.part_bytes_max = 16 * 1024;
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 3};
  const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain));
  client.Offer(sent.id, 0, {1, 0}, Part(chain, 0, {}));
  client.Offer(sent.id, 1, {0, 1}, Part(chain, 1, {}));
  client.Offer(sent.id, 2, {}, std::vector<std::byte>(16 * 1024 + 1));
  client.Offer(sent.id, 3, {}, std::vector<std::byte>(100));
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(PutCodes(sent), ElementsAre(invalid, invalid, invalid));
  const TestClient::Sent twice = client.Send(net::Op::kPut, PutMessage({.shards = 2}));
  client.Offer(twice.id, 0, {}, std::vector<std::byte>(100));
  client.Offer(twice.id, 0, {}, std::vector<std::byte>(100));
  EXPECT_THAT(PutCodes(twice), ElementsAre(invalid));
  ExpectIdle();
}

TEST_F(ServerRequestTest, MalformedRequestsAreInvalidArgument) {
  NodeOptions options = SmallOptions();
  options.keys_max = 8;
  options.blocks_max = 4;
  StartNode(options);
  TestClient& client = Connect();
  const Chain fine{.blocks = 4};
  const auto expect_invalid = [&](net::Op op, const google::protobuf::MessageLite& message) {
    EXPECT_EQ(Await(client.Send(op, message)).status().code(), absl::StatusCode::kInvalidArgument)
        << net::OpName(op) << ' ' << message.ByteSizeLong();
  };
  expect_invalid(net::Op::kGet, GetMessage({.blocks = 5}));
  expect_invalid(net::Op::kGet, proto::GetRequest());
  proto::GetRequest get = GetMessage(fine);
  get.set_group_mask(256);
  expect_invalid(net::Op::kGet, get);
  get = GetMessage(fine);
  get.mutable_accept()->set_max_error(-1);
  expect_invalid(net::Op::kGet, get);
  get = GetMessage(fine);
  get.set_content_ids("x");
  expect_invalid(net::Op::kGet, get);
  get = GetMessage(fine);
  get.set_lease("short");
  expect_invalid(net::Op::kGet, get);
  expect_invalid(net::Op::kPut, PutMessage({.blocks = 5}));
  proto::PutRequest put = PutMessage(fine);
  put.set_group_mask(0);
  expect_invalid(net::Op::kPut, put);
  put = PutMessage(fine);
  put.set_shard_count(UINT32_MAX);
  expect_invalid(net::Op::kPut, put);
  put = PutMessage(fine);
  put.mutable_blocks(2)->set_content_id("");
  expect_invalid(net::Op::kPut, put);
  put = PutMessage(fine);
  put.set_codec("");
  expect_invalid(net::Op::kPut, put);
  proto::LookupRequest lookup;
  lookup.set_fingerprint(IdBytes(Space()));
  lookup.set_keys(std::string(15, 'k'));
  expect_invalid(net::Op::kLookup, lookup);
  lookup.set_keys(Keys({.blocks = 9}));
  expect_invalid(net::Op::kLookup, lookup);
  expect_invalid(net::Op::kRenew, proto::RenewRequest());
  EXPECT_EQ(Requests("get", "invalid_argument"), 6);
  EXPECT_THAT(Put(client, fine), ElementsAre(kOk, kOk, kOk, kOk)) << "the connection goes on";
}

TEST_F(ServerRequestTest, PoolFullOfPinnedBlocksRefusesThatBlockOnly) {
  NodeOptions options = SmallOptions();
  options.host_bytes = uint64_t{1} << 20;
  options.part_bytes_max = 512 * 1024;
  options.inflight_bytes_max = uint64_t{4} << 20;
  StartNode(options);
  TestClient& client = Connect();
  // Two large blocks that a lease pins, then one more.
  const Chain held{.first = 1, .blocks = 2, .heads = 128};
  ASSERT_THAT(Put(client, held), ElementsAre(kOk, kOk));
  const std::string lease = Acquire(client, held).lease();
  ASSERT_EQ(lease.size(), 16u);
  const Chain more{.first = 10, .blocks = 1, .heads = 128};
  const Chain small{.first = 20};
  EXPECT_THAT(Put(client, more), ElementsAre(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Put(client, small), ElementsAre(kOk)) << "the node lives and takes what fits";
  EXPECT_EQ(PutParts("no_space"), 1);
  Release(client, lease);
  EXPECT_THAT(Put(client, more), ElementsAre(kOk)) << "evicts what nobody pins";
  RunFor(seconds(1));
  EXPECT_GE(Metric("tokura_evictions_total", {{"tier", "host"}, {"reason", "allocation"}}), 1);
  EXPECT_GE(Metric("tokura_block_residence_seconds", {{"tier", "host"}}), 1);
}

// ---- deadlines, cancels, lost clients ----

TEST_F(ServerRequestTest, PutPastItsDeadlineNeverCommits) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  PutTooLate(client, chain);
  EXPECT_EQ(Lookup(client, chain), 0u);
  EXPECT_EQ(Requests("put", "deadline_exceeded"), 1);
  EXPECT_EQ(PutParts("aborted"), 2);
  ExpectIdle();
  EXPECT_EQ(node_->accounting().used_bytes, 0u);
}

TEST_F(ServerRequestTest, AcceptedLateWritesWouldBecomeVisible) {
  PlantedBugs bugs;
  bugs.accept_late_write = true;
  StartNode(SmallOptions(), bugs);
  TestClient& client = Connect();
  const Chain chain;
  PutTooLate(client, chain);
  EXPECT_EQ(Lookup(client, chain), 1u);
}

TEST_F(ServerRequestTest, CancelledPutNeverBecomesVisible) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.shards = 2};
  const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain));
  client.Offer(sent.id, 0, {0, 0}, Part(chain, 0, {0, 0}));
  ASSERT_TRUE(RunUntil([&] { return PutParts("stored") == 1; }));
  node_host_->pool().Pause();
  client.Offer(sent.id, 0, {0, 1}, Part(chain, 0, {0, 1}));
  ASSERT_TRUE(RunUntil([&] { return Metric("tokura_queue_depth", {{"queue", "verify"}}) == 1; }));
  client.Cancel(sent.id);
  ASSERT_TRUE(RunUntil([&] { return Requests("cancel", "ok") == 1; }));
  node_host_->pool().Continue();
  RunFor(seconds(1));
  EXPECT_EQ(Lookup(client, chain), 0u);
  EXPECT_EQ(Requests("put", "cancelled"), 1);
  EXPECT_EQ(node_->accounting().used_bytes, 0u) << "what was stored of it is given up";
}

TEST_F(ServerRequestTest, LostWriterLeavesNothing) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  TestClient& other = Connect();
  const Chain chain{.blocks = 4, .shards = 2, .heads = 8};
  StartPut(client, chain);
  ASSERT_TRUE(RunUntil([&] { return PutParts("stored") >= 1; }));
  network_.Kill(client.host(), sim::SimNetwork::Death::kProcess);
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().connections == 1; }));
  RunFor(seconds(1));
  ExpectIdle();
  EXPECT_EQ(node_->accounting().incomplete_blocks, 0u);
  EXPECT_EQ(Requests("put", "unavailable"), 1);
  EXPECT_EQ(Metric("tokura_transport_errors_total", {{"status", "unavailable"}}), 1);
  EXPECT_THAT(Put(other, chain), ElementsAre(kOk, kOk, kOk, kOk));
}

TEST_F(ServerRequestTest, StoppedWriterIsCutOffAndItsRoomReturns) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const TimePoint start = scheduler_.Now();
  StartPut(client, {.blocks = 4, .heads = 64});
  // The node learns of the offers; then the client's process stops.
  ASSERT_TRUE(RunUntil([&] { return network_.activity(*node_host_).transfers > 0; }));
  client.host().Pause();
  network_.Cut("10.0.0.2", "10.0.0.1");
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().connections == 0; }));
  EXPECT_LT(scheduler_.Now() - start, SmallOptions().lease_age) << "dead_after comes first";
  ExpectIdle();
  network_.Mend("10.0.0.2", "10.0.0.1");
}

TEST_F(ServerRequestTest, OfferedPayloadStaysTheSameUntilItIsDelivered) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.heads = 16};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  const TestClient::Sent get = StartHeldGet(client, GetMessage(chain), seconds(5));
  Await(get);
  EXPECT_EQ(node_->accounting().pinned_forms, 1u);
  Remove(client, chain);
  // Go through the arena more than once: whatever is free is overwritten.
  for (uint64_t round = 1; round <= 6; ++round) {
    const Chain filler{.first = 100 * round, .blocks = 12, .heads = 32};
    for (const absl::StatusCode code : Put(client, filler)) {
      EXPECT_EQ(code, kOk);
    }
  }
  client.host().loop().Enter([&] { get.call->Receive(*get.call->payloads()[0]); });
  ExpectBytes(*get.call, chain);
  ExpectIdle();
  EXPECT_EQ(Lookup(client, chain), 0u);
}

TEST_F(ServerRequestTest, DeadlineEndsTheOffersOfAGet) {
  NodeOptions options = SmallOptions();
  OneTransferAtATime(options);
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 3};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  const TestClient::Sent get = StartHeldGet(client, GetMessage(chain), milliseconds(100));
  ASSERT_TRUE(RunUntil([&] { return get.call->payloads().size() == 1; }));
  EXPECT_EQ(node_->accounting().pinned_forms, 3u);
  ASSERT_TRUE(RunUntil([&] { return Requests("get", "deadline_exceeded") == 1; }));
  EXPECT_EQ(node_->accounting().pinned_forms, 1u) << "only what is on its way stays pinned";
  EXPECT_EQ(Metric("tokura_node_get_blocks_total", {{"result", "deadline_exceeded"}}), 2);
  client.host().loop().Enter([&] { get.call->payloads()[0]->offer.Reject(); });
  ExpectIdle();
  EXPECT_EQ(get.call->payloads().size(), 1u);
}

TEST_F(ServerRequestTest, CancelEndsTheOffersOfAGet) {
  NodeOptions options = SmallOptions();
  OneTransferAtATime(options);
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 3};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  const TestClient::Sent get = StartHeldGet(client, GetMessage(chain), seconds(5));
  ASSERT_TRUE(RunUntil([&] { return get.call->payloads().size() == 1; }));
  client.Cancel(get.id);
  ASSERT_TRUE(RunUntil([&] { return Requests("get", "cancelled") == 1; }));
  client.host().loop().Enter([&] { get.call->Receive(*get.call->payloads()[0]); });
  ExpectIdle();
  EXPECT_EQ(get.call->payloads().size(), 1u);
}

TEST_F(ServerRequestTest, ClientThatTakesNothingIsCutOffAfterLeaseAge) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk));
  const TestClient::Sent get = StartHeldGet(client, GetMessage(chain), milliseconds(200));
  ASSERT_TRUE(RunUntil([&] { return get.call->payloads().size() == 2; }));
  const TimePoint offered = scheduler_.Now();
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  EXPECT_GE(scheduler_.Now() - offered, SmallOptions().lease_age);
  EXPECT_LE(scheduler_.Now() - offered, SmallOptions().lease_age + milliseconds(300));
  EXPECT_EQ(Metric("tokura_node_connections_ended_total", {{"reason", "stuck"}}), 1);
  ExpectIdle();
}

TEST_F(ServerRequestTest, SlowWriterThatMakesProgressIsNotCutOff) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  sim::LinkConditions& link = network_.link("10.0.0.2", "10.0.0.1");
  link.bytes_per_second = 48 << 10;
  link.pieces_max = 64;
  const Chain chain{.blocks = 4, .heads = 64};
  const TimePoint start = scheduler_.Now();
  const TestClient::Sent put = StartPut(client, chain, seconds(20));
  EXPECT_THAT(PutCodes(put), ElementsAre(kOk, kOk, kOk, kOk));
  EXPECT_GT(scheduler_.Now() - start, SmallOptions().lease_age) << "too fast to tell anything";
  EXPECT_EQ(Metric("tokura_node_reservations_overdue_total"), 0);
  EXPECT_FALSE(client.down().has_value());
}

TEST_F(ServerRequestTest, PayloadThatWaitsBehindOthersIsNotStuckUntilTheMaximum) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain waits{.first = 1};
  const Chain moves{.first = 10};
  ASSERT_THAT(Put(client, waits), ElementsAre(kOk));
  ASSERT_THAT(Put(client, moves), ElementsAre(kOk));
  const TestClient::Sent held = StartHeldGet(client, GetMessage(waits), seconds(1));
  ASSERT_TRUE(RunUntil([&] { return held.call->payloads().size() == 1; }));
  const TimePoint offered = scheduler_.Now();
  while (!client.down().has_value() && scheduler_.Now() - offered < seconds(10)) {
    client.Send(net::Op::kGet, GetMessage(moves), milliseconds(500));
    RunFor(milliseconds(500));
  }
  EXPECT_TRUE(client.down().has_value()) << "a payload that is never taken pins its block for ever";
  EXPECT_GE(scheduler_.Now() - offered, SmallOptions().lease_age_max);
  EXPECT_LE(scheduler_.Now() - offered, SmallOptions().lease_age_max + seconds(1));
  ExpectIdle();
}

TEST_F(ServerRequestTest, StoppedReaderLeavesOthersAlone) {
  StartNode(SmallOptions());
  TestClient& stopped = Connect();
  TestClient& live = Connect();
  const Chain chain{.blocks = 4, .heads = 32};
  ASSERT_THAT(Put(live, chain), ElementsAre(kOk, kOk, kOk, kOk));
  const TestClient::Sent reading = stopped.Send(net::Op::kGet, GetMessage(chain));
  ASSERT_TRUE(RunUntil([&] { return !reading.call->payloads().empty(); }));
  stopped.host().Pause();
  TestCall& call = Await(live.Send(net::Op::kGet, GetMessage(chain), milliseconds(200)));
  EXPECT_EQ(call.As<proto::GetReply>().payloads(), 4u);
  ExpectBytes(call, chain);
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().connections == 1; }));
  ExpectIdle();
}

TEST_F(ServerRequestTest, DeadlineOfAGetIsBoundedLikeALease) {
  NodeOptions options = SmallOptions();
  options.lease_age = options.lease_age_max;
  OneTransferAtATime(options);
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 3};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  const TestClient::Sent get = StartHeldGet(client, GetMessage(chain), seconds(600));
  const TimePoint start = scheduler_.Now();
  EXPECT_TRUE(RunUntil([&] { return Requests("get", "deadline_exceeded") == 1; }));
  EXPECT_LE(scheduler_.Now() - start, options.lease_age_max + milliseconds(100));
  client.host().loop().Enter([&] { get.call->payloads()[0]->offer.Reject(); });
  ExpectIdle();
}

TEST_F(ServerRequestTest, StoppedPeerLeavesRoomForTheLargestPartOfAnother) {
  NodeOptions options = SmallOptions();
  options.part_bytes_max = Part({}, 0, {0, 0}).size();
  options.inflight_bytes_max = 1;  // raised to what two parts need
  StartNode(options);
  TestClient& stopped = Connect();
  TestClient& live = Connect();
  const Chain chain{.blocks = 3};
  ASSERT_THAT(Put(live, chain), ElementsAre(kOk, kOk, kOk));
  const TestClient::Sent held = StartHeldGet(stopped, GetMessage(chain), seconds(5));
  ASSERT_TRUE(RunUntil([&] { return held.call->payloads().size() == 1; }));
  TestCall& call = Await(live.Send(net::Op::kGet, GetMessage(chain), milliseconds(500)));
  EXPECT_THAT(Codes(call.As<proto::GetReply>().statuses()), ElementsAre(kOk, kOk, kOk));
  ExpectBytes(call, chain);
}

TEST_F(ServerRequestTest, CodecsOfThePutAreThoseOfThisBuild) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  proto::PutRequest put = PutMessage(chain);
  put.set_codec("made-up");
  EXPECT_EQ(Await(client.Send(net::Op::kPut, put)).status().code(),
            absl::StatusCode::kInvalidArgument);
  put.set_codec("raw+raw");  // another name of raw
  const TestClient::Sent sent = client.Send(net::Op::kPut, put);
  client.Offer(sent.id, 0, {0, 0}, Part(chain, 0, {0, 0}));
  EXPECT_THAT(PutCodes(sent), ElementsAre(kOk));
}

TEST_F(ServerRequestTest, OffersOfAFailedBlockAreRejectedAtOnce) {
  NodeOptions options = SmallOptions();
  OneTransferAtATime(options);
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 2, .shards = 2};
  const TestClient::Sent put = client.Send(net::Op::kPut, PutMessage(chain));
  client.Offer(put.id, 0, {0, 0}, Part(chain, 0, {0, 0}));
  client.Offer(put.id, 1, {0, 0}, Part(chain, 1, {0, 0}));
  client.Offer(put.id, 1, {0, 9}, Part(chain, 1, {0, 9}));  // not announced
  client.host().Pause();  // The first transfer does not end, so the second waits for its turn.
  ASSERT_TRUE(RunUntil([&] { return PutParts("invalid") == 1; }, milliseconds(500)));
  EXPECT_EQ(PutParts("aborted"), 1);
  client.host().Continue();
  client.Cancel(put.id);
  ExpectIdle();
}

TEST_F(ServerRequestTest, HeldPartThatItsWriterGivesUpIsNotOk) {
  StartNode(SmallOptions());
  TestClient& first = Connect();
  TestClient& second = Connect();
  const Chain chain{.shards = 2};
  const TestClient::Sent gives_up = first.Send(net::Op::kPut, PutMessage(chain));
  first.Offer(gives_up.id, 0, {0, 0}, Part(chain, 0, {0, 0}));
  ASSERT_TRUE(RunUntil([&] { return PutParts("stored") == 1; }));
  const TestClient::Sent relies = second.Send(net::Op::kPut, PutMessage(chain));
  second.Offer(relies.id, 0, {0, 0}, Part(chain, 0, {0, 0}));
  ASSERT_TRUE(RunUntil([&] { return PutParts("held") == 1; }));
  first.Cancel(gives_up.id);
  ASSERT_TRUE(RunUntil([&] { return Requests("put", "cancelled") == 1; }));
  second.Offer(relies.id, 0, {0, 1}, Part(chain, 0, {0, 1}));
  EXPECT_THAT(PutCodes(relies), ElementsAre(absl::StatusCode::kAborted));
  ExpectIdle();
  EXPECT_EQ(node_->accounting().used_bytes, 0u);
}

}  // namespace
}  // namespace tokura::node
