// The client when things go wrong: slow and dead nodes, late payloads, paused codecs, corrupt and
// foreign bytes, cancellation. After a callback no byte of the caller's memory is touched.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr Duration kPatience = milliseconds(200);  // ClientOptions::progress_timeout

class ClientFaultTest : public ClientTest {
 protected:
  ClientFaultTest() { ExpectWarnings(); }
  // Everything decoded on the pool, which tests can pause.
  static ClientOptions Pooled() {
    ClientOptions options;
    options.inline_decode_bytes = 0;
    return options;
  }
  std::vector<absl::StatusCode> Codes(const std::vector<absl::Status>& statuses) {
    std::vector<absl::StatusCode> codes;
    for (const absl::Status& status : statuses) {
      codes.push_back(status.code());
    }
    return codes;
  }
  bool AnyVisible(const FakeNode& node) {
    return std::any_of(node.blocks.begin(), node.blocks.end(),
                       [](const auto& entry) { return entry.second.visible; });
  }
};

TEST_F(ClientFaultTest, NothingIsWrittenAfterAGetHitItsDeadline) {
  AddNode();
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  const Match match = PutAndLookup(source, chain);
  GetOptions options;
  options.deadline = milliseconds(50);
  const TimePoint start = Now();
  const auto get = StartGet(match, target.View(), options);
  host_.pool().Pause();
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_LT(get->ended - start, milliseconds(60));
  EXPECT_THAT(Codes(get->result->blocks), Each(absl::StatusCode::kDeadlineExceeded));
  const auto before = target.values();
  host_.pool().Continue();
  RunFor(seconds(2));
  EXPECT_EQ(target.values(), before);
  EXPECT_EQ(Metric("tokura_client_ring_used_bytes"), 0);
}

TEST_F(ClientFaultTest, PlantedWriteAfterDeadlineIsVisible) {
  FakeNode& node = AddNode();
  StartClient(Pooled(), {.write_after_deadline = true});
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  // The decode that waits has all bytes.
  network_.link(node.host().ip(), host_.ip()).pieces_max = 1;
  GetOptions options;
  options.deadline = milliseconds(50);
  host_.pool().Pause();
  const auto get = StartGet(match, target.View(), options);
  RunUntil([&] { return get->result.has_value(); });
  const auto before = target.values();
  host_.pool().Continue();
  RunFor(seconds(2));
  EXPECT_NE(target.values(), before);
}

TEST_F(ClientFaultTest, CallbackWaitsForTheStepInsideTheGate) {
  AddNode();
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  std::shared_ptr<PendingGet> get;
  int reports = 0;
  GetOptions options;
  options.deadline = milliseconds(50);
  options.on_layer = [&](size_t, uint32_t) {
    // This runs inside a decode step: the deadline passes meanwhile.
    ++reports;
    scheduler_.RunFor(milliseconds(500));
    EXPECT_FALSE(get->result.has_value());
  };
  get = StartGet(match, target.View(), options);
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(get->result->blocks[0].code(), absl::StatusCode::kDeadlineExceeded);
  const auto before = target.values();
  RunFor(seconds(2));
  EXPECT_EQ(target.values(), before);
  EXPECT_EQ(reports, 1);
}

TEST_F(ClientFaultTest, SlotOfATimedOutTransferStaysQuarantined) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  network_.link("10.0.0.1", "10.0.1.1").bytes_per_second = 100'000;  // a block takes 98 ms at least
  target.Fill(-1);
  const auto before = target.values();
  GetOptions options;
  options.deadline = milliseconds(60);
  const auto get = StartGet(match, target.View(), options);
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_EQ(get->result->blocks[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(Metric("tokura_client_ring_used_bytes"), 0) << "the transport still writes there";
  RunUntil([&] { return Metric("tokura_client_ring_used_bytes") == 0; });
  EXPECT_EQ(target.values(), before);
  EXPECT_EQ(Metric("tokura_client_late_payloads_total"), 1);
  EXPECT_EQ(node.open_channels, 1) << "a short deadline alone convicts nobody";
}

TEST_F(ClientFaultTest, CancelledGetEndsSoonAndWritesNothingMore) {
  FakeNode& node = AddNode();
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3), target(*ns_, 3);
  const Match match = PutAndLookup(source, chain);
  node.silent = {net::Op::kGet};
  const TimePoint start = Now();
  const auto get = StartGet(match, target.View());
  RunFor(milliseconds(1));
  OnLoop([&] { core_->Cancel(get->id); });
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_LT(get->ended - start, milliseconds(5));
  EXPECT_THAT(Codes(get->result->blocks), Each(absl::StatusCode::kCancelled));
  RunFor(milliseconds(10));
  EXPECT_EQ(node.cancelled, 1);
  OnLoop([&] { core_->Cancel(get->id); });  // unknown by now
}

