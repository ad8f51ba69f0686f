#include "cli/kvcap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>

#include <isa-l/crc.h>

#include "absl/strings/str_cat.h"
#include "cli/output.h"
#include "common/check.h"
#include "common/read_file.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written in place");

constexpr std::array<char, 8> kMagic = {'K', 'V', 'C', 'A', 'P', 'T', '0', '1'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kFloat16 = 1;
constexpr uint32_t kRopeHalfSplit = 1;
constexpr size_t kAlignment = 64;
constexpr uint64_t kFileBytesMax = uint64_t{8} << 30;
// Far above any model; they keep products of dimensions below 2^64.
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kHeadDimMax = 65536;
constexpr uint32_t kPositionMax = uint32_t{1} << 30;

struct FileHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t q_heads;
  uint32_t head_dim;
  uint32_t tokens;
  uint32_t first_position;
  uint32_t queries;
  uint32_t first_query_position;
  uint32_t context_tokens;
  uint32_t dtype;
  uint32_t rope_kind;
  float softmax_scale;
  uint32_t model_layers;
  uint32_t flags;
  std::array<char, 32> model;
  uint64_t layer_table_offset;
  uint64_t token_ids_offset;
  uint64_t k_offset;
  uint64_t v_offset;
  uint64_t q_offset;
  uint64_t file_bytes;
  uint32_t crc32;
  uint32_t reserved;
};
static_assert(sizeof(FileHeader) == 160);
static_assert(sizeof(CaptureLayer) == 16);

