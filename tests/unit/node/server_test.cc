// The node behind its protocol, on the simulator: what clients ask, in and out of order, and what
// it leaves behind when they stop, die or break the rules.

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/node/server_testing.h"
#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<absl::StatusCode> Codes(const std::string& statuses) {
  std::vector<absl::StatusCode> codes;
  for (const char status : statuses) {
    codes.push_back(static_cast<absl::StatusCode>(status));
  }
  return codes;
}

constexpr auto kOk = absl::StatusCode::kOk;

// What a test puts: `blocks` blocks of a chain with numbers from `first`.
struct Chain {
  uint64_t first = 1;
  uint32_t blocks = 1;
  uint64_t content = 1;
  uint32_t group_mask = 1;
  uint32_t shards = 1;
  uint32_t heads = 1;  // of every part: its size
};

class ServerRequestTest : public ServerTest {
 protected:
  static kernels::PartIdentity Identity(const Chain& chain, uint32_t block, PartId part) {
    return {Space(), Key(chain.first + block), Content(chain.content), part};
  }
  static std::vector<std::byte> Part(const Chain& chain, uint32_t block, PartId part) {
    const uint64_t seed =
        (chain.first + block) * 1000003 + chain.content * 10007 + part.group * 101u + part.shard;
    return MakePart(Identity(chain, block, part), seed, chain.heads);
  }
  static proto::PutRequest PutMessage(const Chain& chain) {
    proto::PutRequest put;
    put.set_fingerprint(IdBytes(Space()));
    put.set_codec("raw");
    put.set_group_mask(chain.group_mask);
    put.set_shards(chain.shards);
    put.set_shard_count(chain.shards);
    for (uint32_t i = 0; i < chain.blocks; ++i) {
      proto::PutBlock* block = put.add_blocks();
      block->set_key(IdBytes(Key(chain.first + i)));
      if (i > 0) {
        block->set_parent(IdBytes(Key(chain.first + i - 1)));
      }
      block->set_position(i);
      block->set_content_id(IdBytes(Content(chain.content)));
    }
    return put;
  }
  static std::string Keys(const Chain& chain) {
    std::string keys;
    for (uint32_t i = 0; i < chain.blocks; ++i) {
      keys += IdBytes(Key(chain.first + i));
    }
    return keys;
  }
  static proto::GetRequest GetMessage(const Chain& chain) {
    proto::GetRequest get;
    get.set_fingerprint(IdBytes(Space()));
    get.set_keys(Keys(chain));
    return get;
  }
  template <typename Visit>
  static void ForEachPart(const Chain& chain, Visit visit) {
    for (uint32_t block = 0; block < chain.blocks; ++block) {
      for (uint8_t group = 0; group < 8; ++group) {
        for (uint32_t shard = 0; (chain.group_mask >> group & 1) != 0 && shard < chain.shards;
             ++shard) {
          visit(block, PartId{group, static_cast<uint8_t>(shard)});
        }
      }
    }
  }
  TestClient::Sent StartPut(TestClient& client, const Chain& chain,
                            Duration deadline = seconds(5)) {
    const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain), deadline);
    ForEachPart(chain, [&](uint32_t block, PartId part) {
      client.Offer(sent.id, block, part, Part(chain, block, part));
    });
    return sent;
  }
  std::vector<absl::StatusCode> Put(TestClient& client, const Chain& chain) {
    return Codes(Await(StartPut(client, chain)).As<proto::PutReply>().statuses());
  }
  uint32_t Lookup(TestClient& client, const Chain& chain) {
    proto::LookupRequest lookup;
    lookup.set_fingerprint(IdBytes(Space()));
    lookup.set_keys(Keys(chain));
    return Await(client.Send(net::Op::kLookup, lookup)).As<proto::LookupReply>().prefix_blocks();
  }
  proto::AcquireReply Acquire(TestClient& client, const Chain& chain) {
    proto::AcquireRequest acquire;
    acquire.set_fingerprint(IdBytes(Space()));
    acquire.set_keys(Keys(chain));
    return Await(client.Send(net::Op::kAcquire, acquire)).As<proto::AcquireReply>();
  }
  bool Renew(TestClient& client, const std::string& lease) {
    proto::RenewRequest renew;
    renew.set_leases(lease);
    return Await(client.Send(net::Op::kRenew, renew)).As<proto::RenewReply>().held(0);
  }
  void Release(TestClient& client, const std::string& lease) {
    proto::ReleaseRequest release;
    release.set_leases(lease);
    EXPECT_TRUE(Await(client.Send(net::Op::kRelease, release)).status().ok());
  }
  void Remove(TestClient& client, const Chain& chain) {
    proto::RemoveRequest remove;
    remove.set_fingerprint(IdBytes(Space()));
    remove.set_keys(Keys(chain));
    EXPECT_TRUE(Await(client.Send(net::Op::kRemove, remove)).status().ok());
  }
  // Every payload of an answered GET arrived and has the bytes that were put.
  void ExpectBytes(TestCall& call, const Chain& chain) {
    EXPECT_TRUE(RunUntil([&] { return Arrived(call); }));
    for (const auto& payload : call.payloads()) {
      const PartId part{static_cast<uint8_t>(payload->frame.group),
                        static_cast<uint8_t>(payload->frame.shard)};
      ASSERT_TRUE(payload->done.has_value());
      EXPECT_TRUE(payload->done->ok()) << *payload->done;
      EXPECT_EQ(payload->bytes, Part(chain, payload->frame.index, part));
    }
  }
  static bool Arrived(TestCall& call) {
    for (const auto& payload : call.payloads()) {
      if (!payload->done) {
        return false;
      }
    }
    return true;
  }
  double PutParts(const std::string& result) {
    return Metric("tokura_node_put_parts_total", {{"result", result}});
  }
  double Requests(const std::string& op, const std::string& result) {
    return Metric("tokura_node_requests_total", {{"op", op}, {"result", result}});
  }
};

