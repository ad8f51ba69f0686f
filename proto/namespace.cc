#include "proto/namespace.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

constexpr char kDomain[] = "tokura-namespace-v1";
constexpr size_t kStringBytesMax = 1024;
constexpr size_t kGroupsMax = 8;
constexpr uint32_t kLayersMax = 4096;  // layer indices are below it
constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kHeadDimMax = 65536;
constexpr uint32_t kHeadShardsMax = 256;  // a part names its shard in one byte
constexpr uint32_t kBlockTokensMax = 1024;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("namespace: ", parts...));
}

absl::Status CheckText(const char* field, const std::string& text) {
  if (text.size() > kStringBytesMax) {
    return Invalid(field, " has ", text.size(), " bytes; at most ", kStringBytesMax);
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const std::string& field, uint32_t value, uint32_t min, uint32_t max) {
  if (value < min || value > max) {
    return Invalid(field, " is ", value, "; must be ", min, " to ", max);
  }
  return absl::OkStatus();
}

absl::Status CheckTexts(const NamespaceSpec& spec) {
  if (spec.tenant.empty()) {
    return Invalid("tenant is empty");
  }
  if (spec.model.empty()) {
    return Invalid("model is empty");
  }
  TOKURA_RETURN_IF_ERROR(CheckText("tenant", spec.tenant));
  TOKURA_RETURN_IF_ERROR(CheckText("model", spec.model));
  TOKURA_RETURN_IF_ERROR(CheckText("model_revision", spec.model_revision));
  TOKURA_RETURN_IF_ERROR(CheckText("lora_digest", spec.lora_digest));
  return CheckText("salt", spec.salt);
}

// `seen` collects the layers of the groups before: a layer belongs to one group.
absl::Status CheckLayers(const std::string& name, const LayerGroup& group,
                         std::set<uint32_t>* seen) {
  if (group.layers.empty()) {
    return Invalid(name, ".layers is empty");
  }
  for (size_t i = 0; i < group.layers.size(); ++i) {
    TOKURA_RETURN_IF_ERROR(CheckRange(name + ".layers", group.layers[i], 0, kLayersMax - 1));
    if (i > 0 && group.layers[i] <= group.layers[i - 1]) {
      return Invalid(name, ".layers must ascend; ", group.layers[i], " follows ",
                     group.layers[i - 1]);
    }
    if (!seen->insert(group.layers[i]).second) {
      return Invalid(name, ".layers has ", group.layers[i], ", which an earlier group has too");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const std::string& name, const LayerGroup& group, uint32_t head_shards) {
  TOKURA_RETURN_IF_ERROR(CheckRange(name + ".kv_heads", group.kv_heads, 1, kHeadsMax));
  TOKURA_RETURN_IF_ERROR(CheckRange(name + ".k_head_dim", group.k_head_dim, 1, kHeadDimMax));
  if (group.kind == AttentionKind::kLatent) {
    if (group.kv_heads != 1) {
      return Invalid(name, ".kv_heads is ", group.kv_heads, "; a latent group has 1");
    }
    TOKURA_RETURN_IF_ERROR(CheckRange(name + ".v_head_dim", group.v_head_dim, 0, 0));
  } else {
    TOKURA_RETURN_IF_ERROR(CheckRange(name + ".v_head_dim", group.v_head_dim, 1, kHeadDimMax));
  }
  if (group.kv_heads % head_shards != 0) {
    return Invalid(name, ".kv_heads is ", group.kv_heads, ", not a multiple of head_shards ",
                   head_shards);
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const std::string& name, const LayerGroup& group, uint32_t head_shards,
                        std::set<uint32_t>* seen) {
  if (group.kind > AttentionKind::kOther) {
    return Invalid(name, ".kind is ", static_cast<int>(group.kind), ", which is no attention kind");
  }
  const bool sliding = group.kind == AttentionKind::kSliding;
  if (sliding != (group.window > 0)) {
    return Invalid(name, ".window is ", group.window,
                   sliding ? "; a sliding group needs one" : "; only a sliding group has one");
  }
  TOKURA_RETURN_IF_ERROR(CheckLayers(name, group, seen));
  return CheckHeads(name, group, head_shards);
}

void WriteGroup(const LayerGroup& group, Sha256Writer* hash) {
  hash->U8(static_cast<uint8_t>(group.kind));
  hash->U32(group.window);
  hash->U32(group.kv_heads);
  hash->U32(group.k_head_dim);
  hash->U32(group.v_head_dim);
  hash->U32(static_cast<uint32_t>(group.layers.size()));
  hash->U32s(group.layers);
}

}  // namespace

absl::Status ValidateNamespace(const NamespaceSpec& spec) {
  TOKURA_RETURN_IF_ERROR(CheckTexts(spec));
  if (DTypeBytes(spec.dtype) == 0) {
    return Invalid("dtype is ", static_cast<int>(spec.dtype), ", which is no element type");
  }
  if (spec.rope > RopeState::kNone) {
    return Invalid("rope is ", static_cast<int>(spec.rope), ", which is no RoPE state");
  }
  TOKURA_RETURN_IF_ERROR(CheckRange("head_shards", spec.head_shards, 1, kHeadShardsMax));
  TOKURA_RETURN_IF_ERROR(CheckRange("block_tokens", spec.block_tokens, 1, kBlockTokensMax));
  if (spec.groups.empty() || spec.groups.size() > kGroupsMax) {
    return Invalid("groups has ", spec.groups.size(), " entries; must be 1 to ", kGroupsMax);
  }
  std::set<uint32_t> seen;
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    TOKURA_RETURN_IF_ERROR(
        CheckGroup(absl::StrCat("groups[", i, "]"), spec.groups[i], spec.head_shards, &seen));
  }
  return absl::OkStatus();
}

Fingerprint ComputeFingerprint(const NamespaceSpec& spec) {
  Sha256Writer hash;
  hash.Raw(kDomain);
  hash.String(spec.tenant);
  hash.String(spec.model);
  hash.String(spec.model_revision);
  hash.String(spec.lora_digest);
  hash.String(spec.salt);
  hash.U8(static_cast<uint8_t>(spec.dtype));
  hash.U8(static_cast<uint8_t>(spec.rope));
  hash.U32(spec.head_shards);
  hash.U32(spec.block_tokens);
  hash.U32(static_cast<uint32_t>(spec.groups.size()));
  for (const LayerGroup& group : spec.groups) {
    WriteGroup(group, &hash);
  }
  return Fingerprint::FromBytes(hash.Finish());
}

}  // namespace tokura
