#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/kvcap.h"
#include "proto/namespace.h"
#include "tokura/types.h"

namespace tokura::cli {

// What a capture does not say about its namespace.
struct NamespaceChoice {
  std::string tenant = "default";
  std::string model;  // empty: the capture's
  uint32_t block_tokens = 64;
};
// The namespace of a capture's KV: float16, after RoPE, one layer group per attention kind and
// window, one head shard. INVALID_ARGUMENT names the field and the rule it breaks.
absl::StatusOr<NamespaceSpec> CaptureNamespace(const Capture& capture,
                                               const NamespaceChoice& choice);
// The keys of all complete blocks of the captured tokens.
TokenChain CaptureChain(const Capture& capture, const Fingerprint& fingerprint,
                        uint32_t block_tokens);

// Keys and values of one sequence as an engine would hold them: float16,
// [layers][kv_heads][tokens][head_dim], contiguous. Thread-compatible. The views that it gives
// borrow it, and moving it leaves them valid.
class SequenceMemory {
 public:
  // All of a capture's positions.
  static SequenceMemory CopyOf(const Capture& capture);
  // As many positions of the same shape, every byte 0xff (a NaN, so that what was never written
  // shows).
  static SequenceMemory Blank(const Capture& capture);

  // Views of all groups of `spec` (CaptureNamespace of the same capture).
  SequenceView View(const NamespaceSpec& spec);
  std::span<const uint16_t> k() const { return k_; }
  std::span<const uint16_t> v() const { return v_; }
  std::span<const uint16_t> K(size_t layer, size_t head) const;
  std::span<const uint16_t> V(size_t layer, size_t head) const;
  // Take tokens [first, tokens) of every layer and head from the capture: what an engine computes
  // when the cache does not have it.
  void CopyTokensFrom(const Capture& capture, uint32_t first);

 private:
  explicit SequenceMemory(const Capture& capture);
  size_t HeadElements() const { return size_t{tokens_} * head_dim_; }

  uint32_t kv_heads_;
  uint32_t tokens_;
  uint32_t head_dim_;
  std::vector<uint32_t> layer_indices_;  // in the model
  std::vector<uint16_t> k_;
  std::vector<uint16_t> v_;
};

}  // namespace tokura::cli