// ---- HELLO ----

TEST_F(ServerRequestTest, WelcomeNamesNodeIncarnationAdminAndLimits) {
  NodeOptions options = SmallOptions();
  options.admin = {"10.0.0.1", 9000};
  options.keys_max = 100;
  options.blocks_max = 50;
  StartNode(options);
  TestClient& client = Connect();
  ASSERT_TRUE(client.welcome());
  EXPECT_EQ(client.welcome()->node(), "node-a");
  EXPECT_EQ(client.welcome()->incarnation(), node_->incarnation());
  EXPECT_GT(node_->incarnation(), 0u);
  EXPECT_EQ(client.welcome()->admin(), "10.0.0.1:9000");
  EXPECT_EQ(client.welcome()->limits().keys_max(), 100u);
  EXPECT_EQ(client.welcome()->limits().blocks_max(), 50u);
  EXPECT_EQ(client.welcome()->limits().part_bytes_max(), options.part_bytes_max);
  EXPECT_EQ(client.welcome()->limits().lease_age_us(), 2'000'000u);
  EXPECT_EQ(node_->accounting().connections, 1u);
  EXPECT_EQ(Metric("tokura_transport_endpoints", {{"state", "open"}}), 1);
}

TEST_F(ServerRequestTest, RefusesWhenAClientKnowsAHigherIncarnation) {
  StartNode(SmallOptions());
  TestClient::Options options;
  options.fenced_below = node_->incarnation() + 1;
  TestClient& fenced = Connect(options);
  ASSERT_TRUE(RunUntil([&] { return fenced.down().has_value(); }));
  EXPECT_EQ(fenced.down()->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(fenced.down()->message()), HasSubstr("fenced"));
  EXPECT_TRUE(RunUntil([&] {
    return Metric("tokura_node_connections_ended_total", {{"reason", "refused"}}) == 1;
  }));
  options.fenced_below = node_->incarnation();
  EXPECT_TRUE(Connect(options).welcome());
}

