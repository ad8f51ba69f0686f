// The C ABI against a real node: the example in C, and what needs data.

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/node_fixture.h"
#include "tokura.h"

namespace tokura::integration {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint32_t kBlocks = 8;

TEST(CAbiWithNode, TheExampleSharesAPrefix) {
  NodeUnderTest node;
  ChildProcess example({TOKURA_C_EXAMPLE, node.data()});
  EXPECT_EQ(example.WaitForEnd(), 0);
}

// One sequence of a small model in memory of this process, and a client.
class CAbiTest : public ::testing::Test {
 protected:
  CAbiTest() {
    tokura_layer_group group;
    tokura_layer_group_init(&group, sizeof(group));
    group.layers = layer_numbers_;
    group.layers_count = 2;
    group.kv_heads = 1;
    group.k_head_dim = group.v_head_dim = 64;
    const tokura_layer_group* groups[] = {&group};
    tokura_namespace_spec spec;
    tokura_namespace_spec_init(&spec, sizeof(spec));
    spec.model = "m";
    spec.dtype = TOKURA_FLOAT32;
    spec.groups = groups;
    spec.groups_count = 1;
    ns_ = tokura_namespace_create(&spec, &error_);
    chain_ = tokura_chain_create(ns_, &error_);
    std::vector<uint32_t> tokens(size_t{kBlocks} * 64, 3);
    tokura_chain_append_tokens(chain_, tokens.data(), tokens.size(), nullptr, 0, &error_);
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(i % 1000);
    }
    DescribeMemory();
  }
  ~CAbiTest() override {
    tokura_client_free(client_);
    tokura_chain_free(chain_);
    tokura_namespace_free(ns_);
  }

  void DescribeMemory() {
    constexpr size_t kSide = size_t{kBlocks} * 64 * 64;
    for (size_t i = 0; i < 2; ++i) {
      layers_[i] = {values_.data() + 2 * i * kSide, values_.data() + (2 * i + 1) * kSide};
    }
    tokura_kv_view_init(&view_, sizeof(view_));
    view_.dtype = TOKURA_FLOAT32;
    view_.heads = 1;
    view_.k_head_dim = view_.v_head_dim = 64;
    view_.tokens = view_.page_tokens = kBlocks * 64;
    view_.page_table = &page_;
    view_.page_table_count = 1;
    view_.layers = layers_;
    view_.layers_count = 2;
    view_.k_strides = view_.v_strides = {0, kSide * 4, 64 * 4, 4};
    tokura_sequence_view_init(&sequence_, sizeof(sequence_));
    sequence_.groups = groups_;
    sequence_.groups_count = 1;
  }

  void Connect() {
    tokura_client_options options;
    tokura_client_options_init(&options, sizeof(options));
    const char* address = node_.data().c_str();
    options.nodes = &address;
    options.nodes_count = 1;
    options.ingest_codec = "raw";
    options.progress_timeout_ns = Scaled(std::chrono::seconds(10)).count();
    options.dead_after_ns = Scaled(std::chrono::seconds(10)).count();
    client_ = tokura_client_create(&options, &error_);
    ASSERT_NE(client_, nullptr) << error_.message;
    tokura_operation* ready = tokura_ready_start(client_, 60 * kSecondNs, &error_);
    Wait(ready);
    EXPECT_EQ(tokura_operation_status(ready, &error_), TOKURA_OK) << error_.message;
    tokura_operation_free(ready);
  }

  void Wait(tokura_operation* operation) {
    ASSERT_NE(operation, nullptr) << error_.message;
    ASSERT_EQ(tokura_operation_wait(operation, 100 * kSecondNs), 1);
  }

  tokura_blocks_result Result(tokura_operation* operation) {
    tokura_blocks_result result{};
    result.struct_size = sizeof(result);
    EXPECT_EQ(tokura_operation_result(operation, &result, &error_), TOKURA_OK) << error_.message;
    return result;
  }

  void Put() {
    tokura_operation* put = tokura_put_start(client_, ns_, chain_, &sequence_, nullptr, &error_);
    Wait(put);
    EXPECT_EQ(tokura_operation_released(put), 1);
    EXPECT_EQ(Result(put).blocks_ok, kBlocks);
    EXPECT_GT(Result(put).wire_ns, 0);
    tokura_operation_free(put);
  }

  tokura_match* Held() {
    tokura_operation* lookup = tokura_lookup_start(client_, ns_, chain_, nullptr, &error_);
    Wait(lookup);
    tokura_match* hint = tokura_operation_match(lookup, &error_);
    tokura_operation* acquire = tokura_acquire_start(client_, ns_, hint, nullptr, &error_);
    Wait(acquire);
    tokura_match* held = tokura_operation_match(acquire, &error_);
    tokura_operation_free(acquire);
    tokura_operation_free(lookup);
    tokura_match_free(hint);
    return held;
  }