uint32_t Crc32(std::span<const std::byte> bytes) {
  return crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

uint64_t Padded(uint64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a usable capture: ", std::string(what)));
}

absl::Status CheckIdentity(const FileHeader& header, size_t size) {
  if (header.magic != kMagic) {
    return Malformed("it does not begin with KVCAPT01");
  }
  if (header.version != kVersion || header.header_bytes != sizeof(FileHeader)) {
    return Malformed(
        absl::StrCat("version ", header.version, "; this program reads version ", kVersion));
  }
  if (header.file_bytes != size) {
    return Malformed(absl::StrCat("its header says ", header.file_bytes, " bytes, it has ", size));
  }
  if (header.dtype != kFloat16 || header.rope_kind != kRopeHalfSplit) {
    return Malformed(absl::StrCat("dtype ", header.dtype, ", RoPE kind ", header.rope_kind,
                                  "; only float16 (1) and half-split RoPE (1) are known"));
  }
  return absl::OkStatus();
}

absl::Status CheckDimensions(const FileHeader& header) {
  const auto within = [](uint32_t value, uint32_t max) { return value >= 1 && value <= max; };
  if (!within(header.layers, kLayersMax) || !within(header.kv_heads, kHeadsMax) ||
      !within(header.q_heads, kHeadsMax) || !within(header.head_dim, kHeadDimMax) ||
      !within(header.tokens, kPositionMax) || header.queries > kPositionMax ||
      header.first_position > kPositionMax || header.first_query_position > kPositionMax) {
    return Malformed("a dimension is zero or implausibly large");
  }
  if (header.q_heads % header.kv_heads != 0) {
    return Malformed(absl::StrCat(header.q_heads, " query heads are not a multiple of ",
                                  header.kv_heads, " KV heads"));
  }
  if (header.layers > header.model_layers) {
    return Malformed("it has more layers than its model");
  }
  if (!std::isfinite(header.softmax_scale) || header.softmax_scale <= 0) {
    return Malformed("the softmax scale is not a positive number");
  }
  const uint64_t end = uint64_t{header.first_position} + header.tokens;
  if (header.context_tokens > end ||
      (header.queries > 0 && uint64_t{header.first_query_position} + header.queries > end)) {
    return Malformed("context or queries reach beyond the captured positions");
  }
  return absl::OkStatus();
}

// One array of the file: `count` elements of T at `offset`.
template <typename T>
absl::Status ReadArray(std::span<const std::byte> file, uint64_t offset, uint64_t count,
                       std::vector<T>* out) {
  // Dimensions are bounded so that no product of them overflows before this comparison.
  if (offset % kAlignment != 0 || offset < sizeof(FileHeader) || offset > file.size() ||
      count > (file.size() - offset) / sizeof(T)) {
    return Malformed("an array lies outside the file or is not aligned to 64 bytes");
  }
  out->resize(count);
  if (count != 0) {
    std::memcpy(out->data(), file.data() + offset, count * sizeof(T));
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const Capture& capture) {
  uint64_t next_index = 0;
  for (const CaptureLayer& layer : capture.layers) {
    if (layer.index < next_index || layer.index >= capture.model_layers) {
      return Malformed("layer indices do not ascend within the model");
    }
    next_index = uint64_t{layer.index} + 1;
    const bool full = layer.kind == CaptureLayer::Kind::kFull && layer.window == 0;
    const bool sliding = layer.kind == CaptureLayer::Kind::kSliding && layer.window > 0;
    if ((!full && !sliding) || !std::isfinite(layer.rope_theta)) {
      return Malformed(absl::StrCat("layer ", layer.index, " has an unknown kind or a bad window"));
    }
  }
  return absl::OkStatus();
}

// The scalar fields; arrays are read afterwards.
Capture FromHeader(const FileHeader& header) {
  Capture capture;
  const auto end = std::find(header.model.begin(), header.model.end(), '\0');
  capture.model.assign(header.model.begin(), end);
  capture.model_layers = header.model_layers;
  capture.kv_heads = header.kv_heads;
  capture.q_heads = header.q_heads;
  capture.head_dim = header.head_dim;
  capture.tokens = header.tokens;
  capture.first_position = header.first_position;
  capture.queries = header.queries;
  capture.first_query_position = header.first_query_position;
  capture.context_tokens = header.context_tokens;
  capture.rope_kind = header.rope_kind;
  capture.softmax_scale = header.softmax_scale;
  capture.flags = header.flags;
  return capture;
}

// Elements of an array [layers][heads][positions][head_dim]; the maximum where 64 bits are too few,
// which no file is long enough for.
uint64_t Elements(const FileHeader& header, uint64_t heads, uint64_t positions) {
  uint64_t product = uint64_t{header.layers} * heads;
  if (__builtin_mul_overflow(product, positions, &product) ||
      __builtin_mul_overflow(product, uint64_t{header.head_dim}, &product)) {
    return std::numeric_limits<uint64_t>::max();
  }
  return product;
}

FileHeader ToHeader(const Capture& capture) {
  FileHeader header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.header_bytes = sizeof(FileHeader);
  header.layers = static_cast<uint32_t>(capture.layers.size());
  header.kv_heads = capture.kv_heads;
  header.q_heads = capture.q_heads;
  header.head_dim = capture.head_dim;
  header.tokens = capture.tokens;
  header.first_position = capture.first_position;
  header.queries = capture.queries;
  header.first_query_position = capture.first_query_position;
  header.context_tokens = capture.context_tokens;
  header.dtype = kFloat16;
  header.rope_kind = capture.rope_kind;
  header.softmax_scale = capture.softmax_scale;
  header.model_layers = capture.model_layers;
  header.flags = capture.flags;
  std::copy(capture.model.begin(), capture.model.end(), header.model.begin());
  return header;
}

template <typename T>
uint64_t AppendArray(std::string* out, const std::vector<T>& values) {
  const uint64_t offset = out->size();
  if (!values.empty()) {
    out->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  out->resize(Padded(out->size()));
  return offset;
}

// `front` and `back` along the token axis, for each of `heads` (layer, head) rows.
std::vector<uint16_t> JoinRows(std::span<const uint16_t> front, std::span<const uint16_t> back,
                               size_t heads) {
  std::vector<uint16_t> joined;
  joined.reserve(front.size() + back.size());
  const size_t front_row = front.size() / heads;
  const size_t back_row = back.size() / heads;
  for (size_t row = 0; row < heads; ++row) {
    const auto front_begin = front.begin() + static_cast<std::ptrdiff_t>(row * front_row);
    const auto back_begin = back.begin() + static_cast<std::ptrdiff_t>(row * back_row);
    joined.insert(joined.end(), front_begin, front_begin + static_cast<std::ptrdiff_t>(front_row));
    joined.insert(joined.end(), back_begin, back_begin + static_cast<std::ptrdiff_t>(back_row));
  }
  return joined;
}

}  // namespace

std::span<const uint16_t> Capture::K(size_t layer, size_t head) const {
  return std::span(k).subspan((layer * kv_heads + head) * HeadElements(), HeadElements());
}

std::span<const uint16_t> Capture::V(size_t layer, size_t head) const {
  return std::span(v).subspan((layer * kv_heads + head) * HeadElements(), HeadElements());
}

std::span<const uint16_t> Capture::Q(size_t layer, size_t query_head) const {
  const size_t elements = size_t{queries} * head_dim;
  return std::span(q).subspan((layer * q_heads + query_head) * elements, elements);
}

absl::StatusOr<Capture> ParseCapture(std::span<const std::byte> bytes) {
  FileHeader header;
  if (bytes.size() < sizeof(header)) {
    return Malformed(absl::StrCat("only ", bytes.size(), " bytes"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  TOKURA_RETURN_IF_ERROR(CheckIdentity(header, bytes.size()));
  if (header.crc32 != Crc32(bytes.subspan(sizeof(header)))) {
    return absl::DataLossError("damaged: the checksum does not match");
  }
  TOKURA_RETURN_IF_ERROR(CheckDimensions(header));
  Capture capture = FromHeader(header);
  const uint64_t kv = Elements(header, header.kv_heads, header.tokens);
  const uint64_t queries = Elements(header, header.q_heads, header.queries);
  TOKURA_RETURN_IF_ERROR(
      ReadArray(bytes, header.layer_table_offset, header.layers, &capture.layers));
  TOKURA_RETURN_IF_ERROR(
      ReadArray(bytes, header.token_ids_offset, header.tokens, &capture.token_ids));
  TOKURA_RETURN_IF_ERROR(ReadArray(bytes, header.k_offset, kv, &capture.k));
  TOKURA_RETURN_IF_ERROR(ReadArray(bytes, header.v_offset, kv, &capture.v));
  TOKURA_RETURN_IF_ERROR(ReadArray(bytes, header.q_offset, queries, &capture.q));
  TOKURA_RETURN_IF_ERROR(CheckLayers(capture));
  return capture;
}

std::string SerializeCapture(const Capture& capture) {
  const size_t rows = capture.layers.size() * capture.kv_heads;
  TOKURA_CHECK(capture.model.size() <= sizeof(FileHeader::model));
  TOKURA_CHECK(capture.token_ids.size() == capture.tokens);
  TOKURA_CHECK(capture.k.size() == rows * capture.HeadElements());
  TOKURA_CHECK(capture.v.size() == capture.k.size());
  TOKURA_CHECK(capture.q.size() == capture.layers.size() * capture.q_heads *
                                       size_t{capture.queries} * capture.head_dim);
  FileHeader header = ToHeader(capture);
  std::string out(Padded(sizeof(header)), '\0');
  header.layer_table_offset = AppendArray(&out, capture.layers);
  header.token_ids_offset = AppendArray(&out, capture.token_ids);
  header.k_offset = AppendArray(&out, capture.k);
  header.v_offset = AppendArray(&out, capture.v);
  header.q_offset = AppendArray(&out, capture.q);
  header.file_bytes = out.size();
  header.crc32 = Crc32(std::as_bytes(std::span(out)).subspan(sizeof(header)));
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

absl::StatusOr<Capture> ReadCapture(const std::string& path) {
  TOKURA_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadFile(path, kFileBytesMax));
  absl::StatusOr<Capture> capture = ParseCapture(bytes);
  if (!capture.ok()) {
    return absl::Status(capture.status().code(),
                        absl::StrCat(path, ": ", capture.status().message()));
  }
  return capture;
}

absl::Status WriteCapture(const std::string& path, const Capture& capture) {
  return ReplaceFile(path, SerializeCapture(capture));
}

absl::StatusOr<Capture> JoinCaptures(const Capture& prefix, const Capture& continuation) {
  if (prefix.first_position != 0 || continuation.first_position != prefix.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the capture begins at position ", continuation.first_position,
                     ", the prefix holds positions ", prefix.first_position, " to ",
                     uint64_t{prefix.first_position} + prefix.tokens));
  }
  if (prefix.model != continuation.model || prefix.layers != continuation.layers ||
      prefix.kv_heads != continuation.kv_heads || prefix.head_dim != continuation.head_dim) {
    return absl::InvalidArgumentError(absl::StrCat("the capture is of ", continuation.model,
                                                   ", the prefix of ", prefix.model,
                                                   ", or their layers or heads differ"));
  }
  Capture joined = continuation;
  joined.first_position = 0;
  joined.tokens = prefix.tokens + continuation.tokens;
  joined.token_ids = prefix.token_ids;
  joined.token_ids.insert(joined.token_ids.end(), continuation.token_ids.begin(),
                          continuation.token_ids.end());
  const size_t rows = joined.layers.size() * joined.kv_heads;
  joined.k = JoinRows(prefix.k, continuation.k, rows);
  joined.v = JoinRows(prefix.v, continuation.v, rows);
  return joined;
}

absl::StatusOr<Capture> ReadSequence(const std::string& path, const std::string& prefix_path) {
  TOKURA_ASSIGN_OR_RETURN(Capture capture, ReadCapture(path));
  if (prefix_path.empty()) {
    if (capture.first_position == 0) {
      return capture;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, " begins at position ", capture.first_position,
                     ": give the capture that comes before it with --prefix"));
  }
  TOKURA_ASSIGN_OR_RETURN(const Capture prefix, ReadCapture(prefix_path));
  return JoinCaptures(prefix, capture);
}

}  // namespace tokura::cli
