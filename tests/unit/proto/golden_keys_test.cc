// The committed vectors of tests/golden/keys.json, which hashlib computed from WIRE.md.

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "proto/block_key.h"
#include "proto/namespace.h"

namespace tokura {
namespace {

using nlohmann::json;

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

NamespaceSpec ReadSpec(const json& in) {
  NamespaceSpec spec;
  spec.tenant = in["tenant"];
  spec.model = in["model"];
  spec.model_revision = in["model_revision"];
  spec.lora_digest = in["lora_digest"];
  spec.salt = in["salt"];
  spec.dtype = static_cast<DType>(in["dtype"].get<int>());
  spec.rope = static_cast<RopeState>(in["rope"].get<int>());
  spec.head_shards = in["head_shards"];
  spec.block_tokens = in["block_tokens"];
  for (const json& group : in["groups"]) {
    spec.groups.push_back({static_cast<AttentionKind>(group["kind"].get<int>()), group["window"],
                           group["layers"], group["kv_heads"], group["k_head_dim"],
                           group["v_head_dim"]});
  }
  return spec;
}

class GoldenKeysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* source = std::getenv("TOKURA_SOURCE_DIR");
    ASSERT_NE(source, nullptr) << "run by ctest, or set TOKURA_SOURCE_DIR to the repository";
    std::ifstream file(std::string(source) + "/tests/golden/keys.json");
    golden_ = json::parse(file);
    for (const json& entry : golden_["namespaces"]) {
      specs_.push_back(ReadSpec(entry["spec"]));
    }
  }
  json golden_;
  std::vector<NamespaceSpec> specs_;
};

TEST_F(GoldenKeysTest, Fingerprints) {
  ASSERT_GE(specs_.size(), 7u);
  for (size_t i = 0; i < specs_.size(); ++i) {
    EXPECT_TRUE(ValidateNamespace(specs_[i]).ok()) << ValidateNamespace(specs_[i]);
    EXPECT_EQ(ToHex(ComputeFingerprint(specs_[i]).span()), golden_["namespaces"][i]["fingerprint"]);
  }
}

TEST_F(GoldenKeysTest, Chains) {
  ASSERT_GE(golden_["chains"].size(), 5u);
  for (const json& entry : golden_["chains"]) {
    const NamespaceSpec& spec = specs_[entry["namespace"].get<size_t>()];
    TokenChain chain(ComputeFingerprint(spec), spec.block_tokens);
    for (const json& append : entry["appends"]) {
      std::vector<KeyExtra> extras;
      for (const json& extra : append["extras"]) {
        extras.push_back({extra["kind"], FromHex(extra["hash"])});
      }
      chain.Append(append["tokens"].get<std::vector<uint32_t>>(), extras);
    }
    std::vector<std::string> keys;
    for (const BlockKey& key : chain.keys()) {
      keys.push_back(ToHex(key.span()));
    }
    EXPECT_EQ(keys, entry["keys"].get<std::vector<std::string>>());
    EXPECT_GE(keys.size(), 2u);
  }
}

TEST_F(GoldenKeysTest, EngineKeys) {
  ASSERT_GE(golden_["engine_keys"].size(), 3u);
  for (const json& entry : golden_["engine_keys"]) {
    const std::string hash = FromHex(entry["hash"]);
    const Fingerprint space = ComputeFingerprint(specs_[entry["namespace"].get<size_t>()]);
    const BlockKey key =
        EngineBlockKey(space, std::as_bytes(std::span<const char>(hash.data(), hash.size())));
    EXPECT_EQ(ToHex(key.span()), entry["key"]);
  }
}

}  // namespace
}  // namespace tokura