  NodeUnderTest node_;  // goes after the client, which would warn of its loss
  const uint32_t layer_numbers_[2] = {0, 1};
  const uint32_t page_ = 0;
  std::vector<float> values_ = std::vector<float>(size_t{4} * kBlocks * 64 * 64);
  tokura_kv_layer layers_[2] = {};
  tokura_kv_view view_{};
  const tokura_kv_view* groups_[1] = {&view_};
  tokura_sequence_view sequence_{};
  tokura_namespace* ns_ = nullptr;
  tokura_chain* chain_ = nullptr;
  tokura_client* client_ = nullptr;
  tokura_error error_{};
};

TEST_F(CAbiTest, GetsTellWhichLayersAreDone) {
  Connect();
  Put();
  const std::vector<float> expected = values_;
  std::fill(values_.begin(), values_.end(), 0.0f);
  tokura_match* held = Held();
  tokura_match_info info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(tokura_match_describe(held, &info, &error_), TOKURA_OK) << error_.message;
  ASSERT_EQ(info.blocks, kBlocks);
  EXPECT_EQ(info.held, 1u);
  EXPECT_STREQ(info.codecs[0], "raw");
  EXPECT_EQ(std::memcmp(info.keys, tokura_chain_keys(chain_), kBlocks * TOKURA_KEY_BYTES), 0);
  tokura_get_options options;
  tokura_get_options_init(&options, sizeof(options));
  options.track_layers = 1;
  tokura_operation* get = tokura_get_start(client_, ns_, held, &sequence_, &options, &error_);
  ASSERT_NE(get, nullptr) << error_.message;
  EXPECT_EQ(tokura_operation_wait_layer(get, 0, 1, 100 * kSecondNs), 1);
  EXPECT_EQ(tokura_operation_layer_done(get, 0, 1), 1);
  Wait(get);
  EXPECT_EQ(values_, expected);
  const tokura_blocks_result result = Result(get);
  EXPECT_EQ(result.prefix_ok, kBlocks);
  EXPECT_STREQ(result.codecs[kBlocks - 1], "raw");
  EXPECT_EQ(result.declared_error[0], 0);
  EXPECT_GT(result.codec_ns, 0);
  tokura_operation_free(get);
  EXPECT_EQ(tokura_release(client_, held, &error_), TOKURA_OK);
  tokura_match_free(held);
  tokura_bytes* metrics = tokura_metrics_text(client_, &error_);
  ASSERT_NE(metrics, nullptr);
  EXPECT_NE(std::strstr(reinterpret_cast<const char*>(tokura_bytes_data(metrics)),
                        "tokura_client_received_bytes_total"),
            nullptr);
  tokura_bytes_free(metrics);
}

TEST_F(CAbiTest, CancelledAndFreedGetsLeaveTheirMemoryAlone) {
  Connect();
  Put();
  tokura_match* held = Held();
  node_.process().Stop();
  tokura_operation* get = tokura_get_start(client_, ns_, held, &sequence_, nullptr, &error_);
  ASSERT_NE(get, nullptr) << error_.message;
  EXPECT_EQ(tokura_operation_done(get), 0);
  tokura_operation_cancel(get);
  Wait(get);
  EXPECT_EQ(Result(get).codes[0], TOKURA_CANCELLED);
  tokura_operation_free(get);
  // Nobody answers, so what ends this one is that it is freed.
  get = tokura_get_start(client_, ns_, held, &sequence_, nullptr, &error_);
  ASSERT_NE(get, nullptr) << error_.message;
  tokura_operation_free(get);
  const std::vector<float> seen = values_;
  node_.process().Signal(SIGCONT);
  tokura_client_free(client_);
  client_ = nullptr;
  EXPECT_EQ(values_, seen);
  tokura_match_free(held);
}

TEST_F(CAbiTest, NodesSayWhatTheyHold) {
  Connect();
  Put();
  tokura_operation* stat = tokura_stat_start(client_, &error_);
  Wait(stat);
  ASSERT_EQ(tokura_operation_nodes(stat), 1u);
  tokura_node_stat found{};
  found.struct_size = sizeof(found);
  ASSERT_EQ(tokura_operation_node_stat(stat, 0, &found, &error_), TOKURA_OK) << error_.message;
  EXPECT_EQ(found.code, uint32_t{TOKURA_OK});
  EXPECT_STRNE(found.node, "");
  EXPECT_EQ(found.blocks, kBlocks);
  EXPECT_EQ(tokura_operation_node_stat(stat, 1, &found, &error_), TOKURA_OUT_OF_RANGE);
  tokura_operation_free(stat);
}

}  // namespace
}  // namespace tokura::integration
