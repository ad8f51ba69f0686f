// The node behind its protocol, on the simulator: greeting, limits, drain, health.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/node/server_request_testing.h"

namespace tokura::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST_F(ServerRequestTest, FarAboveTheLimitConnectionsAreNotEvenAccepted) {
  constexpr size_t kMany = 100;  // the node says why to 64 at a time
  NodeOptions options = SmallOptions();
  options.connections_max = 1;
  StartNode(options);
  TestClient& first = Connect();
  const size_t before = clients_.size();
  for (size_t i = 0; i < kMany; ++i) {
    // None is waited for: all come before the node has closed the first of them.
    TestClient::Options one;
    one.name = absl::StrCat("client", i);
    clients_.push_back(std::make_unique<TestClient>(network_, address_, std::move(one)));
  }
  const auto fresh = std::span(clients_).subspan(before);
  ASSERT_TRUE(RunUntil([&] {
    return std::all_of(fresh.begin(), fresh.end(),
                       [](const auto& client) { return client->down().has_value(); });
  }));
  const auto told = std::count_if(fresh.begin(), fresh.end(), [](const auto& client) {
    return absl::IsResourceExhausted(*client->down());
  });
  EXPECT_GT(told, 0);
  EXPECT_LT(told, static_cast<ptrdiff_t>(kMany));
  EXPECT_EQ(Metric("tokura_node_connections_ended_total", {{"reason", "limit"}}), kMany);
  EXPECT_FALSE(first.down().has_value());
}

TEST_F(ServerRequestTest, RefusesAnEndlessTenantName) {
  StartNode(SmallOptions());
  TestClient::Options options;
  options.tenant = std::string(257, 'x');
  TestClient& client = Connect(options);
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  EXPECT_EQ(client.down()->code(), absl::StatusCode::kInvalidArgument);
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

TEST_F(ServerRequestTest, PartsUnderWayPerConnectionAreBounded) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain half{.first = 1, .blocks = 16, .group_mask = 255, .shards = 256};  // 32,768 parts
  const Chain other{.first = 100, .blocks = 16, .group_mask = 255, .shards = 256};
  const TestClient::Sent first = client.Send(net::Op::kPut, PutMessage(half));
  client.Send(net::Op::kPut, PutMessage(other));
  EXPECT_EQ(Await(client.Send(net::Op::kPut, PutMessage({.first = 200}))).status().code(),
            absl::StatusCode::kResourceExhausted);
  client.Cancel(first.id);
  EXPECT_THAT(Put(client, {.first = 200}), ElementsAre(kOk));
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

TEST_F(ServerRequestTest, RequestsForCoordinatorsAreUnimplemented) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  for (const net::Op op : {net::Op::kLocate, net::Op::kPlan, net::Op::kWatch, net::Op::kNodes,
                           net::Op::kRegister, net::Op::kReport, net::Op::kInventory}) {
    EXPECT_EQ(Await(client.Send(op, proto::StatRequest())).status().code(),
              absl::StatusCode::kUnimplemented);
  }
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
  EXPECT_THAT(PutCodes(sent), ElementsAre(kOk));
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
  const TestClient::Sent get = StartHeldGet(client, GetMessage(chain), seconds(5));
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
  const TestClient::Sent get = StartHeldGet(client, GetMessage(chain), seconds(60));
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
  expect_invalid([](NodeOptions& o) { o.lease_age_max = std::chrono::hours(25); });
  expect_invalid([](NodeOptions& o) { o.incomplete_age = std::chrono::hours(25); });
  expect_invalid([](NodeOptions& o) { o.heartbeat = o.dead_after = std::chrono::hours(25); });
  expect_invalid([](NodeOptions& o) { o.drain_timeout = std::chrono::hours(25); });
  expect_invalid([](NodeOptions& o) { o.drain_timeout = -seconds(1); });
}

}  // namespace
}  // namespace tokura::node