TEST_F(ClientFaultTest, PutReleasesItsSourceByTheDeadlineAndNeverReadsItAgain) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  PutOptions options;
  options.deadline = milliseconds(50);
  host_.pool().Pause();
  const TimePoint start = Now();
  const auto put = StartPut(chain, source.View(), options);
  RunUntil([&] { return put->released; });
  EXPECT_LT(put->released_at - start, milliseconds(60));
  source.Fill(std::numeric_limits<float>::quiet_NaN());
  host_.pool().Continue();
  RunFor(seconds(2));
  EXPECT_THAT(Codes(put->result->blocks), Each(absl::StatusCode::kCancelled));
  EXPECT_FALSE(AnyVisible(node));
  EXPECT_EQ(Metric("tokura_client_ring_used_bytes"), 0);
}

TEST_F(ClientFaultTest, CancelledPutIsNeverVisible) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 30);
  EngineMemory source(*ns_, 30);
  source.Randomize(1);
  const auto put = StartPut(chain, source.View());
  RunUntil([&] { return !node.puts.empty(); });
  OnLoop([&] { core_->Cancel(put->id); });
  RunUntil([&] { return put->result.has_value(); });
  RunFor(seconds(2));
  int cancelled = 0;
  for (size_t i = 0; i < 30; ++i) {
    const auto found = node.blocks.find(chain.keys()[i]);
    const bool visible = found != node.blocks.end() && found->second.visible;
    if (absl::IsCancelled(put->result->blocks[i])) {
      ++cancelled;
      EXPECT_FALSE(visible) << i;
    }
    if (put->result->blocks[i].ok()) {
      EXPECT_TRUE(visible) << i;
    }
  }
  EXPECT_GT(cancelled, 0);
}

TEST_F(ClientFaultTest, PutThatIsNotAnsweredSaysSo) {
  FakeNode& node = AddNode();
  StartClient();
  node.silent = {net::Op::kPut};
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1);
  const TimePoint start = Now();
  const PutResult put = Put(chain, source.View());
  EXPECT_EQ(put.blocks[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(Now() - start, 2 * kPatience);
  EXPECT_FALSE(core_->ready());
}

TEST_F(ClientFaultTest, PayloadsNobodyTakesBlockTheRingOnlyUntilTheDeadline) {
  FakeNode& node = AddNode();
  ClientOptions options;
  options.ring_bytes = uint64_t{256} << 10;
  options.part_bytes_max = options.ring_bytes;
  StartClient(options);
  node.take_payloads = false;
  const TokenChain chain = MakeChain(*ns_, 20);
  EngineMemory source(*ns_, 20);
  PutOptions put_options;
  put_options.deadline = milliseconds(500);
  const auto first = StartPut(chain, source.View(), put_options);
  const auto second = StartPut(MakeChain(*ns_, 20, 2), source.View(), put_options);
  RunUntil([&] { return Metric("tokura_client_ring_waiters") > 0; });
  RunUntil([&] { return first->result && second->result; }, milliseconds(600));
  EXPECT_EQ(first->result->stored() + second->result->stored(), 0u);
  RunUntil([&] { return Metric("tokura_client_ring_used_bytes") == 0; }, seconds(1));
  EXPECT_EQ(Metric("tokura_client_ring_waiters"), 0);
}

TEST_F(ClientFaultTest, DeadNodeCostsOneDeadlineAndComesBack) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1);
  PutAndLookup(source, chain);
  node.host().Pause();
  TimePoint start = Now();
  EXPECT_EQ(Lookup(chain).blocks(), 0u);
  EXPECT_GE(Now() - start, kPatience);
  EXPECT_LT(Now() - start, kPatience + milliseconds(10));
  for (int i = 0; i < 10; ++i) {
    start = Now();
    EXPECT_EQ(Lookup(chain).blocks(), 0u);
    EXPECT_LT(Now() - start, milliseconds(1));
  }
  EXPECT_GE(Metric("tokura_client_breaker_opens_total"), 1);
  EXPECT_EQ(Metric("tokura_client_nodes", {{"breaker", "closed"}}), 0);
  node.host().Continue();
  RunUntil([&] { return core_->ready(); }, seconds(6));
  EXPECT_EQ(Lookup(chain).blocks(), 1u);
  EXPECT_EQ(Metric("tokura_client_nodes", {{"breaker", "closed"}}), 1);
  EXPECT_EQ(node.hellos.back().expected_node(), "node-0");
  EXPECT_EQ(node.hellos.back().fenced_below(), 100u);
}