TEST_F(ServerRequestTest, RefusesConnectionsAboveTheLimitReadably) {
  NodeOptions options = SmallOptions();
  options.connections_max = 1;
  StartNode(options);
  TestClient& first = Connect();
  TestClient& second = Connect();
  ASSERT_TRUE(RunUntil([&] { return second.down().has_value(); }));
  EXPECT_EQ(second.down()->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.down()->message()), HasSubstr("at most 1 connections"));
  EXPECT_EQ(Metric("tokura_node_connections_ended_total", {{"reason", "limit"}}), 1);
  first.Close(net::CloseMode::kFlush);
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().connections == 0; }));
  EXPECT_TRUE(Connect().welcome());
}

TEST_F(ServerRequestTest, RefusesAnEndlessTenantName) {
  StartNode(SmallOptions());
  TestClient::Options options;
  options.tenant = std::string(257, 'x');
  TestClient& client = Connect(options);
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  EXPECT_EQ(client.down()->code(), absl::StatusCode::kInvalidArgument);
}

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
  get.set_layer_count(100);  // Cut to what the group has.
  TestCall& last = Await(client.Send(net::Op::kGet, get));
  ASSERT_TRUE(RunUntil([&] { return Arrived(last); }));
  EXPECT_TRUE(
      reader->VerifyLayer(2, std::span(last.payloads()[0]->bytes).subspan(info.prefix_bytes)).ok());
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
  EXPECT_THAT(Codes(Await(client.Send(net::Op::kGet, get)).As<proto::GetReply>().statuses()),
              ElementsAre(absl::StatusCode::kNotFound));
  get.set_group_mask(1);
  get.set_first_shard(1);
  get.set_shard_count(2);
  EXPECT_THAT(Codes(Await(client.Send(net::Op::kGet, get)).As<proto::GetReply>().statuses()),
              ElementsAre(absl::StatusCode::kInvalidArgument));
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
  EXPECT_THAT(Codes(Await(client.Send(net::Op::kGet, get)).As<proto::GetReply>().statuses()),
              ElementsAre(absl::StatusCode::kNotFound));
  get.set_content_ids(IdBytes(Content(4)));
  EXPECT_THAT(Codes(Await(client.Send(net::Op::kGet, get)).As<proto::GetReply>().statuses()),
              ElementsAre(kOk));
  get.set_content_ids(std::string(16, '\0'));
  EXPECT_THAT(Codes(Await(client.Send(net::Op::kGet, get)).As<proto::GetReply>().statuses()),
              ElementsAre(kOk));
}

TEST_F(ServerRequestTest, SecondPutOfAFormIsAnsweredWithoutATransfer) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  ASSERT_THAT(Put(client, {.content = 1}), ElementsAre(kOk));
  const double received = Metric("tokura_node_received_bytes_total");
  const Chain again{.content = 2};
  const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(again));
  const auto outcome = client.Offer(sent.id, 0, {}, Part(again, 0, {}));
  EXPECT_THAT(Codes(Await(sent).As<proto::PutReply>().statuses()), ElementsAre(kOk));
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
  std::vector<std::byte> damaged = Part(chain, 0, {});
  damaged[damaged.size() - 20] ^= std::byte{0x10};
  client.Offer(sent.id, 0, {}, damaged);
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

