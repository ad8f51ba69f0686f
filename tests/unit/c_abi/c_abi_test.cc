// The C ABI without servers: handles, arguments, operations that find nobody.

#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/block_key.h"
#include "tokura.h"

namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

class CAbi : public ::testing::Test {
 protected:
  CAbi() {
    tokura_set_log_level("error", nullptr);  // nobody listens, which is worth a warning
    tokura_layer_group_init(&group_, sizeof(group_));
    group_.layers = layers_;
    group_.layers_count = 2;
    group_.kv_heads = 2;
    group_.k_head_dim = group_.v_head_dim = 64;
    tokura_namespace_spec_init(&spec_, sizeof(spec_));
    spec_.model = "m";
    spec_.groups = groups_;
    spec_.groups_count = 1;
    ns_ = tokura_namespace_create(&spec_, &error_);
    EXPECT_NE(ns_, nullptr) << error_.message;
    chain_ = tokura_chain_create(ns_, &error_);
    EXPECT_NE(chain_, nullptr) << error_.message;
  }
  ~CAbi() override {
    tokura_client_free(client_);
    tokura_chain_free(chain_);
    tokura_namespace_free(ns_);
    tokura_set_log_level("info", nullptr);
  }

  // A client of a node that does not exist.
  void StartClient() {
    tokura_client_options options;
    ASSERT_EQ(tokura_client_options_init(&options, sizeof(options)), TOKURA_OK);
    const char* node = "127.0.0.1:1";
    options.nodes = &node;
    options.nodes_count = 1;
    client_ = tokura_client_create(&options, &error_);
    ASSERT_NE(client_, nullptr) << error_.message;
  }

  // The last call failed with INVALID_ARGUMENT and said `text`.
  void ExpectInvalid(const std::string& text) {
    EXPECT_EQ(error_.code, TOKURA_INVALID_ARGUMENT);
    EXPECT_THAT(std::string(error_.message), HasSubstr(text));
    error_ = {};
  }

  const uint32_t layers_[2] = {0, 1};
  tokura_layer_group group_{};
  const tokura_layer_group* groups_[1] = {&group_};
  tokura_namespace_spec spec_{};
  tokura_namespace* ns_ = nullptr;
  tokura_chain* chain_ = nullptr;
  tokura_client* client_ = nullptr;
  tokura_error error_{};
};

