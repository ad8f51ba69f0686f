#pragma once

// Parts: the encoded form of (layer group × head shard) of one block; the unit of put, get and
// checksum. FORMAT.md defines the bytes; this header is how everything else makes and reads them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "common/ids.h"
#include "kernels/kv_view.h"

namespace tokura::kernels {

inline constexpr uint32_t kFormatMajor = 0;
inline constexpr uint32_t kFormatRevision = 1;  // raised with every change of bytes
std::string FormatVersionString();              // "0.1"
inline constexpr size_t kPartAlignment = 64;    // of a part's first byte in memory

struct PartIdentity {
  Fingerprint fingerprint;
  BlockKey key;
  ContentId content_id;
  PartId part;
  friend bool operator==(const PartIdentity&, const PartIdentity&) = default;
};

struct PartShape {
  DType dtype = DType::kFloat16;  // of the engine's KV, and of what `raw` stores
  uint32_t layers = 0;
  uint32_t heads = 0;  // KV heads of this shard
  uint32_t k_head_dim = 0;
  uint32_t v_head_dim = 0;
  uint32_t tokens = 0;  // of this block
  friend bool operator==(const PartShape&, const PartShape&) = default;
};

// A preset of the codec table (kernels/codec.h), or "K+V" of two side names. Values are small and
// copied.
struct CodecName {
  std::string name;
};

enum class Fidelity : uint8_t { kExact = 1, kQuantized = 2, kSummary = 3 };

// Measured at encode time: per layer the sums of DESIGN §6 (error and size over heads and proxy
// queries), so that head shards can be added. ε of a layer = sqrt(error / size). All zero for exact
// codecs.
struct ErrorRecord {
  struct Layer {
    double error = 0;
    double size = 0;
  };
  std::vector<Layer> layers;
  uint32_t queries = 0;
  uint64_t profile = 0;  // 0: the block's own keys stood in (proxy)
  bool composed = false;
  bool proxy() const { return profile == 0; }
  double LayerError(size_t layer) const;
  double Mean() const;
  double Max() const;
};

struct EncodeOptions {
  std::string codec = "kivi4";  // preset name; NOT_FOUND lists the known ones
  uint32_t sink_tokens =
      4;  // first tokens of the *sequence* kept raw; only blocks that hold them are affected
  uint32_t block_position = 0;  // index of the block in its chain
  enum class Record {
    kMeasure,
    kSkip
  } record = Record::kMeasure;  // kSkip: exact codecs, benchmarks
  uint32_t record_queries = 16;
};

// Upper bound in bytes of a part of this shape and codec, whatever the values (a layer that falls
// back to raw included).
absl::StatusOr<size_t> PartBytesMax(const PartShape& shape, std::string_view codec);

// Encodes one part, one layer per call, so that a caller can look at its deadline in between. Reads
// `view` only inside EncodeLayer, and only the heads and tokens named. Writes only inside `out`.
// Thread-compatible.
class PartEncoder {
 public:
  struct Source {
    const KvView* view = nullptr;  // outlives the encoder; dtype and dims must agree with the shape
    uint32_t first_head = 0;       // in the view
    uint32_t first_token = 0;
  };
  // `out`: PartBytesMax or more, kPartAlignment-aligned. INVALID_ARGUMENT: shape and view disagree,
  // `out` too small; NOT_FOUND: unknown codec; UNIMPLEMENTED: the codec cannot code this shape or
  // dtype.
  static absl::StatusOr<PartEncoder> Create(const PartIdentity& identity, const PartShape& shape,
                                            const Source& source, const EncodeOptions& options,
                                            std::span<std::byte> out);
  PartEncoder(PartEncoder&&) noexcept;
  PartEncoder& operator=(PartEncoder&&) noexcept;
  ~PartEncoder();

  uint32_t layers() const;
  // Encode layer `next` (0, 1, …) of the part. Non-finite values make the layer fall back to raw
  // (counted).
  void EncodeLayer();
  bool done() const;
  // After the last layer: write header, record and table; return the part's bytes.
  size_t Finish();
  uint32_t raw_fallback_layers() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a part's prefix says. All offsets are from the part's first byte.
struct PartInfo {
  PartIdentity identity;
  PartShape shape;
  std::string codec;  // preset name or "K+V"
  Fidelity fidelity = Fidelity::kExact;
  ErrorRecord error;
  size_t prefix_bytes = 0;  // header, record, table: what a layer range needs besides its layers
  size_t part_bytes = 0;
  std::vector<size_t>
      layer_offset;  // layers + 1 entries; layer i is [layer_offset[i], layer_offset[i + 1])
};

// Reads parts from untrusted bytes. Thread-compatible; const calls may run in parallel.
class PartReader {
 public:
  // Parse and verify the prefix: header CRC, record CRC, table CRC, bounds. `prefix` may be the
  // whole part or only its first prefix_bytes. INVALID_ARGUMENT: not a part, or truncated;
  // FAILED_PRECONDITION: another format revision or an unknown critical extension (the message has
  // both versions); DATA_LOSS: a checksum does not match.
  static absl::StatusOr<PartReader> Open(std::span<const std::byte> prefix);

  const PartInfo& info() const { return info_; }

  // Check the CRC-32C of layer `layer`, whose stored bytes are `bytes`. DATA_LOSS: no match;
  // INVALID_ARGUMENT: wrong size.
  absl::Status VerifyLayer(uint32_t layer, std::span<const std::byte> bytes) const;

  // Decode layer `layer` (verified bytes) into `view`, layer `view_layer` of it, heads from
  // `first_head`, tokens from `first_token`. The view's dtype may differ from the part's (float32,
  // float16, bfloat16). Writes exactly those elements. INVALID_ARGUMENT: shape and view disagree;
  // DATA_LOSS: the slab is malformed, nothing has been written.
  struct Target {
    const KvView* view = nullptr;
    uint32_t view_layer = 0;
    uint32_t first_head = 0;
    uint32_t first_token = 0;
  };
  absl::Status DecodeLayer(uint32_t layer, std::span<const std::byte> bytes,
                           const Target& target) const;

 private:
  struct Table;
  PartInfo info_;
  std::shared_ptr<const Table> table_;  // owners: copies of this reader
};

// Verify a whole part: prefix, identity equal to `expected` where given, every layer's CRC. As
// Open, and DATA_LOSS for another identity.
absl::StatusOr<PartInfo> VerifyPart(std::span<const std::byte> part,
                                    const PartIdentity* expected = nullptr);

}  // namespace tokura::kernels