TEST_F(ServerRequestTest, SkippedChecksumsWouldLetDamageIn) {
  PlantedBugs bugs;
  bugs.skip_crc = true;
  StartNode(SmallOptions(), bugs);
  TestClient& client = Connect();
  const Chain chain;
  const TestClient::Sent sent = client.Send(net::Op::kPut, PutMessage(chain));
  std::vector<std::byte> damaged = Part(chain, 0, {});
  damaged[damaged.size() - 20] ^= std::byte{0x10};
  client.Offer(sent.id, 0, {}, damaged);
  EXPECT_THAT(Codes(Await(sent).As<proto::PutReply>().statuses()), ElementsAre(kOk));
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
    EXPECT_THAT(Codes(Await(sent).As<proto::PutReply>().statuses()),
                ElementsAre(absl::StatusCode::kDataLoss));
  }
  // Another codec than announced.
  proto::PutRequest put = PutMessage(chain);
  put.set_codec("kivi4");
  const TestClient::Sent sent = client.Send(net::Op::kPut, put);
  client.Offer(sent.id, 0, {}, Part(chain, 0, {}));
  EXPECT_THAT(Codes(Await(sent).As<proto::PutReply>().statuses()),
              ElementsAre(absl::StatusCode::kDataLoss));
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
  EXPECT_THAT(Codes(Await(sent).As<proto::PutReply>().statuses()),
              ElementsAre(invalid, invalid, invalid));
  const TestClient::Sent twice = client.Send(net::Op::kPut, PutMessage({.shards = 2}));
  client.Offer(twice.id, 0, {}, std::vector<std::byte>(100));
  client.Offer(twice.id, 0, {}, std::vector<std::byte>(100));
  EXPECT_THAT(Codes(Await(twice).As<proto::PutReply>().statuses()), ElementsAre(invalid));
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
  node_host_->pool().Pause();
  StartPut(client, chain, milliseconds(100));
  RunFor(milliseconds(200));
  node_host_->pool().Continue();
  RunFor(seconds(1));
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
  node_host_->pool().Pause();
  StartPut(client, chain, milliseconds(100));
  RunFor(milliseconds(200));
  node_host_->pool().Continue();
  RunFor(seconds(1));
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
  const TestClient::Sent get =
      client.Send(net::Op::kGet, GetMessage(chain), seconds(5), TestCall::Payloads::kHold);
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
  options.inflight_bytes_max = 1;  // one payload at a time
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 3};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  const TestClient::Sent get =
      client.Send(net::Op::kGet, GetMessage(chain), milliseconds(100), TestCall::Payloads::kHold);
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
  options.inflight_bytes_max = 1;
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 3};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  const TestClient::Sent get =
      client.Send(net::Op::kGet, GetMessage(chain), seconds(5), TestCall::Payloads::kHold);
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
  const TestClient::Sent get =
      client.Send(net::Op::kGet, GetMessage(chain), milliseconds(200), TestCall::Payloads::kHold);
  ASSERT_TRUE(RunUntil([&] { return get.call->payloads().size() == 2; }));
  const TimePoint offered = scheduler_.Now();
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  EXPECT_GE(scheduler_.Now() - offered, SmallOptions().lease_age);
  EXPECT_LE(scheduler_.Now() - offered, SmallOptions().lease_age + milliseconds(300));
  EXPECT_EQ(Metric("tokura_node_connections_ended_total", {{"reason", "stuck"}}), 1);
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
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().leases == 0; })) << "goes with its owner";
  ExpectIdle();
  get.set_lease(lease);
  EXPECT_THAT(Codes(Await(worker.Send(net::Op::kGet, get)).As<proto::GetReply>().statuses()),
              ElementsAre(kOk, kOk))
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
  options.inflight_bytes_max = 1;
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk));
  proto::GetRequest get = GetMessage(chain);
  get.set_lease(Acquire(client, chain).lease());
  const TestClient::Sent sent =
      client.Send(net::Op::kGet, get, seconds(60), TestCall::Payloads::kHold);
  ASSERT_TRUE(RunUntil([&] { return sent.call->payloads().size() == 1; }));
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  EXPECT_EQ(sent.call->payloads().size(), 1u);
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

// ---- limits ----

TEST_F(ServerRequestTest, BlocksUnderWayPerConnectionAreBounded) {
  NodeOptions options = SmallOptions();
  options.blocks_max = 4;
  StartNode(options);
  TestClient& client = Connect();
  std::vector<TestClient::Sent> puts;
  for (uint64_t i = 0; i < 5; ++i) {  // Announced, never offered.
    puts.push_back(client.Send(net::Op::kPut, PutMessage({.first = 10 * i, .blocks = 4})));
  }
  EXPECT_EQ(Await(puts[4]).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Metric("tokura_queue_rejected_total", {{"queue", "blocks"}}), 1);
  client.Cancel(puts[0].id);
  EXPECT_THAT(Put(client, {.first = 90, .blocks = 4}), ElementsAre(kOk, kOk, kOk, kOk));
  for (int i = 1; i < 4; ++i) {
    client.Cancel(puts[static_cast<size_t>(i)].id);
  }
  ExpectIdle();
}

