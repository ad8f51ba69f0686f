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

class ProfileSource;

inline constexpr uint32_t kFormatMajor = 0;
inline constexpr uint32_t kFormatRevision = 3;  // raised with every change of bytes
std::string FormatVersionString();              // "0.3"
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

// Measured at encode time: per layer the sums of error and size over heads and queries that
// FORMAT.md defines, so that head shards can be added. ε of a layer = sqrt(error / size). All zero
// for exact parts. A layer that fell back to raw has error 0 and size 0; one whose values were too
// large to measure has an infinite error.
struct ErrorRecord {
  struct Layer {
    double error = 0;
    double size = 0;
  };
  std::vector<Layer> layers;
  uint32_t queries = 0;
  uint64_t profile = 0;  // 0: the block's own keys stood in (proxy)
  bool composed = false;
  // False: a lossy part whose error nobody measured (Record::kSkip). Every ε is then +infinity, so
  // that no bound accepts it and nobody takes it for exact.
  bool measured = true;
  bool proxy() const { return profile == 0; }
  double LayerError(size_t layer) const;  // 0 for a layer without error, whatever its size
  double Mean() const;                    // over layers; 0 without layers
  double Max() const;
};

// README.md, "The error record", has what they cost and how true they are.
inline constexpr uint32_t kRecordQueries = 24;
inline constexpr uint32_t kTileRecordQueries = 64;
inline constexpr uint32_t kHotRecordQueries = 4;
// How many a record is measured with unless somebody says: kTileRecordQueries where the instruction
// set in force (cpu_features.h) has tile units, which measure them in the time that others take for
// kRecordQueries. Thread-safe.
uint32_t DefaultRecordQueries();

struct EncodeOptions {
  std::string codec = "kivi4";  // preset name; NOT_FOUND lists the known ones
  // First tokens of the *sequence* kept raw; only blocks that hold them are affected.
  uint32_t sink_tokens = 4;
  // Index of the block in its chain, whose blocks have shape.tokens tokens each.
  uint32_t block_position = 0;
  // kSkip: benchmarks, and callers that know the codec is exact; a lossy part is then marked as not
  // measured. Exact codecs have ε = 0 and measure nothing.
  enum class Record { kMeasure, kSkip } record = Record::kMeasure;
  // Exemplar queries of the profile, or keys of the block that stand in for them; a profile may
  // have fewer. 0: DefaultRecordQueries(). kHotRecordQueries where encoding must not wait.
  uint32_t record_queries = 0;
  // Layers of the part that another codec codes, each named once: the first and last layers of a
  // model are the more sensitive ones.
  struct LayerCodec {
    uint32_t layer = 0;
    std::string codec;
  };
  std::vector<LayerCodec> layer_codecs = {};
  // The model profile for the record's queries and for codecs that use one, by the id under which
  // `profiles` (borrowed, may be null when the id is 0) has it. The layers of other codecs do not
  // depend on it.
  const ProfileSource* profiles = nullptr;
  uint64_t profile = 0;
};

// Upper bound in bytes of a part of this shape and codec, whatever the values (a layer that falls
// back to raw included).
// INVALID_ARGUMENT: a size outside the format's limits (kernels/format.h); NOT_FOUND: unknown
// codec; UNIMPLEMENTED: the codec cannot code this shape or dtype. Exact for `raw`.
absl::StatusOr<size_t> PartBytesMax(const PartShape& shape, std::string_view codec);
// With the layer codecs of `options`, whose other fields do not matter. INVALID_ARGUMENT also: a
// layer codec names a layer that the part does not have, or that another one names.
absl::StatusOr<size_t> PartBytesMax(const PartShape& shape, const EncodeOptions& options);

// OK when the model profile that `options` name has what they need for such a part, so that
// PartEncoder::Create does not fail for it. FAILED_PRECONDITION as there; other statuses as
// PartBytesMax.
absl::Status CheckProfileFor(PartId part, const PartShape& shape, const EncodeOptions& options);

