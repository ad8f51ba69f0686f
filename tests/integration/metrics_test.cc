// Every metric says something: each family of a node and of a client moves under what it counts.
// Nodes and clients log here what the scenarios provoke.

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <signal.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "client-lib/src/ring.h"
#include "common/check.h"
#include "tests/integration/metrics_watch.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/process_memory.h"
#include "tests/integration/raw_channel.h"
#include "tests/integration/writers.h"
#include "tests/unit/client/profile_testing.h"

namespace tokura::integration {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::UnorderedElementsAre;

void ExpectMoves(MetricsWatch& watch, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    EXPECT_TRUE(WaitFor([&] { return watch.Moves(name); })) << name << " never moves";
  }
}

// Node-side series of one operation that ended in `result`.
std::string Requests(const std::string& op, const std::string& result = "ok") {
  return absl::StrCat("tokura_node_requests_total{op=\"", op, "\",result=\"", result, "\"}");
}

std::string WithLabel(const char* family, const char* label, const char* value) {
  return absl::StrCat(family, "{", label, "=\"", value, "\"}");
}

template <typename Id>
void AppendId(const Id& id, std::vector<std::byte>* bytes) {
  bytes->insert(bytes->end(), id.span().begin(), id.span().end());
}

// What stands in the header of every part of the match's first block, and nowhere else.
std::vector<std::byte> PartHeaderIds(const Match& match) {
  std::vector<std::byte> ids;
  AppendId(match.fingerprint, &ids);
  AppendId(match.keys[0], &ids);
  AppendId(match.content_ids[0], &ids);
  return ids;
}

// An announcement of `blocks` blocks of one part each that nobody else puts.
proto::PutRequest Announcement(uint32_t first, uint32_t blocks) {
  proto::PutRequest put;
  put.set_fingerprint(std::string(Fingerprint::kBytes, 'f'));
  put.set_codec("raw");
  put.set_group_mask(1);
  put.set_shards(1);
  put.set_shard_count(1);
  for (uint32_t i = first; i < first + blocks; ++i) {
    std::string id(BlockKey::kBytes, 'k');
    std::memcpy(id.data(), &i, sizeof(i));
    proto::PutBlock& block = *put.add_blocks();
    block.set_key(id);
    block.set_content_id(id);
  }
  return put;
}

class IgnoredCall final : public net::Call {
 public:
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status, std::span<const std::byte>) override {}
};

uint64_t SendPut(RawChannel& raw, uint32_t first, uint32_t blocks) {
  return raw.channel().Send(net::Op::kPut, Announcement(first, blocks), kNever,
                            std::make_shared<IgnoredCall>());
}

class NodeMetricsTest : public NodeTest {
 protected:
  static constexpr uint32_t kBlocks = 64;

  NodeMetricsTest()
      : node_(
            {"--blocks-max", std::to_string(kBlocks), "--inflight-bytes-max", "8MiB", "--lease-age",
             std::to_string(TOKURA_TIME_SCALE) + "s", "--heartbeat", "30s", "--dead-after", "60s"},
            NodeLogs::kErrors),
        watch_([this] {
          int status = 0;
          std::string text = node_.Http("/metrics", &status);
          EXPECT_EQ(status, 200);
          return text;
        }),
        client_(Connect({node_.data()})) {}

  Match Held(uint64_t seed) {
    const auto match = client_->Lookup(space_, MakeChain(*space_, seed, kBlocks));
    TOKURA_CHECK(match.ok());
    EXPECT_GT(match->blocks(), 0u);
    return *match;
  }

  void EveryOperation();
  void Leases();
  void Damage();
  void FullArena();
  void HalfABlock();
  void Announcements();
  void StalledTransfers();
  void BrokenProtocol();

  NodeUnderTest node_;
  MetricsWatch watch_;
  std::unique_ptr<Client> client_;
  const NamespaceRef space_ = *client_->OpenNamespace(TestSpace());
  KvMemory memory_{kBlocks};
  PolledTransport transport_;
};