TEST_F(ClientFaultTest, DeadNodeIsConvictedByShortDeadlinesToo) {
  FakeNode& node = AddNode();
  StartClient();
  node.host().Pause();
  LookupOptions options;
  options.deadline = milliseconds(30);
  int lookups = 0;
  while (core_->ready() && lookups < 20) {
    Lookup(MakeChain(*ns_, 1), options);
    ++lookups;
  }
  EXPECT_LE(lookups, 8);
  EXPECT_GE(lookups, 6);
  node.host().Continue();
}

TEST_F(ClientFaultTest, OneStalledOperationFailsTheOthersOfItsNodeAtOnce) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  node.silent = {net::Op::kGet, net::Op::kLookup};
  GetOptions patient;
  patient.deadline = seconds(20);
  const auto first = StartGet(match, target.View(), patient);
  RunFor(milliseconds(150));
  EngineMemory other(*ns_, 1);
  const auto second = StartGet(match, other.View(), patient);
  RunUntil([&] { return first->result && second->result; });
  EXPECT_EQ(first->result->blocks[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(second->result->blocks[0].ok());
  EXPECT_LT(second->ended - first->ended, milliseconds(1));
}

TEST_F(ClientFaultTest, AnotherNodeServesWhatTheFirstCannot) {
  FakeNode& a = AddNode({.name = "a", .ip = "10.0.0.1"});
  FakeNode& b = AddNode({.name = "b", .ip = "10.0.0.2"});
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3), target(*ns_, 3);
  const Match match = PutAndLookup(source, chain);
  FakeNode& holder = a.blocks.empty() ? b : a;
  FakeNode& replica = a.blocks.empty() ? a : b;
  replica.blocks = holder.blocks;
  // Gone at the holder.
  holder.blocks.erase(chain.keys()[1]);
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 3u);
  EXPECT_EQ(target.values(), source.values());
  EXPECT_EQ(Metric("tokura_client_retries_total"), 1);
  // Corrupt at the holder.
  target.Fill(0);
  holder.tamper = [](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
    bytes->back() ^= std::byte{1};
    return true;
  };
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 3u);
  EXPECT_EQ(target.values(), source.values());
  EXPECT_EQ(Metric("tokura_client_data_loss_total"), 2);
  // The holder is silent, and there is time.
  target.Fill(0);
  holder.silent = {net::Op::kGet};
  GetOptions options;
  options.deadline = seconds(2);
  EXPECT_EQ(Get(match, target.View(), options).prefix_ok(), 3u);
  EXPECT_EQ(target.values(), source.values());
}

TEST_F(ClientFaultTest, CorruptBytesAreAMiss) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  size_t size = 0;
  node.tamper = [&](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
    size = bytes->size();
    return true;
  };
  EXPECT_TRUE(Get(match, target.View()).blocks[0].ok());
  for (size_t at = 0; at < size; at += size / 97) {
    node.tamper = [at](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
      (*bytes)[at] ^= std::byte{0x10};
      return true;
    };
    const absl::StatusCode code = Get(match, target.View()).blocks[0].code();
    EXPECT_TRUE(code == absl::StatusCode::kDataLoss ||
                code == absl::StatusCode::kFailedPrecondition)
        << at;
  }
  for (const size_t keep : {size_t{1}, size / 2, size - 1}) {
    node.tamper = [keep](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
      bytes->resize(keep);
      return true;
    };
    EXPECT_EQ(Get(match, target.View()).blocks[0].code(), absl::StatusCode::kDataLoss) << keep;
  }
}

