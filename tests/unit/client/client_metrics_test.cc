// Every metric that the other tests do not move.

#include <gtest/gtest.h>

#include "client-lib/src/ring.h"
#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClientMetricsTest : public ClientTest {
 protected:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  double Codec(const std::string& what, const std::string& codec, const std::string& op) {
    return Metric("tokura_client_codec_" + what, Labels{{"codec", codec}, {"op", op}});
  }
};

TEST_F(ClientMetricsTest, CodecsReportPartsBytesAndError) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3), target(*ns_, 3);
  source.Randomize(1);
  PutOptions options;
  options.codec = "int8";
  const PutResult put = Put(chain, source.View(), options);
  ASSERT_EQ(put.stored(), 3u);
  const GetResult got = Get(Lookup(chain), target.View());
  ASSERT_EQ(got.prefix_ok(), 3u);
  const auto logical = static_cast<double>(put.bytes_logical);
  const auto moved = static_cast<double>(put.bytes_moved);
  EXPECT_EQ(Codec("duration_seconds", "int8", "encode"), 3);
  EXPECT_EQ(Codec("input_bytes_total", "int8", "encode"), logical);
  EXPECT_EQ(Codec("output_bytes_total", "int8", "encode"), moved);
  EXPECT_EQ(Codec("duration_seconds", "int8", "decode"), 3);
  EXPECT_EQ(Codec("input_bytes_total", "int8", "decode"), moved);
  EXPECT_EQ(Codec("output_bytes_total", "int8", "decode"), logical);
  EXPECT_EQ(Codec("duration_seconds", "raw", "decode"), 0);
  EXPECT_EQ(Metric("tokura_client_declared_error_ratio"), 3);
  EXPECT_EQ(Metric("tokura_client_raw_fallback_layers_total"), 0);
}

TEST_F(ClientMetricsTest, LayersWithoutFiniteValuesFallBackToRaw) {
  AddNode();
  StartClient();
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1);
  source.Randomize(1);
  SequenceView view = source.View();
  for (const size_t layer : {size_t{0}, size_t{2}}) {
    // Of the ninth token: the first ones, the sinks, are kept raw anyway.
    reinterpret_cast<float*>(view.groups[0].layers[layer].k)[8 * 64] =
        std::numeric_limits<float>::quiet_NaN();
  }
  PutOptions options;
  options.codec = "int8";
  EXPECT_EQ(Put(chain, view, options).stored(), 1u);
  EXPECT_EQ(Metric("tokura_client_raw_fallback_layers_total"), 2);
}

TEST_F(ClientMetricsTest, RefusedConnectionsAreCounted) {
  ExpectWarnings();
  FakeNode& node = AddNode();
  node.hello_answer = absl::FailedPreconditionError("not today");
  ClientOptions options;
  options.nodes = {node.address()};
  OnLoop([&] {
    auto core = ClientCore::Create({transport_, host_.pool(), host_.random(), registry_}, options);
    ASSERT_TRUE(core.ok());
    core_ = std::move(*core);
  });
  RunUntil([&] { return Metric("tokura_client_refused_total") >= 2; }, seconds(2));
  EXPECT_EQ(Metric("tokura_client_nodes", {{"breaker", "closed"}}), 0);
  node.hello_answer = absl::OkStatus();
  RunUntil([&] { return core_->ready(); }, seconds(5));
  EXPECT_EQ(Metric("tokura_client_nodes", {{"breaker", "closed"}}), 1);
}

TEST_F(ClientMetricsTest, FullQueueForRingMemoryRejects) {
  ExpectWarnings();
  FakeNode& node = AddNode();
  ClientOptions options;
  options.ring_bytes = uint64_t{128} << 10;  // room for two blocks of 48 KiB
  options.part_bytes_max = options.ring_bytes;
  const size_t waiters_max = Ring::Options{}.waiters_max;
  options.operations_max = static_cast<uint32_t>(2 * waiters_max);
  StartClient(options);
  node.take_payloads = false;
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1);
  PutOptions put;
  put.deadline = milliseconds(100);
  std::vector<std::shared_ptr<PendingPut>> puts;
  for (size_t i = 0; i < waiters_max + 8; ++i) {
    puts.push_back(StartPut(chain, source.View(), put));
  }
  RunUntil([&] { return puts.back()->result.has_value(); });
  EXPECT_EQ(puts.back()->result->blocks[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(Metric("tokura_client_queue_rejected_total"), 1);
  EXPECT_LE(Metric("tokura_client_queue_rejected_total"), 8);
  RunFor(seconds(1));
  for (const auto& pending : puts) {
    EXPECT_TRUE(pending->result.has_value());
  }
}

}  // namespace
}  // namespace tokura