void NodeMetricsTest::EveryOperation() {
  memory_.Fill(1);
  ASSERT_EQ(Put(*client_, 1, memory_, kBlocks), kBlocks);
  const Match match = Held(1);
  const auto miss = client_->Lookup(space_, MakeChain(*space_, 999, 1));
  ASSERT_TRUE(miss.ok() && miss->blocks() == 0);
  const auto held = client_->Acquire(space_, match);
  ASSERT_TRUE(held.ok()) << held.status();
  client_->Renew(*held);
  EXPECT_EQ(client_->Get(space_, *held, memory_.View()).prefix_ok(), kBlocks);
  client_->Release(*held);
  EXPECT_TRUE(client_->Stat().front().ok());
  ExpectMoves(watch_, {"tokura_tier_blocks", "tokura_tier_used_bytes", "tokura_tier_stored_bytes",
                       "tokura_tier_logical_bytes", "tokura_tier_largest_free_bytes",
                       "tokura_codec_held_bytes"});
  EXPECT_TRUE(client_->Remove(space_, match.keys).blocks.front().ok());
  for (const char* op : {"put", "lookup", "acquire", "renew", "get", "release", "stat", "remove"}) {
    ExpectMoves(watch_,
                {Requests(op), WithLabel("tokura_node_request_duration_seconds_count", "op", op)});
  }
  ExpectMoves(watch_, {"tokura_transport_endpoints", "tokura_node_received_bytes_total",
                       "tokura_node_sent_bytes_total",
                       "tokura_tier_lookups_total{result=\"hit\",tier=\"host\"}",
                       "tokura_tier_lookups_total{result=\"miss\",tier=\"none\"}",
                       WithLabel("tokura_node_get_blocks_total", "result", "ok"),
                       WithLabel("tokura_node_put_parts_total", "result", "stored"),
                       "tokura_evictions_total{reason=\"removed\",tier=\"host\"}",
                       "tokura_evicted_bytes_total{reason=\"removed\",tier=\"host\"}",
                       "tokura_block_residence_seconds"});
}

void NodeMetricsTest::Leases() {
  memory_.Fill(2);
  ASSERT_EQ(Put(*client_, 2, memory_, kBlocks), kBlocks);
  const auto held = client_->Acquire(space_, Held(2));
  ASSERT_TRUE(held.ok()) << held.status();
  for (const char* name : {"tokura_node_leases", "tokura_tier_pinned_bytes"}) {
    EXPECT_TRUE(WaitFor([&] {
      client_->Renew(*held);
      return watch_.Moves(name);
    })) << name;
  }
  ExpectMoves(watch_, {"tokura_node_leases_expired_total"});
}

void NodeMetricsTest::Damage() {
  memory_.Fill(3);
  ASSERT_EQ(Put(*client_, 3, memory_, kBlocks), kBlocks);
  const Match match = Held(3);
  ASSERT_GE(ProcessMemory(node_.process().pid()).Flip(PartHeaderIds(match)), 1u);
  // The node reads the header of a part only to cut layers out of it.
  GetOptions options;
  options.layers = 1;
  options.deadline = Scaled(seconds(5));
  EXPECT_EQ(client_->Get(space_, match, memory_.View(), options).prefix_ok(), 0u);
  ExpectMoves(watch_, {WithLabel("tokura_node_checksum_failures_total", "where", "stored"),
                       WithLabel("tokura_node_get_blocks_total", "result", "data_loss"),
                       "tokura_evictions_total{reason=\"damaged\",tier=\"host\"}"});
  // Elsewhere the client finds it, and has the node check.
  ASSERT_EQ(Put(*client_, 3, memory_, kBlocks), kBlocks);
  ASSERT_GE(ProcessMemory(node_.process().pid()).Flip(memory_.KeyRow(2, 9).first(64)), 1u);
  KvMemory target(kBlocks);
  options.layers = 0;
  EXPECT_EQ(client_->Get(space_, Held(3), target.View(), options).prefix_ok(), 0u);
  ExpectMoves(watch_, {WithLabel("tokura_node_suspect_blocks_total", "result", "ok")});
}

void NodeMetricsTest::FullArena() {
  const uint64_t puts = 2 * (uint64_t{32} << 20) / (memory_.block_bytes() * kBlocks);
  memory_.Fill(4);
  for (uint64_t seed = 100; seed < 100 + puts; ++seed) {
    Put(*client_, seed, memory_, kBlocks);
  }
  EXPECT_TRUE(WaitFor([&] {
    return watch_.Moves("tokura_evictions_total{reason=\"watermark\",tier=\"host\"}") ||
           watch_.Moves("tokura_evictions_total{reason=\"allocation\",tier=\"host\"}");
  }));
}

void NodeMetricsTest::HalfABlock() {
  const auto sharded = *client_->OpenNamespace(ShardedSpace());
  KvMemory memory(kRivalBlocks);
  EXPECT_EQ(PutShard(*client_, sharded, 1, 5, memory).stored(), kRivalBlocks);
  ExpectMoves(watch_, {"tokura_tier_incomplete_blocks"});
}