TEST_F(ClientFaultTest, PlantedSkippedCrcIsVisible) {
  FakeNode& node = AddNode();
  StartClient({}, {.skip_crc = true});
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  node.tamper = [](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
    bytes->at(bytes->size() - 100) ^= std::byte{1};
    return true;
  };
  EXPECT_TRUE(Get(match, target.View()).blocks[0].ok());
  EXPECT_NE(target.values(), source.values());
}

TEST_F(ClientFaultTest, ForeignPartsAreRefused) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  Match match = PutAndLookup(source, chain);
  const auto& other = node.blocks[chain.keys()[1]].parts.begin()->second;
  node.tamper = [&](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
    *bytes = other;  // intact, but another block's
    return true;
  };
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.blocks[0].code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(got.blocks[1].ok());
  node.tamper = nullptr;
  match.content_ids[0] = ContentId{{1, 2, 3}};
  EXPECT_EQ(Get(match, target.View()).blocks[0].code(), absl::StatusCode::kDataLoss);
}

TEST_F(ClientFaultTest, TwoWritersOfOneBlockAreNeverMixed) {
  NamespaceSpec spec = SmallSpec();
  spec.head_shards = 2;
  ns_ = std::make_shared<const Namespace>(spec);
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory one(*ns_, 1), two(*ns_, 1), target(*ns_, 1);
  PutAndLookup(one, chain);
  const FakeNode::Stored first = node.blocks.begin()->second;
  PutAndLookup(two, chain);
  node.blocks.begin()->second.parts[{0, 1}] = first.parts.at({0, 1});
  Match match = Lookup(chain);
  EXPECT_EQ(Get(match, target.View()).blocks[0].code(), absl::StatusCode::kDataLoss);
  match.content_ids.clear();  // even when the caller asks for any content
  EXPECT_EQ(Get(match, target.View()).blocks[0].code(), absl::StatusCode::kDataLoss);
}

TEST_F(ClientFaultTest, MissingPartIsAMissHoweverOkTheReply) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  const Match match = PutAndLookup(source, chain);
  node.tamper = [&](const BlockKey& key, PartId, std::vector<std::byte>*) {
    return key != chain.keys()[0];
  };
  const GetResult got = Get(match, target.View());
  EXPECT_EQ(got.blocks[0].code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(got.blocks[1].ok());
}

TEST_F(ClientFaultTest, KilledNodeFailsItsOperationsAndGivesTheRingBack) {
  FakeNode& node = AddNode();
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 20);
  EngineMemory source(*ns_, 20), target(*ns_, 20);
  const Match match = PutAndLookup(source, chain);
  network_.link("10.0.0.1", "10.0.1.1").bytes_per_second = 1'000'000;
  const auto get = StartGet(match, target.View());
  RunUntil([&] { return Metric("tokura_client_ring_used_bytes") > 0; });
  const TimePoint killed = Now();
  node.Kill();
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_LT(get->ended - killed, kPatience);
  for (const absl::Status& status : get->result->blocks) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
  RunUntil([&] { return Metric("tokura_client_ring_used_bytes") == 0; }, seconds(1));
  RunUntil([&] { return Metric("tokura_client_links_lost_total") == 1; }, seconds(1));
}

TEST_F(ClientFaultTest, HigherIncarnationFencesTheLower) {
  FakeNode& zombie = AddNode({.ip = "10.0.0.1", .incarnation = 100});
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  FakeNode& successor = AddNode({.ip = "10.0.0.2", .incarnation = 200});
  OnLoop([&] { EXPECT_TRUE(core_->SetNodes({zombie.address(), successor.address()}).ok()); });
  RunFor(seconds(5));
  EXPECT_EQ(Lookup(chain).blocks(), 0u) << "the successor has nothing, the zombie is not asked";
  EXPECT_EQ(zombie.requests[net::Op::kLookup], 1);
  EXPECT_FALSE(Get(match, target.View()).blocks[0].ok());
  EXPECT_GE(Metric("tokura_client_fenced_total"), 2) << "dropped once, then refused";
  EXPECT_EQ(zombie.requests[net::Op::kGet], 0);
}