TEST_F(CAbi, SaysWhatItIs) {
  EXPECT_EQ(tokura_abi_version(), TOKURA_ABI_VERSION);
  EXPECT_THAT(tokura_version(), HasSubstr("."));
  EXPECT_STREQ(tokura_ucx_version_built(), tokura_ucx_version_loaded());
  EXPECT_STREQ(tokura_code_name(TOKURA_NOT_FOUND), "NOT_FOUND");
  EXPECT_STREQ(tokura_code_name(TOKURA_UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_STREQ(tokura_code_name(static_cast<tokura_code>(99)), "UNKNOWN");
  EXPECT_STREQ(tokura_code_name(static_cast<tokura_code>(-1)), "UNKNOWN");
  EXPECT_EQ(tokura_set_log_level("loud", &error_), TOKURA_INVALID_ARGUMENT);
  ExpectInvalid("loud");
}

TEST_F(CAbi, NullIsAnErrorOrNothing) {
  EXPECT_EQ(tokura_namespace_create(nullptr, &error_), nullptr);
  ExpectInvalid("tokura_namespace_spec is NULL");
  EXPECT_EQ(tokura_chain_create(nullptr, &error_), nullptr);
  ExpectInvalid("namespace is NULL");
  EXPECT_EQ(tokura_chain_copy(nullptr, &error_), nullptr);
  ExpectInvalid("chain is NULL");
  EXPECT_EQ(tokura_chain_append_tokens(chain_, nullptr, 3, nullptr, 0, &error_),
            TOKURA_INVALID_ARGUMENT);
  ExpectInvalid("tokens is NULL");
  EXPECT_EQ(tokura_client_create(nullptr, &error_), nullptr);
  ExpectInvalid("tokura_client_options is NULL");
  EXPECT_EQ(tokura_lookup_start(nullptr, ns_, chain_, nullptr, &error_), nullptr);
  ExpectInvalid("client is NULL");
  EXPECT_EQ(tokura_stat_start(nullptr, &error_), nullptr);
  ExpectInvalid("client is NULL");
  EXPECT_EQ(tokura_match_from_bytes(nullptr, 1, &error_), nullptr);
  ExpectInvalid("data is NULL");
  EXPECT_EQ(tokura_match_describe(nullptr, nullptr, &error_), TOKURA_INVALID_ARGUMENT);
  ExpectInvalid("match is NULL");
  EXPECT_EQ(tokura_operation_match(nullptr, &error_), nullptr);
  ExpectInvalid("operation is NULL");
  EXPECT_EQ(tokura_operation_result(nullptr, nullptr, nullptr), TOKURA_INVALID_ARGUMENT);
  EXPECT_EQ(tokura_operation_status(nullptr, nullptr), TOKURA_INVALID_ARGUMENT);
  EXPECT_EQ(tokura_operation_notify(nullptr, nullptr, nullptr, nullptr), TOKURA_INVALID_ARGUMENT);
  EXPECT_EQ(tokura_renew(nullptr, nullptr, nullptr), TOKURA_INVALID_ARGUMENT);
  EXPECT_EQ(tokura_metrics_text(nullptr, nullptr), nullptr);
  EXPECT_EQ(tokura_client_options_init(nullptr, sizeof(tokura_client_options)),
            TOKURA_INVALID_ARGUMENT);
}

TEST_F(CAbi, NullHasNothing) {
  EXPECT_EQ(tokura_namespace_fingerprint(nullptr), nullptr);
  EXPECT_EQ(tokura_namespace_block_bytes(nullptr), 0u);
  EXPECT_EQ(tokura_chain_blocks(nullptr), 0u);
  EXPECT_EQ(tokura_chain_tokens(nullptr), 0u);
  EXPECT_EQ(tokura_chain_keys(nullptr), nullptr);
  EXPECT_EQ(tokura_bytes_data(nullptr), nullptr);
  EXPECT_EQ(tokura_bytes_size(nullptr), 0u);
  EXPECT_EQ(tokura_operation_done(nullptr), 0);
  EXPECT_EQ(tokura_operation_wait(nullptr, 0), 0);
  EXPECT_EQ(tokura_operation_released(nullptr), -1);
  EXPECT_EQ(tokura_operation_layer_done(nullptr, 0, 0), -1);
  EXPECT_EQ(tokura_operation_nodes(nullptr), 0u);
  EXPECT_EQ(tokura_operation_elapsed_ns(nullptr), 0);
  tokura_operation_cancel(nullptr);
  tokura_operation_free(nullptr);
  tokura_client_free(nullptr);
  tokura_match_free(nullptr);
  tokura_bytes_free(nullptr);
}

TEST_F(CAbi, NamespacesNameWhatIsWrong) {
  spec_.dtype = 9;
  EXPECT_EQ(tokura_namespace_create(&spec_, &error_), nullptr);
  ExpectInvalid("dtype is 9");
  spec_.dtype = TOKURA_FLOAT16;
  spec_.rope = 3;
  EXPECT_EQ(tokura_namespace_create(&spec_, &error_), nullptr);
  ExpectInvalid("rope is 3");
  spec_.rope = TOKURA_ROPE_POST;
  spec_.model = nullptr;
  EXPECT_EQ(tokura_namespace_create(&spec_, &error_), nullptr);
  ExpectInvalid("model is NULL");
  spec_.model = "m";
  group_.kind = 5;
  EXPECT_EQ(tokura_namespace_create(&spec_, &error_), nullptr);
  ExpectInvalid("kind is 5");
  group_.kind = TOKURA_ATTENTION_FULL;
  group_.struct_size = 4;
  EXPECT_EQ(tokura_namespace_create(&spec_, &error_), nullptr);
  ExpectInvalid("tokura_layer_group has struct_size 4");
  group_.struct_size = sizeof(group_);
  spec_.block_tokens = 0;
  EXPECT_EQ(tokura_namespace_create(&spec_, &error_), nullptr);
  ExpectInvalid("block_tokens");
}

TEST_F(CAbi, ChainsHaveTheKeysOfTheLibrary) {
  std::vector<uint32_t> tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<uint32_t>(i);
  }
  const uint8_t hash[] = {1, 2, 3};
  const tokura_key_extra extra{TOKURA_EXTRA_MULTIMODAL_HASH, hash, sizeof(hash)};
  ASSERT_EQ(tokura_chain_append_tokens(chain_, tokens.data(), 100, nullptr, 0, &error_), TOKURA_OK);
  ASSERT_EQ(tokura_chain_append_tokens(chain_, tokens.data() + 100, 100, &extra, 1, &error_),
            TOKURA_OK);
  tokura::Fingerprint fingerprint;
  std::memcpy(fingerprint.bytes.data(), tokura_namespace_fingerprint(ns_),
              TOKURA_FINGERPRINT_BYTES);
  tokura::TokenChain expected(fingerprint, 64);
  expected.Append(std::span(tokens).first(100));
  const tokura::KeyExtra item{.kind = 1, .bytes = std::string("\1\2\3")};
  expected.Append(std::span(tokens).subspan(100), std::span(&item, 1));
  ASSERT_EQ(tokura_chain_blocks(chain_), 3u);
  EXPECT_EQ(tokura_chain_tokens(chain_), 200u);
  EXPECT_EQ(std::memcmp(tokura_chain_keys(chain_), expected.keys().data(), 3 * TOKURA_KEY_BYTES),
            0);
  EXPECT_EQ(tokura_namespace_block_bytes(ns_), uint64_t{2} * 2 * 2 * 64 * 64 * 2);
}

TEST_F(CAbi, ChainsAreOfOneKind) {
  const uint8_t hash[] = {1, 2, 3};
  EXPECT_EQ(tokura_chain_append_engine_hash(chain_, hash, 0, &error_), TOKURA_INVALID_ARGUMENT);
  ASSERT_EQ(tokura_chain_append_engine_hash(chain_, hash, 3, &error_), TOKURA_OK);
  const uint32_t token = 1;
  EXPECT_EQ(tokura_chain_append_tokens(chain_, &token, 1, nullptr, 0, &error_),
            TOKURA_FAILED_PRECONDITION);
  EXPECT_STREQ(error_.message, "the chain is made of engine hashes, not of tokens");
  EXPECT_EQ(tokura_chain_append_keys(chain_, tokura_chain_keys(chain_), 1, &error_),
            TOKURA_FAILED_PRECONDITION);
  tokura_chain* copy = tokura_chain_copy(chain_, &error_);
  ASSERT_EQ(tokura_chain_append_engine_hash(copy, hash, 2, &error_), TOKURA_OK);
  EXPECT_EQ(tokura_chain_blocks(copy), 2u);
  EXPECT_EQ(tokura_chain_blocks(chain_), 1u);
  EXPECT_EQ(tokura_chain_tokens(chain_), 64u);
  tokura_chain_free(copy);
}

TEST_F(CAbi, ClientsRefuseWhatTheyCannotBe) {
  tokura_client_options options;
  tokura_client_options_init(&options, sizeof(options));
  options.codec_threads = 0;
  EXPECT_EQ(tokura_client_create(&options, &error_), nullptr);
  ExpectInvalid("codec_threads");
  tokura_client_options_init(&options, sizeof(options));
  options.heartbeat_ns = -1;
  EXPECT_EQ(tokura_client_create(&options, &error_), nullptr);
  ExpectInvalid("heartbeat is negative");
  tokura_client_options_init(&options, sizeof(options));
  options.nodes_count = 2;
  EXPECT_EQ(tokura_client_create(&options, &error_), nullptr);
  ExpectInvalid("nodes is NULL");
  options.struct_size = 3;
  EXPECT_EQ(tokura_client_create(&options, &error_), nullptr);
  ExpectInvalid("struct_size 3");
}

TEST_F(CAbi, ClientsRefuseProfilesThatCannotBeUsed) {
  tokura_client_options options;
  tokura_client_options_init(&options, sizeof(options));
  options.profile_dir = "/nowhere/profiles";
  EXPECT_EQ(tokura_client_create(&options, &error_), nullptr);
  EXPECT_EQ(error_.code, TOKURA_NOT_FOUND);
  EXPECT_NE(std::string(error_.message).find("/nowhere/profiles"), std::string::npos);
  const char* const files[] = {"/dev/null"};
  tokura_client_options_init(&options, sizeof(options));
  options.profiles = files;
  options.profiles_count = 1;
  EXPECT_EQ(tokura_client_create(&options, &error_), nullptr);
  ExpectInvalid("/dev/null");
  options.profiles = nullptr;
  EXPECT_EQ(tokura_client_create(&options, &error_), nullptr);
  ExpectInvalid("profiles is NULL");
}

TEST_F(CAbi, TakesClientOptionsOfTheFirstVersion) {
  constexpr size_t kFirst = offsetof(tokura_client_options, profiles);
  tokura_client_options options;
  std::memset(&options, 0x5a, sizeof(options));
  ASSERT_EQ(tokura_client_options_init(&options, kFirst), TOKURA_OK);
  EXPECT_EQ(options.profiles_count, size_t{0x5a5a5a5a5a5a5a5a}) << "not the older caller's memory";
  tokura_client* const client = tokura_client_create(&options, &error_);
  ASSERT_NE(client, nullptr) << error_.message;
  tokura_client_free(client);
  EXPECT_EQ(tokura_client_options_init(&options, kFirst - 1), TOKURA_INVALID_ARGUMENT);
}

TEST_F(CAbi, ReadinessSaysWhyNot) {
  StartClient();
  tokura_operation* ready = tokura_ready_start(client_, kSecond / 20, &error_);
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(tokura_operation_wait(ready, 60 * kSecond), 1);
  EXPECT_EQ(tokura_operation_status(ready, &error_), TOKURA_DEADLINE_EXCEEDED);
  EXPECT_THAT(std::string(error_.message), HasSubstr("127.0.0.1:1"));
  EXPECT_GT(tokura_operation_elapsed_ns(ready), kSecond / 20);
  tokura_operation_free(ready);
}

TEST_F(CAbi, AskingAnOperationForWhatItIsNot) {
  StartClient();
  tokura_operation* ready = tokura_ready_start(client_, TOKURA_FOREVER, &error_);
  ASSERT_NE(ready, nullptr);
  EXPECT_EQ(tokura_operation_done(ready), 0);
  EXPECT_EQ(tokura_operation_wait(ready, 0), 0);
  EXPECT_EQ(tokura_operation_wait(ready, kSecond / 100), 0);
  EXPECT_EQ(tokura_operation_status(ready, &error_), TOKURA_FAILED_PRECONDITION);
  EXPECT_THAT(std::string(error_.message), HasSubstr("not ended"));
  EXPECT_EQ(tokura_operation_released(ready), -1);
  EXPECT_EQ(tokura_operation_wait_layer(ready, 0, 0, 0), -1);
  EXPECT_EQ(tokura_operation_match(ready, &error_), nullptr);
  EXPECT_EQ(error_.code, TOKURA_FAILED_PRECONDITION);
  tokura_blocks_result result{};
  result.struct_size = sizeof(result);
  EXPECT_EQ(tokura_operation_result(ready, &result, &error_), TOKURA_FAILED_PRECONDITION);
  tokura_operation_free(ready);  // which does not wait
}

// Where and how often a callback ran.
struct Told {
  std::atomic<int> times = 0;
  std::atomic<std::thread::id> thread;
  static void Tell(void* context) {
    auto* told = static_cast<Told*>(context);
    told->thread = std::this_thread::get_id();
    ++told->times;
    told->times.notify_all();
  }
};

TEST_F(CAbi, CallbacksRunOnceOnTheProgressThreadOrAtOnce) {
  StartClient();
  Told told;
  tokura_operation* ready = tokura_ready_start(client_, kSecond / 20, &error_);
  ASSERT_NE(ready, nullptr);
  ASSERT_EQ(tokura_operation_notify(ready, &Told::Tell, &told, &error_), TOKURA_OK);
  EXPECT_EQ(tokura_operation_notify(ready, &Told::Tell, &told, &error_),
            TOKURA_FAILED_PRECONDITION);
  told.times.wait(0);
  EXPECT_EQ(tokura_operation_done(ready), 1);
  EXPECT_NE(told.thread.load(), std::this_thread::get_id());
  tokura_operation_free(ready);
  tokura_operation* stat = tokura_stat_start(client_, &error_);
  ASSERT_EQ(tokura_operation_wait(stat, 60 * kSecond), 1);
  ASSERT_EQ(tokura_operation_notify(stat, &Told::Tell, &told, &error_), TOKURA_OK);
  EXPECT_EQ(told.times, 2);
  EXPECT_EQ(told.thread.load(), std::this_thread::get_id());
  tokura_operation_free(stat);
}

TEST_F(CAbi, TheEndOfAClientEndsItsOperations) {
  StartClient();
  Told told;
  tokura_operation* ready = tokura_ready_start(client_, TOKURA_FOREVER, &error_);
  ASSERT_EQ(tokura_operation_notify(ready, &Told::Tell, &told, &error_), TOKURA_OK);
  tokura_operation* forgotten = tokura_ready_start(client_, TOKURA_FOREVER, &error_);
  tokura_operation_free(forgotten);
  tokura_client_free(client_);
  client_ = nullptr;
  EXPECT_EQ(tokura_operation_done(ready), 1);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(tokura_operation_status(ready, &error_), TOKURA_CANCELLED);
  tokura_operation_cancel(ready);  // its client is gone
  tokura_operation_free(ready);
}

TEST_F(CAbi, NobodyThereIsAMissAndNoError) {
  StartClient();
  std::vector<uint32_t> tokens(128, 7);
  ASSERT_EQ(tokura_chain_append_tokens(chain_, tokens.data(), tokens.size(), nullptr, 0, &error_),
            TOKURA_OK);
  tokura_operation* lookup = tokura_lookup_start(client_, ns_, chain_, nullptr, &error_);
  ASSERT_NE(lookup, nullptr);
  ASSERT_EQ(tokura_operation_wait(lookup, 60 * kSecond), 1);
  tokura_match* match = tokura_operation_match(lookup, &error_);
  ASSERT_NE(match, nullptr) << error_.message;
  tokura_operation_free(lookup);
  tokura_match_info info{};
  EXPECT_EQ(tokura_match_describe(match, &info, &error_), TOKURA_INVALID_ARGUMENT);
  ExpectInvalid("struct_size 0");
  info.struct_size = sizeof(info);
  ASSERT_EQ(tokura_match_describe(match, &info, &error_), TOKURA_OK);
  EXPECT_EQ(info.blocks, 0u);
  EXPECT_EQ(info.held, 0u);
  tokura_bytes* bytes = tokura_match_to_bytes(match, &error_);
  tokura_match* again =
      tokura_match_from_bytes(tokura_bytes_data(bytes), tokura_bytes_size(bytes), &error_);
  EXPECT_NE(again, nullptr);
  EXPECT_EQ(tokura_match_from_bytes(tokura_bytes_data(bytes), 5, &error_), nullptr);
  EXPECT_EQ(error_.code, TOKURA_INVALID_ARGUMENT);
  tokura_match_free(again);
  tokura_bytes_free(bytes);
  tokura_match_free(match);
  tokura_operation* removal =
      tokura_remove_start(client_, ns_, tokura_chain_keys(chain_), 2, &error_);
  ASSERT_EQ(tokura_operation_wait(removal, 60 * kSecond), 1);
  tokura_blocks_result result{};
  result.struct_size = sizeof(result);
  ASSERT_EQ(tokura_operation_result(removal, &result, &error_), TOKURA_OK);
  EXPECT_EQ(result.blocks, 2u);
  EXPECT_EQ(result.codes[0], TOKURA_UNAVAILABLE);
  EXPECT_STRNE(result.messages[0], "");
  EXPECT_EQ(result.codecs, nullptr);
  tokura_operation_free(removal);
}

TEST_F(CAbi, ViewsThatCannotBeAreRefusedAtOnce) {
  StartClient();
  std::vector<uint32_t> tokens(64, 7);
  tokura_chain_append_tokens(chain_, tokens.data(), tokens.size(), nullptr, 0, &error_);
  std::vector<char> memory(size_t{64} * 1024);
  tokura_kv_layer layers[2] = {{memory.data(), memory.data()}, {memory.data(), memory.data()}};
  const uint32_t page = 0;
  tokura_kv_view view;
  tokura_kv_view_init(&view, sizeof(view));
  view.heads = 2;
  view.k_head_dim = view.v_head_dim = 64;
  view.tokens = view.page_tokens = 64;
  view.page_table = &page;
  view.page_table_count = 1;
  view.layers = layers;
  view.layers_count = 2;
  view.k_strides = view.v_strides = {0, 64 * 64 * 2, 64 * 2, 2};
  const tokura_kv_view* groups[] = {&view};
  tokura_sequence_view sequence;
  tokura_sequence_view_init(&sequence, sizeof(sequence));
  const auto refused = [&](const char* text) {
    EXPECT_EQ(tokura_put_start(client_, ns_, chain_, &sequence, nullptr, &error_), nullptr);
    ExpectInvalid(text);
  };
  sequence.groups_count = 1;
  refused("groups is NULL");
  sequence.groups = groups;
  view.dtype = 77;
  refused("dtype 77");
  view.dtype = TOKURA_FLOAT16;
  view.space = 2;
  refused("space 2");
  view.space = TOKURA_HOST;
  view.page_table = nullptr;
  refused("page_table is NULL");
  view.page_table = &page;
  view.layers_count = 1;
  refused("layer");
  view.layers_count = 2;
  tokura_put_options options;
  tokura_put_options_init(&options, sizeof(options));
  options.codec = "mp3";
  EXPECT_EQ(tokura_put_start(client_, ns_, chain_, &sequence, &options, &error_), nullptr);
  EXPECT_EQ(error_.code, TOKURA_NOT_FOUND);
  tokura_operation* put = tokura_put_start(client_, ns_, chain_, &sequence, nullptr, &error_);
  ASSERT_NE(put, nullptr) << error_.message;
  EXPECT_EQ(tokura_operation_wait_released(put, 60 * kSecond), 1);
  EXPECT_EQ(tokura_operation_layer_done(put, 0, 0), -1);
  tokura_operation_free(put);
}

}  // namespace