void NodeMetricsTest::Announcements() {
  RawChannel raw(transport_, node_.data(), SoundHello(transport_));
  std::vector<uint64_t> puts;
  for (uint32_t i = 0; i < 5; ++i) {  // One more than a connection may have under way.
    puts.push_back(SendPut(raw, i * kBlocks, kBlocks));
  }
  const auto moves = [&](const std::string& name) {
    EXPECT_TRUE(transport_.PollUntil([&] { return watch_.Moves(name); })) << name;
  };
  moves(WithLabel("tokura_queue_rejected_total", "queue", "blocks"));
  moves("tokura_node_inflight_requests");
  raw.channel().Cancel(puts[0]);
  moves(Requests("cancel"));
  moves(Requests("put", "cancelled"));
}

void NodeMetricsTest::StalledTransfers() {
  constexpr uint32_t kParts = 4;  // More than the node receives at the same time.
  std::vector<std::byte> memory(size_t{4} << 20);
  auto region = transport_->Register(memory);
  ASSERT_TRUE(region.ok()) << region.status();
  const net::RegisteredSpan garbage{region->get(), memory.data(), memory.size()};
  RawChannel raw(transport_, node_.data(), SoundHello(transport_));
  size_t done = 0;
  const auto offer = [&](uint64_t put, uint32_t index, net::RegisteredSpan bytes) {
    raw.channel().SendPayload(put, net::Op::kPut, index, PartId{}, std::span(&bytes, 1),
                              [&done](absl::Status) { ++done; });
  };
  offer(SendPut(raw, 1000, 1), 0, garbage.Sub(0, 4096));
  EXPECT_TRUE(transport_.PollUntil([&] {
    return watch_.Moves(WithLabel("tokura_node_checksum_failures_total", "where", "received"));
  }));
  const uint64_t put = SendPut(raw, 2000, kParts);
  for (uint32_t i = 0; i < kParts; ++i) {
    offer(put, i, garbage);
  }
  // Nobody polls: the node waits for bytes until it has had enough.
  ExpectMoves(watch_, {"tokura_tier_reserved_bytes", "tokura_queue_depth",
                       "tokura_node_reservations_overdue_total",
                       WithLabel("tokura_node_connections_ended_total", "reason", "stuck")});
  EXPECT_TRUE(transport_.PollUntil([&] { return raw.down() && done == 1 + kParts; }));
}

void NodeMetricsTest::BrokenProtocol() {
  auto options = SoundHello(transport_);
  options.hello.set_expected_node("another");
  const RawChannel refused(transport_, node_.data(), std::move(options));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.why())) << refused.why();
  options = SoundHello(transport_);
  options.hello.set_name(std::string(1000, 'x'));
  const RawChannel malformed(transport_, node_.data(), std::move(options));
  EXPECT_TRUE(absl::IsInvalidArgument(malformed.why())) << malformed.why();
  EXPECT_TRUE(WaitFor([&] {
    return node_.Metric(WithLabel("tokura_node_connections_ended_total", "reason", "refused")) == 2;
  }));
  RawChannel raw(transport_, node_.data(), SoundHello(transport_));
  raw.channel().Send(net::Op::kWelcome, proto::Welcome(), kNever, std::make_shared<IgnoredCall>());
  EXPECT_TRUE(transport_.PollUntil([&] { return raw.down(); }));
  ExpectMoves(watch_, {WithLabel("tokura_node_connections_ended_total", "reason", "refused"),
                       WithLabel("tokura_node_connections_ended_total", "reason", "violation"),
                       WithLabel("tokura_transport_errors_total", "status", "invalid_argument")});
}

TEST_F(NodeMetricsTest, EveryFamilyMoves) {
  EveryOperation();
  Leases();
  Damage();
  HalfABlock();
  FullArena();
  Announcements();
  StalledTransfers();
  BrokenProtocol();
  EXPECT_THAT(watch_.unmoved(),
              UnorderedElementsAre("tokura_build_info",             // says what is running
                                   "tokura_tier_capacity_bytes"));  // a setting
}

class ClientMetricsTest : public NodeTest {
 protected:
  static constexpr uint32_t kBlocks = 64;

