#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/dtype.h"
#include "common/ids.h"

namespace tokura {

enum class AttentionKind : uint8_t {
  kFull = 0,
  kSliding = 1,
  kLatent = 2,
  kRecurrent = 3,
  kOther = 4
};
enum class RopeState : uint8_t { kPost = 0, kPre = 1, kNone = 2 };

// The layers of one attention kind. Parts of a block are (layer group × head shard).
struct LayerGroup {
  AttentionKind kind = AttentionKind::kFull;
  uint32_t window = 0;           // tokens a query sees, sliding groups only
  std::vector<uint32_t> layers;  // ascending indices in the model
  uint32_t kv_heads =
      0;  // of the whole model; divisible by the namespace's head_shards (1 for kLatent)
  uint32_t k_head_dim = 0;  // kLatent: latent + rope channels
  uint32_t v_head_dim = 0;  // kLatent: 0, V is part of K
};

// Everything that must match for KV to be interchangeable. Two processes that differ in any field
// never see each other's blocks: their fingerprints differ, so a mismatch is a miss.
struct NamespaceSpec {
  std::string tenant = "default";
  std::string model;           // name and
  std::string model_revision;  // revision of the weights
  std::string lora_digest;     // empty: no adapter
  std::string salt;            // cache salt; empty: none
  DType dtype = DType::kFloat16;
  std::vector<LayerGroup> groups;  // 1…8
  uint32_t head_shards = 1;        // common tensor-parallel granule
  uint32_t block_tokens = 64;      // 1…1024
  RopeState rope = RopeState::kPost;
};

// INVALID_ARGUMENT names the field and the rule it breaks.
absl::Status ValidateNamespace(const NamespaceSpec& spec);

// SHA-256 over the length-prefixed, domain-separated fields (proto/WIRE.md gives the bytes; vectors
// in tests/golden). Requires a valid spec.
Fingerprint ComputeFingerprint(const NamespaceSpec& spec);

}  // namespace tokura