TEST_F(ServerRequestTest, StatTellsTotalsAndForms) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk));
  proto::StatRequest stat;
  auto reply = Await(client.Send(net::Op::kStat, stat)).As<proto::StatReply>();
  EXPECT_EQ(reply.node(), "node-a");
  EXPECT_EQ(reply.blocks(), 2u);
  EXPECT_EQ(reply.block_stats_size(), 0);
  EXPECT_EQ(reply.capacity_bytes(), SmallOptions().host_bytes);
  stat.set_fingerprint(IdBytes(Space()));
  stat.set_keys(Keys({.blocks = 3}));
  reply = Await(client.Send(net::Op::kStat, stat)).As<proto::StatReply>();
  ASSERT_EQ(reply.block_stats_size(), 3);
  ASSERT_EQ(reply.block_stats(0).forms_size(), 1);
  EXPECT_EQ(reply.block_stats(0).forms(0).codec(), "raw");
  EXPECT_EQ(reply.block_stats(0).forms(0).content_id(), IdBytes(Content(1)));
  EXPECT_EQ(reply.block_stats(0).forms(0).fidelity(), 1u);
  EXPECT_EQ(reply.block_stats(2).forms_size(), 0);
}

TEST_F(ServerRequestTest, ReservedOpsAreUnimplemented) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  EXPECT_EQ(Await(client.Send(net::Op::kTouch, proto::TouchBatch())).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(ServerRequestTest, IncompleteBlocksExpireAndAreNeverVisible) {
  StartNode(SmallOptions());
  TestClient& writer = Connect();
  // One of two ranks puts its shard; the other never comes.
  const Chain chain{.shards = 2};
  proto::PutRequest half = PutMessage(chain);
  half.set_shard_count(1);
  const TestClient::Sent sent = writer.Send(net::Op::kPut, half);
  writer.Offer(sent.id, 0, {0, 0}, Part(chain, 0, {0, 0}));
  EXPECT_THAT(Codes(Await(sent).As<proto::PutReply>().statuses()), ElementsAre(kOk));
  EXPECT_EQ(Lookup(writer, chain), 0u);
  EXPECT_EQ(node_->accounting().incomplete_blocks, 1u);
  RunFor(SmallOptions().incomplete_age + seconds(1));
  EXPECT_EQ(node_->accounting().incomplete_blocks, 0u);
  EXPECT_EQ(node_->accounting().used_bytes, 0u);
  EXPECT_EQ(Metric("tokura_evictions_total", {{"tier", "host"}, {"reason", "incomplete"}}), 1);
}

TEST_F(ServerRequestTest, EvictsAboveTheWatermark) {
  NodeOptions options = SmallOptions();
  options.high_watermark = 0.5;
  options.low_watermark = 0.25;
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain{.blocks = 110, .heads = 8};  // Nearly 60 % of the arena.
  for (const absl::StatusCode code : Put(client, chain)) {
    EXPECT_EQ(code, kOk);
  }
  ASSERT_TRUE(RunUntil([&] { return node_->accounting().used_bytes <= options.host_bytes / 4; }));
  EXPECT_GT(Lookup(client, chain), 0u) << "the tail goes first";
  RunFor(seconds(1));
  EXPECT_GT(Metric("tokura_evictions_total", {{"tier", "host"}, {"reason", "watermark"}}), 0);
  EXPECT_GT(Metric("tokura_evicted_bytes_total", {{"tier", "host"}, {"reason", "watermark"}}), 0);
}

// ---- drain, health ----

TEST_F(ServerRequestTest, DrainFinishesWhatIsOutstandingAndRefusesTheRest) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk));
  const TestClient::Sent get =
      client.Send(net::Op::kGet, GetMessage(chain), seconds(5), TestCall::Payloads::kHold);
  ASSERT_TRUE(RunUntil([&] { return get.call->payloads().size() == 2; }));
  EXPECT_TRUE(node_->Ready().ok());
  bool drained = false;
  node_host_->loop().Enter([&] { node_->Drain([&] { drained = true; }); });
  EXPECT_FALSE(node_->Ready().ok());
  EXPECT_TRUE(node_->Healthy().ok());
  ASSERT_TRUE(RunUntil([&] { return client.goodbye(); }));
  EXPECT_EQ(Await(client.Send(net::Op::kGet, GetMessage(chain))).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(drained);
  client.host().loop().Enter([&] {
    get.call->Receive(*get.call->payloads()[0]);
    get.call->Receive(*get.call->payloads()[1]);
  });
  ASSERT_TRUE(RunUntil([&] { return drained; }));
  ExpectBytes(*get.call, chain);
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  node_host_->loop().Enter([&] { node_.reset(); });
}