// Encodes one part, one layer per call, so that a caller can look at its deadline in between. Reads
// `view` only inside EncodeLayer, and only the heads and tokens named; host memory only. Writes
// only inside `out`. The bytes but for the error record are a function of identity, shape, options
// and the values alone: not of strides, alignment or the thread's floating-point mode.
// Thread-compatible.
class PartEncoder {
 public:
  struct Source {
    const KvView* view = nullptr;  // outlives the encoder; dtype and dims must agree with the shape
    uint32_t first_head = 0;       // in the view
    uint32_t first_token = 0;      // in the view
  };
  // `out`: PartBytesMax or more, kPartAlignment-aligned. INVALID_ARGUMENT: shape and view disagree,
  // the view is not valid or not in host memory, `out` too small or not aligned;
  // NOT_FOUND: unknown codec; UNIMPLEMENTED: the codec cannot code this dtype (anything but `raw`
  // and `fp8` needs float32, float16 or bfloat16); FAILED_PRECONDITION: the codec needs a model
  // profile and `options` names none, it is not to be found (the message has its id), or it is not
  // of this model.
  static absl::StatusOr<PartEncoder> Create(const PartIdentity& identity, const PartShape& shape,
                                            const Source& source, const EncodeOptions& options,
                                            std::span<std::byte> out);
  PartEncoder(PartEncoder&&) noexcept;
  PartEncoder& operator=(PartEncoder&&) noexcept;
  ~PartEncoder();

  uint32_t layers() const;
  // Encode layer `next` (0, 1, …) of the part; not to be called once done(). Values that the codec
  // cannot represent (NaN, infinity, a range beyond the type) make the layer fall back to raw
  // (counted).
  void EncodeLayer();
  bool done() const;
  // After the last layer, once: write header, record and table; return the part's bytes.
  size_t Finish();
  uint32_t raw_fallback_layers() const;
  // What Finish wrote as the error record; valid after it.
  const ErrorRecord& error() const;

 private:
  struct Impl;
  PartEncoder();
  std::unique_ptr<Impl> impl_;
};

// What a part's prefix says. All offsets are from the part's first byte.
struct PartInfo {
  PartIdentity identity;
  PartShape shape;
  std::string codec;  // preset name or "K+V"
  Fidelity fidelity = Fidelity::kExact;
  ErrorRecord error;
  // Model profile that the codes were made with; 0: none. Whether decoding needs it, the reader's
  // CheckDecodable says.
  uint64_t codec_profile = 0;
  size_t prefix_bytes = 0;  // header, record, table: what a layer range needs besides its layers
  size_t part_bytes = 0;
  std::vector<size_t>
      layer_offset;  // layers + 1 entries; layer i is [layer_offset[i], layer_offset[i + 1])
};

// Reads parts from untrusted bytes. Thread-compatible; const calls may run in parallel.
class PartReader {
 public:
  // Parse and verify the prefix: header CRC, record CRC, table CRC, bounds. `prefix` may be the
  // whole part or only its first prefix_bytes; it is not kept. INVALID_ARGUMENT: not a part, or
  // truncated; FAILED_PRECONDITION: another format revision or an unknown critical extension (the
  // message has both versions); DATA_LOSS: a checksum does not match. `profiles`, borrowed for the
  // call, is where the model profile is looked up that decoding may need; without it the part can
  // be verified all the same.
  static absl::StatusOr<PartReader> Open(std::span<const std::byte> prefix,
                                         const ProfileSource* profiles = nullptr);

  // OK when the layers can be decoded here. FAILED_PRECONDITION: they need a model profile that
  // Open did not find, or that is not of this model; the message has its id. The block is a miss.
  absl::Status CheckDecodable() const;

  const PartInfo& info() const { return info_; }

  // Check the CRC-32C of layer `layer`, whose stored bytes are `bytes`. DATA_LOSS: no match;
  // INVALID_ARGUMENT: wrong size, no such layer.
  absl::Status VerifyLayer(uint32_t layer, std::span<const std::byte> bytes) const;

  // Decode layer `layer` (verified bytes) into `view`, layer `view_layer` of it, heads from
  // `first_head`, tokens from `first_token`. The view's dtype may differ from the part's (rounded
  // to nearest even; too large becomes infinity, or the largest value of float8 e4m3). Raw data of
  // the view's own dtype comes back bit for bit. Writes exactly those elements, and nothing on an
  // error; the view has passed ValidateView. INVALID_ARGUMENT: shape and view disagree, not host
  // memory, wrong size; FAILED_PRECONDITION: as CheckDecodable; DATA_LOSS: the layer is malformed.
  struct Target {
    const KvView* view = nullptr;
    uint32_t view_layer = 0;
    uint32_t first_head = 0;
    uint32_t first_token = 0;
    PageStores stores = PageStores::kCached;
  };
  absl::Status DecodeLayer(uint32_t layer, std::span<const std::byte> bytes,
                           const Target& target) const;

 private:
  struct Table;
  PartInfo info_;
  std::shared_ptr<const Table> table_;  // owners: copies of this reader
};

// Verify a whole part: prefix, identity equal to `expected` where given, every layer's CRC; `part`
// has exactly the part's bytes. As Open, and DATA_LOSS for another identity.
absl::StatusOr<PartInfo> VerifyPart(std::span<const std::byte> part,
                                    const PartIdentity* expected = nullptr);

}  // namespace tokura::kernels