  // A client whose metrics add to those of the others.
  std::unique_ptr<Client> ConnectWith(ClientOptions options) {
    auto client = Client::Create(std::move(options), registry_);
    TOKURA_CHECK(client.ok());
    const absl::Status ready = (*client)->WaitReady(seconds(20));
    EXPECT_TRUE(ready.ok()) << ready;
    return std::move(*client);
  }
  static std::string Serialize(const prometheus::Registry& registry) {
    return prometheus::TextSerializer().Serialize(registry.Collect());
  }
  double RingUsedBytes() const {
    double used = 0;
    for (const prometheus::MetricFamily& family : registry_->Collect()) {
      if (family.name == "tokura_client_ring_used_bytes") {
        used += family.metric.front().gauge.value;
      }
    }
    return used;
  }

  void EveryOperation();
  void Damage();
  void LatePayloads();
  void StoppedNode();
  void Fencing();
  void MissingProfile();

  NodeUnderTest first_{{"--name", "first"}, NodeLogs::kErrors};
  NodeUnderTest second_{{"--name", "second"}, NodeLogs::kErrors};
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<Client> client_ = ConnectWith(Options({first_.data(), second_.data()}));
  MetricsWatch watch_{[this] { return Serialize(*registry_); }};
  const NamespaceRef space_ = std::make_shared<const Namespace>(TestSpace());
  KvMemory memory_{kBlocks};
};

void ClientMetricsTest::EveryOperation() {
  memory_.Fill(1);
  // Behind the first tokens, which are stored raw anyway.
  const uint16_t not_a_number = 0x7e00;
  std::byte* const keys = memory_.View().groups[0].layers[0].k;
  std::memcpy(keys + memory_.KeyRow(0, 9).size() * 9, &not_a_number, sizeof(not_a_number));
  const TokenChain chain = MakeChain(*space_, 1, kBlocks);
  PutOptions put;
  put.codec = "kivi4";
  put.deadline = Scaled(seconds(10));
  ASSERT_EQ(client_->Put(space_, chain, memory_.View(), put).stored(), kBlocks);
  const auto match = client_->Lookup(space_, chain);
  ASSERT_TRUE(match.ok() && match->blocks() == kBlocks);
  const auto held = client_->Acquire(space_, *match);
  ASSERT_TRUE(held.ok()) << held.status();
  GetOptions get;
  get.deadline = Scaled(seconds(10));
  EXPECT_EQ(client_->Get(space_, *held, memory_.View(), get).prefix_ok(), kBlocks);
  client_->Release(*held);
  EXPECT_TRUE(client_->Stat().front().ok());
  client_->Remove(space_, match->keys);
  for (const char* op : {"put", "lookup", "acquire", "get", "stat", "remove"}) {
    ExpectMoves(watch_,
                {absl::StrCat("tokura_client_requests_total{op=\"", op, "\",result=\"ok\"}"),
                 WithLabel("tokura_client_request_duration_seconds_count", "op", op)});
  }
  ExpectMoves(watch_,
              {"tokura_client_blocks_total{op=\"get\",result=\"ok\"}",
               "tokura_client_blocks_total{op=\"put\",result=\"ok\"}",
               "tokura_client_received_bytes_total", "tokura_client_sent_bytes_total",
               WithLabel("tokura_client_logical_bytes_total", "op", "get"),
               WithLabel("tokura_client_logical_bytes_total", "op", "put"),
               "tokura_client_raw_fallback_layers_total", "tokura_client_declared_error_ratio"});
  for (const char* op : {"encode", "decode"}) {
    const std::string labels = absl::StrCat("{codec=\"kivi4\",op=\"", op, "\"}");
    ExpectMoves(watch_, {"tokura_client_codec_duration_seconds_count" + labels,
                         "tokura_client_codec_input_bytes_total" + labels,
                         "tokura_client_codec_output_bytes_total" + labels});
  }
}

void ClientMetricsTest::Damage() {
  memory_.Fill(2);
  ASSERT_EQ(Put(*client_, 2, memory_, kBlocks), kBlocks);
  const auto match = client_->Lookup(space_, MakeChain(*space_, 2, kBlocks));
  ASSERT_TRUE(match.ok() && match->blocks() == kBlocks);
  NodeUnderTest& holder = match->HolderOf(0)->node == "first" ? first_ : second_;
  const auto row = memory_.KeyRow(2, 9).first(64);
  ASSERT_GE(ProcessMemory(holder.process().pid()).Flip(row), 1u);
  KvMemory target(kBlocks);
  GetOptions get;
  get.deadline = Scaled(seconds(10));
  EXPECT_EQ(client_->Get(space_, *match, target.View(), get).prefix_ok(), 0u);
  // The other node is asked as well, and has nothing.
  ExpectMoves(watch_, {"tokura_client_data_loss_total", "tokura_client_retries_total",
                       "tokura_client_suspects_total{result=\"removed\"}"});
}