TEST_F(ClientFaultTest, AnsweredButUndecodedPayloadsOfAFencedNodeDoNotCount) {
  FakeNode& zombie = AddNode({.ip = "10.0.0.1", .incarnation = 100});
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  const Match match = PutAndLookup(source, chain);
  host_.pool().Pause();
  GetOptions options;
  options.deadline = seconds(20);
  const auto get = StartGet(match, target.View(), options);
  RunUntil([&] { return zombie.gets.size() == 1; });
  RunFor(milliseconds(50));
  FakeNode& successor = AddNode({.ip = "10.0.0.2", .incarnation = 200});
  OnLoop([&] { EXPECT_TRUE(core_->SetNodes({zombie.address(), successor.address()}).ok()); });
  RunUntil([&] { return Metric("tokura_client_fenced_total") >= 1; }, seconds(2));
  host_.pool().Continue();
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_EQ(get->result->prefix_ok(), 0u);
  EXPECT_FALSE(get->result->blocks[1].ok());
}

TEST_F(ClientFaultTest, DrainingLowerIncarnationIsFencedToo) {
  FakeNode& zombie = AddNode({.ip = "10.0.0.1", .incarnation = 100});
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  const Match match = PutAndLookup(source, chain);
  host_.pool().Pause();
  zombie.silent = {net::Op::kLookup};  // keeps the draining connection open
  LookupOptions patient;
  patient.deadline = seconds(20);
  OnLoop([&] { core_->Lookup(ns_, chain, patient, [](auto) {}); });
  GetOptions options;
  options.deadline = seconds(20);
  const auto get = StartGet(match, target.View(), options);
  RunFor(milliseconds(50));
  zombie.Goodbye();
  FakeNode& successor = AddNode({.ip = "10.0.0.2", .incarnation = 200});
  OnLoop([&] { EXPECT_TRUE(core_->SetNodes({zombie.address(), successor.address()}).ok()); });
  const TimePoint start = Now();
  RunUntil([&] { return Metric("tokura_client_fenced_total") >= 1; }, seconds(2));
  EXPECT_LT(Now() - start, milliseconds(100)) << "fenced by the successor, not by a stall";
  host_.pool().Continue();
  RunUntil([&] { return get->result.has_value(); });
  EXPECT_FALSE(get->result->blocks[0].ok());
}

// Seeds decide which of two parts is decoded first; the other one is broken.
class ClientLayerTest : public ClientTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  ClientLayerTest() : ClientTest(1 + GetParam() / 2) { ExpectWarnings(); }
};

TEST_P(ClientLayerTest, ReportedLayersAreNeverReplacedByARetry) {
  NamespaceSpec spec = SmallSpec();
  spec.head_shards = 2;
  ns_ = std::make_shared<const Namespace>(spec);
  FakeNode& a = AddNode({.name = "a", .ip = "10.0.0.1"});
  FakeNode& b = AddNode({.name = "b", .ip = "10.0.0.2"});
  ClientOptions pooled;
  pooled.inline_decode_bytes = 0;
  StartClient(pooled);
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  source.Randomize(5);
  PutOptions put;
  put.content_id_base = ContentId{{7}};
  EXPECT_EQ(Put(chain, source.View(), put).stored(), 1u);
  FakeNode& holder = a.blocks.empty() ? b : a;
  FakeNode& replica = a.blocks.empty() ? a : b;
  replica.blocks = std::exchange(holder.blocks, {});
  put.codec = "int8";  // the same content in another form: a retry writes other values
  EXPECT_EQ(Put(chain, source.View(), put).stored(), 1u);
  const Match match = Lookup(chain);
  (match.HolderOf(0)->node == "a" ? a : b).tamper = [](const BlockKey&, PartId part,
                                                       std::vector<std::byte>* bytes) {
    if (part.shard == GetParam() % 2) {
      (*bytes)[40] ^= std::byte{1};
    }
    return true;
  };
  std::map<uint32_t, std::vector<float>> reported;
  GetOptions options;
  options.on_layer = [&](size_t group, uint32_t layer) {
    EXPECT_EQ(reported.count(layer), 0u);
    reported[layer] = target.Block(group, 0, layer, 1);
  };
  const GetResult got = Get(match, target.View(), options);
  EXPECT_EQ(reported.size(), got.blocks[0].ok() ? 3u : 0u);
  for (const auto& [layer, values] : reported) {
    EXPECT_EQ(values, target.Block(0, 0, layer, 1)) << layer;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, ClientLayerTest, ::testing::Range(uint64_t{0}, uint64_t{16}));

TEST_F(ClientFaultTest, PlantedLowerIncarnationIsAccepted) {
  FakeNode& zombie = AddNode({.ip = "10.0.0.1", .incarnation = 100});
  FakeNode& successor = AddNode({.ip = "10.0.0.2", .incarnation = 200});
  ClientOptions options;
  options.nodes = {successor.address()};
  StartClient(options, {.accept_lower_incarnation = true});
  OnLoop([&] { EXPECT_TRUE(core_->SetNodes({zombie.address()}).ok()); });
  RunUntil([&] { return core_->ready(); }, seconds(5));
}

TEST_F(ClientFaultTest, DrainingNodeGetsNoNewRequests) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1);
  PutAndLookup(source, chain);
  node.Goodbye();
  RunUntil([&] { return !core_->ready(); });
  EXPECT_EQ(Lookup(chain).blocks(), 0u);
  EXPECT_EQ(node.requests[net::Op::kLookup], 1);
  RunUntil([&] { return core_->ready(); }, seconds(2));
  EXPECT_EQ(node.hellos.size(), 2u);
}

