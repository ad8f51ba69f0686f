#pragma once

// Keys, values and queries captured from a language model: the .kvcap files of tests/data/kv, whose
// README fixes the layout.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tokura::cli {

struct CaptureLayer {
  enum class Kind : uint32_t { kFull = 0, kSliding = 1 };
  uint32_t index = 0;  // in the model
  Kind kind = Kind::kFull;
  uint32_t window = 0;  // a query at position p sees p - window + 1 … p; 0 when full
  float rope_theta = 0;
  friend bool operator==(const CaptureLayer&, const CaptureLayer&) = default;
};

// One captured sequence. Values are IEEE float16 bits; positions are absolute. A value.
struct Capture {
  std::string model;  // at most 32 bytes
  uint32_t model_layers = 0;
  uint32_t kv_heads = 0;
  uint32_t q_heads =
      0;  // a multiple of kv_heads; query head h reads KV head h / queries_per_head()
  uint32_t head_dim = 0;
  uint32_t tokens = 0;          // positions in k and v
  uint32_t first_position = 0;  // of k and v; not 0 only where the capture continues a prefix
  uint32_t queries = 0;
  uint32_t first_query_position = 0;
  uint32_t context_tokens = 0;  // positions below this are what a cache would hold
  uint32_t rope_kind = 1;
  float softmax_scale = 0;
  uint32_t flags = 0;
  std::vector<CaptureLayer> layers;  // ascending indices
  std::vector<uint32_t> token_ids;   // [tokens]
  std::vector<uint16_t> k;           // [layers][kv_heads][tokens][head_dim], RoPE applied
  std::vector<uint16_t> v;           // [layers][kv_heads][tokens][head_dim]
  std::vector<uint16_t> q;           // [layers][q_heads][queries][head_dim], RoPE applied, unscaled

  uint32_t queries_per_head() const { return q_heads / kv_heads; }
  // Elements of one (layer, head) of k and v.
  size_t HeadElements() const { return size_t{tokens} * head_dim; }
  std::span<const uint16_t> K(size_t layer, size_t head) const;
  std::span<const uint16_t> V(size_t layer, size_t head) const;
  std::span<const uint16_t> Q(size_t layer, size_t query_head) const;
  // Raw size of k and v.
  size_t KvBytes() const { return (k.size() + v.size()) * sizeof(uint16_t); }
};

// Read a capture from untrusted bytes. INVALID_ARGUMENT: not a capture of this version, or a header
// that contradicts itself or the size; DATA_LOSS: the checksum does not match.
absl::StatusOr<Capture> ParseCapture(std::span<const std::byte> bytes);
// The bytes that ParseCapture reads. Requires array sizes that agree with the dimensions.
std::string SerializeCapture(const Capture& capture);

// As ParseCapture, from a file; the message names it. NOT_FOUND: no such file; UNAVAILABLE: it
// cannot be read.
absl::StatusOr<Capture> ReadCapture(const std::string& path);
// Replace the file at once. UNAVAILABLE: it cannot be written.
absl::Status WriteCapture(const std::string& path, const Capture& capture);

// The capture with its prefix's tokens, keys and values put in front. INVALID_ARGUMENT: the capture
// does not continue this prefix (another model, shape or length).
absl::StatusOr<Capture> JoinCaptures(const Capture& prefix, const Capture& continuation);
// ReadCapture of `path`, joined with the capture at `prefix_path` when that is not empty.
// INVALID_ARGUMENT also: the capture continues a prefix and none was given.
absl::StatusOr<Capture> ReadSequence(const std::string& path, const std::string& prefix_path);

}  // namespace tokura::cli