void ClientMetricsTest::LatePayloads() {
  memory_.Fill(3);
  ASSERT_EQ(Put(*client_, 3, memory_, kBlocks), kBlocks);
  const auto match = client_->Lookup(space_, MakeChain(*space_, 3, kBlocks));
  ASSERT_TRUE(match.ok() && match->blocks() == kBlocks);
  KvMemory target(kBlocks);
  // Cancelled while its first payloads arrive, or once more when they were faster.
  EXPECT_TRUE(WaitFor([&] {
    const auto handle = client_->StartGet(space_, *match, target.View());
    const TimePoint soon = SystemClock().Now() + milliseconds(100);
    while (RingUsedBytes() == 0 && SystemClock().Now() < soon) {
      std::this_thread::yield();
    }
    handle->Cancel();
    handle->Wait();
    return watch_.Moves("tokura_client_late_payloads_total");
  }));
}

void ClientMetricsTest::StoppedNode() {
  const size_t waiters_max = Ring::Options{}.waiters_max;
  ClientOptions options = Options({first_.data()});
  options.ring_bytes = options.part_bytes_max = 2 * memory_.block_bytes();
  options.operations_max = static_cast<uint32_t>(waiters_max) + 8;
  options.progress_timeout = options.dead_after = Scaled(seconds(3));
  const auto crowded = ConnectWith(options);
  options.operations_max = 1;
  const auto narrow = ConnectWith(options);
  first_.process().Stop();
  const TokenChain chain = MakeChain(*space_, 4, 1);
  PutOptions put;
  put.deadline = Scaled(seconds(3));
  std::vector<std::unique_ptr<PutHandle>> puts;
  puts.push_back(narrow->StartPut(space_, chain, memory_.View(), put));
  puts.push_back(narrow->StartPut(space_, chain, memory_.View(), put));
  ExpectMoves(watch_, {"tokura_client_operations_rejected_total", "tokura_client_inflight_requests",
                       "tokura_client_ring_used_bytes"});
  for (size_t i = 0; i < waiters_max + 8; ++i) {
    puts.push_back(crowded->StartPut(space_, chain, memory_.View(), put));
  }
  ExpectMoves(watch_, {"tokura_client_ring_waiters", "tokura_client_queue_rejected_total",
                       "tokura_client_links_lost_total", "tokura_client_breaker_opens_total",
                       WithLabel("tokura_client_nodes", "breaker", "open")});
  for (const auto& handle : puts) {
    handle->Wait();
  }
  first_.process().Signal(SIGCONT);
}

void ClientMetricsTest::Fencing() {
  EXPECT_TRUE(WaitFor([&] { return client_->Stat().front().ok(); })) << "the node is not back";
  const NodeUnderTest successor({"--name", "first"}, NodeLogs::kErrors);
  ASSERT_TRUE(client_->SetNodes({first_.data(), successor.data()}).ok());
  ExpectMoves(watch_, {"tokura_client_fenced_total", "tokura_client_refused_total"});
  EXPECT_TRUE(client_->SetNodes({second_.data()}).ok());
}

void ClientMetricsTest::MissingProfile() {
  const std::string path = FreshPath(".profile");
  std::ofstream(path, std::ios::binary) << kernels::SerializeProfile(ProfileFor(space_->spec()));
  ClientOptions options = Options({first_.data(), second_.data()});
  options.profiles.files = {path};
  auto writer = Client::Create(std::move(options));
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->WaitReady(seconds(20)).ok());
  const TokenChain chain = MakeChain(*space_, 5, kBlocks);
  PutOptions put;
  put.codec = "qserve4";
  put.deadline = Scaled(seconds(10));
  ASSERT_EQ((*writer)->Put(space_, chain, memory_.View(), put).stored(), kBlocks);
  const auto match = client_->Lookup(space_, chain);
  ASSERT_TRUE(match.ok() && match->blocks() == kBlocks);
  KvMemory target(kBlocks);
  EXPECT_EQ(client_->Get(space_, *match, target.View()).prefix_ok(), 0u);
  ExpectMoves(watch_, {"tokura_client_missing_profile_total"});
}

TEST_F(ClientMetricsTest, EveryFamilyMoves) {
  EveryOperation();
  MissingProfile();
  Damage();
  LatePayloads();
  StoppedNode();
  Fencing();
  EXPECT_THAT(watch_.unmoved(), UnorderedElementsAre());
}

}  // namespace
}  // namespace tokura::integration