TEST_F(ServerRequestTest, DrainIsBounded) {
  NodeOptions options = SmallOptions();
  options.lease_age = options.lease_age_max = seconds(60);
  options.drain_timeout = seconds(3);
  StartNode(options);
  TestClient& client = Connect();
  const Chain chain;
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  const TestClient::Sent get =
      client.Send(net::Op::kGet, GetMessage(chain), seconds(60), TestCall::Payloads::kHold);
  ASSERT_TRUE(RunUntil([&] { return get.call->payloads().size() == 1; }));
  const TimePoint start = scheduler_.Now();
  bool drained = false;
  node_host_->loop().Enter([&] { node_->Drain([&] { drained = true; }); });
  ASSERT_TRUE(RunUntil([&] { return drained; }));
  EXPECT_GE(scheduler_.Now() - start, seconds(3));
  EXPECT_LE(scheduler_.Now() - start, seconds(4));
  node_host_->loop().Enter([&] { node_.reset(); });
}

TEST_F(ServerRequestTest, UnhealthyWhenALoopStopsTicking) {
  StartNode(SmallOptions(), {}, /*loops=*/2);
  RunFor(seconds(1));
  EXPECT_TRUE(node_->Healthy().ok()) << node_->Healthy();
  node_host_->Pause();
  RunFor(seconds(10));
  EXPECT_FALSE(node_->Healthy().ok());
  EXPECT_FALSE(node_->Ready().ok());
  node_host_->Continue();
  EXPECT_TRUE(RunUntil([&] { return node_->Healthy().ok(); }));
}

TEST(NodeOptionsTest, RejectsWhatCannotWork) {
  EXPECT_TRUE(ValidateNodeOptions({}).ok());
  const auto expect_invalid = [](auto change) {
    NodeOptions options;
    change(options);
    EXPECT_EQ(ValidateNodeOptions(options).code(), absl::StatusCode::kInvalidArgument);
  };
  expect_invalid([](NodeOptions& o) { o.name = ""; });
  expect_invalid([](NodeOptions& o) { o.low_watermark = 0.99; });
  expect_invalid([](NodeOptions& o) { o.high_watermark = 1.5; });
  expect_invalid([](NodeOptions& o) { o.lease_age = Duration::zero(); });
  expect_invalid([](NodeOptions& o) { o.lease_age_max = seconds(1); });
  expect_invalid([](NodeOptions& o) { o.dead_after = milliseconds(1); });
  expect_invalid([](NodeOptions& o) { o.part_bytes_max = o.host_bytes + 1; });
  expect_invalid([](NodeOptions& o) { o.keys_max = 1u << 20; });
  expect_invalid([](NodeOptions& o) { o.blocks_max = o.keys_max + 1; });
  expect_invalid([](NodeOptions& o) { o.io_threads = 0; });
  expect_invalid([](NodeOptions& o) { o.inflight_bytes_max = 0; });
}

}  // namespace
}  // namespace tokura::node