TEST_F(ClientFaultTest, ShutdownInTheMiddleOfEverythingIsBounded) {
  FakeNode& node = AddNode();
  StartClient(Pooled());
  const TokenChain chain = MakeChain(*ns_, 10);
  EngineMemory source(*ns_, 10), target(*ns_, 10);
  const Match match = PutAndLookup(source, chain);
  node.silent = {net::Op::kLookup};
  bool looked = false;
  OnLoop([&] { core_->Lookup(ns_, chain, {}, [&](auto) { looked = true; }); });
  const auto get = StartGet(match, target.View());
  const auto put = StartPut(MakeChain(*ns_, 10, 2), source.View());
  RunFor(milliseconds(1));
  node.host().Pause();
  const TimePoint start = Now();
  StopClient();
  EXPECT_LT(Now() - start, seconds(1));
  EXPECT_TRUE(looked && get->result && put->result);
  node.host().Continue();
}

TEST_F(ClientFaultTest, WhenReadySaysWhatWasTried) {
  ClientOptions options;
  options.nodes = {"10.9.9.9:7000"};
  StartClient(options);
  std::optional<absl::Status> status;
  OnLoop([&] {
    core_->WhenReady(Now() + seconds(3), [&](absl::Status s) { status = std::move(s); });
  });
  RunUntil([&] { return status.has_value(); });
  EXPECT_EQ(status->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status->message()), HasSubstr("10.9.9.9:7000"));
}

TEST_F(ClientFaultTest, MovedNodeIsFollowed) {
  FakeNode& before = AddNode({.name = "a", .ip = "10.0.0.1"});
  StartClient();
  FakeNode& after = AddNode({.name = "b", .ip = "10.0.0.2"});
  OnLoop([&] {
    EXPECT_FALSE(core_->SetNodes({"nonsense"}).ok());
    EXPECT_TRUE(core_->ready()) << "a refused list changes nothing";
    EXPECT_TRUE(core_->SetNodes({after.address()}).ok());
  });
  RunUntil([&] { return core_->ready() && before.open_channels == 0; }, seconds(2));
  EXPECT_EQ(Lookup(MakeChain(*ns_, 1)).blocks(), 0u);
  EXPECT_EQ(after.requests[net::Op::kLookup], 1);
  EXPECT_EQ(before.requests[net::Op::kLookup], 0);
}

TEST_F(ClientFaultTest, PartialLossKeepsWhatWasVerified) {
  FakeNode& node = AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 6);
  EngineMemory source(*ns_, 6), target(*ns_, 6);
  const Match match = PutAndLookup(source, chain);
  int offered = 0;
  node.tamper = [&](const BlockKey&, PartId, std::vector<std::byte>* bytes) {
    if (++offered % 2 == 0) {
      bytes->back() ^= std::byte{1};
    }
    return true;
  };
  const GetResult got = Get(match, target.View());
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(got.blocks[i].ok(), i % 2 == 0);
    if (i % 2 == 0) {
      EXPECT_EQ(target.Block(0, i), source.Block(0, i));
    }
  }
  EXPECT_EQ(Metric("tokura_client_requests_total", {{"op", "get"}, {"result", "partial"}}), 1);
  EXPECT_EQ(Metric("tokura_client_blocks_total", {{"op", "get"}, {"result", "data_loss"}}), 3);
}

}  // namespace
}  // namespace tokura
