#include "proto/namespace.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura {
namespace {

using ::testing::HasSubstr;

NamespaceSpec Plain() {
  NamespaceSpec spec;
  spec.tenant = "t";
  spec.model = "m";
  spec.groups = {{AttentionKind::kFull, 0, {0, 2}, 8, 128, 128},
                 {AttentionKind::kSliding, 1024, {1, 3}, 8, 64, 64}};
  return spec;
}

using Change = std::function<void(NamespaceSpec&)>;

TEST(NamespaceTest, EveryFieldChangesTheFingerprint) {
  const std::map<std::string, Change> changes = {
      {"nothing", [](NamespaceSpec&) {}},
      {"tenant", [](NamespaceSpec& s) { s.tenant = "x"; }},
      {"model", [](NamespaceSpec& s) { s.model = "x"; }},
      {"revision", [](NamespaceSpec& s) { s.model_revision = "x"; }},
      {"lora", [](NamespaceSpec& s) { s.lora_digest = "x"; }},
      {"salt", [](NamespaceSpec& s) { s.salt = "x"; }},
      {"dtype", [](NamespaceSpec& s) { s.dtype = DType::kBFloat16; }},
      {"rope", [](NamespaceSpec& s) { s.rope = RopeState::kPre; }},
      {"shards", [](NamespaceSpec& s) { s.head_shards = 2; }},
      {"block", [](NamespaceSpec& s) { s.block_tokens = 16; }},
      {"fewer groups", [](NamespaceSpec& s) { s.groups.pop_back(); }},
      {"group order", [](NamespaceSpec& s) { std::swap(s.groups[0], s.groups[1]); }},
      {"kind", [](NamespaceSpec& s) { s.groups[0].kind = AttentionKind::kOther; }},
      {"window", [](NamespaceSpec& s) { s.groups[1].window = 512; }},
      {"layers",
       [](NamespaceSpec& s) {
         s.groups[0].layers = {0, 4};
       }},
      {"layer count", [](NamespaceSpec& s) { s.groups[0].layers = {0}; }},
      {"layer moved",
       [](NamespaceSpec& s) {
         s.groups[0].layers = {0};
         s.groups[1].layers = {1, 2, 3};
       }},
      {"heads", [](NamespaceSpec& s) { s.groups[0].kv_heads = 4; }},
      {"k dim", [](NamespaceSpec& s) { s.groups[0].k_head_dim = 64; }},
      {"v dim", [](NamespaceSpec& s) { s.groups[0].v_head_dim = 64; }},
  };
  std::map<Fingerprint, std::string> seen;
  for (const auto& [name, change] : changes) {
    NamespaceSpec spec = Plain();
    change(spec);
    EXPECT_TRUE(ValidateNamespace(spec).ok()) << name << ValidateNamespace(spec);
    const auto [other, fresh] = seen.emplace(ComputeFingerprint(spec), name);
    EXPECT_TRUE(fresh) << name << " has the fingerprint of " << other->second;
  }
}

TEST(NamespaceTest, BytesDoNotMoveBetweenFields) {
  std::map<Fingerprint, int> seen;
  int count = 0;
  const auto add = [&](const Change& change) {
    NamespaceSpec spec = Plain();
    change(spec);
    seen[ComputeFingerprint(spec)] = ++count;
  };
  add([](NamespaceSpec& s) { s.tenant = "ab", s.model = "c"; });
  add([](NamespaceSpec& s) { s.tenant = "a", s.model = "bc"; });
  add([](NamespaceSpec& s) { s.model = "a", s.model_revision = "bc"; });
  add([](NamespaceSpec& s) { s.model = "ab", s.model_revision = "c"; });
  add([](NamespaceSpec& s) { s.lora_digest = "x"; });
  add([](NamespaceSpec& s) { s.salt = "x"; });
  add([](NamespaceSpec& s) { s.model_revision = "x"; });
  add([](NamespaceSpec& s) { s.model_revision = std::string("x\0", 2); });
  add([](NamespaceSpec& s) { s.tenant = std::string("t\0", 2); });
  EXPECT_EQ(seen.size(), static_cast<size_t>(count));
}

TEST(NamespaceTest, InvalidSpecsAreNamed) {
  const std::vector<std::pair<Change, const char*>> cases = {
      {[](NamespaceSpec& s) { s.tenant.clear(); }, "tenant is empty"},
      {[](NamespaceSpec& s) { s.model.clear(); }, "model is empty"},
      {[](NamespaceSpec& s) { s.salt.assign(1025, 'x'); }, "salt has 1025 bytes"},
      {[](NamespaceSpec& s) { s.model_revision.assign(1025, 'x'); }, "model_revision has 1025"},
      {[](NamespaceSpec& s) { s.dtype = static_cast<DType>(0); }, "dtype is 0"},
      {[](NamespaceSpec& s) { s.dtype = static_cast<DType>(5); }, "dtype is 5"},
      {[](NamespaceSpec& s) { s.rope = static_cast<RopeState>(3); }, "rope is 3"},
      {[](NamespaceSpec& s) { s.head_shards = 0; }, "head_shards is 0"},
      {[](NamespaceSpec& s) { s.head_shards = 257; }, "head_shards is 257"},
      {[](NamespaceSpec& s) { s.head_shards = 3; }, "not a multiple of head_shards 3"},
      {[](NamespaceSpec& s) { s.block_tokens = 0; }, "block_tokens is 0"},
      {[](NamespaceSpec& s) { s.block_tokens = 1025; }, "block_tokens is 1025"},
      {[](NamespaceSpec& s) { s.groups.clear(); }, "groups has 0 entries"},
      {[](NamespaceSpec& s) { s.groups.resize(9); }, "groups has 9 entries"},
      {[](NamespaceSpec& s) { s.groups[0].window = 1; }, "groups[0].window is 1"},
      {[](NamespaceSpec& s) { s.groups[1].window = 0; }, "groups[1].window is 0"},
      {[](NamespaceSpec& s) { s.groups[0].layers.clear(); }, "groups[0].layers is empty"},
      {[](NamespaceSpec& s) {
         s.groups[0].layers = {2, 0};
       },
       "must ascend"},
      {[](NamespaceSpec& s) {
         s.groups[0].layers = {2, 2};
       },
       "must ascend"},
      {[](NamespaceSpec& s) { s.groups[1].layers = {2}; }, "which an earlier group has too"},
      {[](NamespaceSpec& s) { s.groups[0].layers = {4096}; }, "groups[0].layers is 4096"},
      {[](NamespaceSpec& s) { s.groups[0].kv_heads = 0; }, "groups[0].kv_heads is 0"},
      {[](NamespaceSpec& s) { s.groups[0].k_head_dim = 0; }, "groups[0].k_head_dim is 0"},
      {[](NamespaceSpec& s) { s.groups[0].v_head_dim = 0; }, "groups[0].v_head_dim is 0"},
      {[](NamespaceSpec& s) { s.groups[0].kind = static_cast<AttentionKind>(5); }, "kind is 5"},
      {[](NamespaceSpec& s) { s.groups[0] = {AttentionKind::kLatent, 0, {0}, 2, 576, 0}; },
       "a latent group has 1"},
      {[](NamespaceSpec& s) { s.groups[0] = {AttentionKind::kLatent, 0, {0}, 1, 576, 64}; },
       "groups[0].v_head_dim is 64"},
  };
  EXPECT_TRUE(ValidateNamespace(Plain()).ok());
  for (const auto& [change, message] : cases) {
    NamespaceSpec spec = Plain();
    change(spec);
    const absl::Status status = ValidateNamespace(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace tokura
