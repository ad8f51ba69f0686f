#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kernels/codec.h"
#include "kernels/error_record.h"
#include "kernels/format.h"
#include "kernels/fp_environment.h"
#include "kernels/kv_access.h"
#include "kernels/layout.h"
#include "kernels/part.h"
#include "kernels/prefix.h"
#include "kernels/quantize.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {
namespace {

static_assert(kFormatMajor == format::kMajor && kFormatRevision == format::kRevision);

// Bytes copied between two steps of the checksum: they are still in the first cache levels.
constexpr uint32_t kPieceBytes = 32768;

// Codecs a part of this codec may use for a layer; the last is the fallback.
std::vector<CodecPair> CodecList(const CodecPair& codec) {
  return codec.raw() ? std::vector<CodecPair>{codec} : std::vector<CodecPair>{codec, CodecPair{}};
}

absl::StatusOr<CodecPair> CheckCodec(const PartShape& shape, std::string_view name) {
  TOKURA_RETURN_IF_ERROR(CheckShape(shape));
  TOKURA_ASSIGN_OR_RETURN(const CodecPreset preset, FindCodec(name));
  const CodecPair codec{preset.k, preset.v};
  TOKURA_RETURN_IF_ERROR(CheckSide(codec.k, shape.dtype));
  TOKURA_RETURN_IF_ERROR(CheckSide(codec.v, shape.dtype));
  if (!codec.raw() && shape.v_head_dim == 0) {
    return absl::UnimplementedError("part: only raw can code heads without V");
  }
  return codec;
}

absl::StatusOr<uint64_t> LayerBytesMax(const PartShape& shape, const CodecPair& codec) {
  const SlabShape slab{codec, shape.dtype, shape.k_head_dim, shape.v_head_dim, shape.tokens, 0};
  const uint64_t bytes = LayerBytes(shape.heads, SlabBytesMax(slab));
  if (bytes > format::kLayerBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("part: a layer of ", bytes, " bytes is above the format's 4 GiB"));
  }
  return bytes;
}

PrefixSizes PrefixSizesFor(const PartShape& shape, const CodecPair& codec, RecordKind record) {
  return PrefixSizesOf(shape.layers, static_cast<uint32_t>(CodecList(codec).size()), record);
}

absl::Status CheckSource(const PartShape& shape, const PartEncoder::Source& source) {
  const auto bad = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("part: ", what));
  };
  if (source.view == nullptr) {
    return bad("no view");
  }
  const KvView& view = *source.view;
  TOKURA_RETURN_IF_ERROR(ValidateView(view));
  if (view.space != MemorySpace::kHost) {
    return bad("the view is not in host memory");
  }
  if (view.dtype != shape.dtype || view.k_head_dim != shape.k_head_dim ||
      view.v_head_dim != shape.v_head_dim || view.layers.size() != shape.layers) {
    return bad("shape and view disagree in dtype, head size or layers");
  }
  if (uint64_t{source.first_head} + shape.heads > view.heads ||
      uint64_t{source.first_token} + shape.tokens > view.tokens) {
    return bad("the view has not all heads and tokens of the part");
  }
  return absl::OkStatus();
}

// How many leading tokens of the block are among the first `sink_tokens` of the sequence.
uint32_t SinksInBlock(const EncodeOptions& options, uint32_t block_tokens) {
  const uint64_t before = uint64_t{options.block_position} * block_tokens;
  return before >= options.sink_tokens ? 0
                                       : static_cast<uint32_t>(std::min<uint64_t>(
                                             options.sink_tokens - before, block_tokens));
}

// Follows the bytes of a layer as they are written and keeps the checksum of those behind it.
class LayerCursor {
 public:
  explicit LayerCursor(std::byte* begin) : begin_(begin), at_(begin), checked_(begin) {}
  std::byte* at() const { return at_; }
  uint64_t bytes() const { return static_cast<uint64_t>(at_ - begin_); }
  void Advance(uint64_t bytes) {
    at_ += bytes;
    if (at_ - checked_ >= static_cast<ptrdiff_t>(kPieceBytes)) {
      Check();
    }
  }
  void Append(const void* data, size_t bytes) {
    std::memcpy(at_, data, bytes);
    Advance(bytes);
  }
  void Pad(uint64_t alignment) {
    const uint64_t zeros = AlignUp(bytes(), alignment) - bytes();
    std::memset(at_, 0, zeros);
    Advance(zeros);
  }
  uint32_t Crc() {
    Check();
    return crc_;
  }

 private:
  void Check() {
    crc_ = Crc32c({checked_, static_cast<size_t>(at_ - checked_)}, crc_);
    checked_ = at_;
  }
  std::byte* begin_;
  std::byte* at_;
  std::byte* checked_;
  uint32_t crc_ = 0;
};

void AppendRaw(const SideAccess& access, TokenRange range, LayerCursor* cursor) {
  const uint32_t row_bytes = access.dim * static_cast<uint32_t>(DTypeBytes(access.dtype));
  const uint32_t step = std::max(kPieceBytes / std::max(row_bytes, 1u), 1u);
  for (uint32_t done = 0; done < range.count; done += step) {
    const uint32_t count = std::min(step, range.count - done);
    GatherRaw(access, {range.first + done, count}, cursor->at());
    cursor->Advance(uint64_t{count} * row_bytes);
  }
  cursor->Pad(format::kSlabAlignment);
}

}  // namespace

struct PartEncoder::Impl {
  PartShape shape;
  Source source;
  EncodeOptions options;
  CodecPair codec;
  RecordKind record = RecordKind::kAbsent;
  uint32_t sinks = 0;
  std::span<std::byte> out;
  Prefix prefix;
  uint64_t prefix_bytes = 0;
  uint64_t payload_bytes = 0;
  uint32_t fallbacks = 0;
  bool finished = false;

  // Scratch for one head, reused.
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> k_decoded;
  std::vector<float> v_decoded;
  ProxyMeter meter;

  uint32_t layer() const { return static_cast<uint32_t>(prefix.table.size()); }
  bool EncodeLayerAs(uint8_t codec_index);
  SideResult AppendSlab(const CodecPair& pair, uint32_t head, uint32_t exact, LayerCursor* cursor);
  SideResult AppendSide(const CodecSide& side, const SideAccess& access, TokenRange coded,
                        std::vector<float>* x, LayerCursor* cursor);
  void AppendExact(const SideAccess& k_access, const SideAccess& v_access, uint32_t exact,
                   LayerCursor* cursor);
  void MeasureSlab(const CodecPair& pair, uint32_t coded, const std::byte* k_at,
                   const std::byte* v_at);
};

SideResult PartEncoder::Impl::AppendSide(const CodecSide& side, const SideAccess& access,
                                         TokenRange coded, std::vector<float>* x,
                                         LayerCursor* cursor) {
  const bool measuring = record == RecordKind::kPresent && prefix.layer_codec.back() == 0;
  if (!side.raw() || measuring) {
    x->resize(size_t{coded.count} * access.dim);
    GatherFloat(access, coded, x->data());
  }
  if (side.raw()) {
    AppendRaw(access, coded, cursor);
    return SideResult::kOk;
  }
  const SideShape side_shape{coded.count, access.dim, access.dtype};
  const SideResult result = EncodeSide(side, side_shape, x->data(), cursor->at());
  if (result == SideResult::kOk) {
    cursor->Advance(SideBytesOf(side, side_shape).padded());
  }
  return result;
}

void PartEncoder::Impl::AppendExact(const SideAccess& k_access, const SideAccess& v_access,
                                    uint32_t exact, LayerCursor* cursor) {
  for (uint32_t token = 0; token < exact; ++token) {
    cursor->Append(&token, sizeof(token));
  }
  cursor->Pad(format::kSlabAlignment);
  AppendRaw(k_access, {source.first_token, exact}, cursor);
  AppendRaw(v_access, {source.first_token, exact}, cursor);
}

SideResult PartEncoder::Impl::AppendSlab(const CodecPair& pair, uint32_t head, uint32_t exact,
                                         LayerCursor* cursor) {
  const uint32_t coded = shape.tokens - exact;
  const SlabLayout layout =
      SlabLayoutOf({pair, shape.dtype, shape.k_head_dim, shape.v_head_dim, coded, exact});
  format::Slab slab{};
  slab.bytes = static_cast<uint32_t>(layout.bytes);
  slab.coded_tokens = coded;
  slab.exact_tokens = exact;
  slab.k_offset = static_cast<uint32_t>(layout.k);
  slab.v_offset = static_cast<uint32_t>(layout.v);
  slab.exact_offset = static_cast<uint32_t>(layout.exact);
  const std::byte* begin = cursor->at();
  cursor->Append(&slab, sizeof(slab));
  const SideAccess k_access = AccessK(*source.view, layer(), source.first_head + head);
  const SideAccess v_access = AccessV(*source.view, layer(), source.first_head + head);
  const TokenRange range{source.first_token + exact, coded};
  if (AppendSide(pair.k, k_access, range, &k, cursor) != SideResult::kOk ||
      AppendSide(pair.v, v_access, range, &v, cursor) != SideResult::kOk) {
    return SideResult::kNotRepresentable;
  }
  AppendExact(k_access, v_access, exact, cursor);
  if (record == RecordKind::kPresent && prefix.layer_codec.back() == 0) {
    MeasureSlab(pair, coded, begin + layout.k, begin + layout.v);
  }
  return SideResult::kOk;
}

void PartEncoder::Impl::MeasureSlab(const CodecPair& pair, uint32_t coded, const std::byte* k_at,
                                    const std::byte* v_at) {
  const float* k_after = k.data();
  const float* v_after = v.data();
  if (!pair.k.raw()) {
    k_decoded.resize(k.size());
    DecodeSide(pair.k, {coded, shape.k_head_dim, shape.dtype}, k_at, k_decoded.data());
    k_after = k_decoded.data();
  }
  if (!pair.v.raw()) {
    v_decoded.resize(v.size());
    DecodeSide(pair.v, {coded, shape.v_head_dim, shape.dtype}, v_at, v_decoded.data());
    v_after = v_decoded.data();
  }
  const AttentionSums sums = meter.Measure(
      {coded, shape.k_head_dim, shape.v_head_dim, k.data(), v.data(), k_after, v_after},
      options.record_queries);
  prefix.error.layers.back().error += sums.error;
  prefix.error.layers.back().size += sums.size;
}

bool PartEncoder::Impl::EncodeLayerAs(uint8_t codec_index) {
  const CodecPair& pair = prefix.codecs[codec_index];
  const uint32_t exact = pair.raw() ? 0 : sinks;
  const uint64_t slab_bytes = SlabLayoutOf({pair, shape.dtype, shape.k_head_dim, shape.v_head_dim,
                                            shape.tokens - exact, exact})
                                  .bytes;
  prefix.layer_codec.back() = codec_index;
  prefix.error.layers.back() = {};
  LayerCursor cursor(out.data() + prefix_bytes + payload_bytes);
  const format::Layer layer_header{shape.heads, 0};
  cursor.Append(&layer_header, sizeof(layer_header));
  for (uint32_t head = 0; head < shape.heads; ++head) {
    const auto offset =
        static_cast<uint32_t>(LayerHeaderBytes(shape.heads) + uint64_t{head} * slab_bytes);
    cursor.Append(&offset, sizeof(offset));
  }
  cursor.Pad(format::kSlabAlignment);
  for (uint32_t head = 0; head < shape.heads; ++head) {
    if (AppendSlab(pair, head, exact, &cursor) != SideResult::kOk) {
      return false;
    }
  }
  cursor.Pad(format::kSectionAlignment);
  prefix.table.push_back({payload_bytes, static_cast<uint32_t>(cursor.bytes()), cursor.Crc()});
  payload_bytes += cursor.bytes();
  return true;
}

absl::StatusOr<size_t> PartBytesMax(const PartShape& shape, std::string_view codec_name) {
  TOKURA_ASSIGN_OR_RETURN(const CodecPair codec, CheckCodec(shape, codec_name));
  TOKURA_ASSIGN_OR_RETURN(const uint64_t layer_bytes, LayerBytesMax(shape, codec));
  const RecordKind record = codec.raw() ? RecordKind::kAbsent : RecordKind::kPresent;
  return PrefixSizesFor(shape, codec, record).total() + layer_bytes * shape.layers;
}

absl::StatusOr<PartEncoder> PartEncoder::Create(const PartIdentity& identity,
                                                const PartShape& shape, const Source& source,
                                                const EncodeOptions& options,
                                                std::span<std::byte> out) {
  TOKURA_ASSIGN_OR_RETURN(const CodecPair codec, CheckCodec(shape, options.codec));
  TOKURA_ASSIGN_OR_RETURN(const size_t bytes_max, PartBytesMax(shape, options.codec));
  TOKURA_RETURN_IF_ERROR(CheckSource(shape, source));
  if (out.size() < bytes_max || reinterpret_cast<uintptr_t>(out.data()) % kPartAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("part: the output needs ", bytes_max, " aligned bytes, has ", out.size()));
  }
  if (options.record_queries == 0) {
    return absl::InvalidArgumentError("part: record_queries is 0");
  }
  PartEncoder encoder;
  encoder.impl_ = std::make_unique<Impl>();
  Impl& impl = *encoder.impl_;
  impl.shape = shape;
  impl.source = source;
  impl.options = options;
  impl.codec = codec;
  impl.sinks = SinksInBlock(options, shape.tokens);
  impl.out = out;
  impl.prefix.identity = identity;
  impl.prefix.shape = shape;
  impl.prefix.codecs = CodecList(codec);
  if (!codec.raw() && options.record == EncodeOptions::Record::kMeasure) {
    impl.record = RecordKind::kPresent;
    impl.prefix.error.queries = options.record_queries;
  }
  impl.prefix_bytes = PrefixSizesFor(shape, codec, impl.record).total();
  return encoder;
}

PartEncoder::PartEncoder() = default;
PartEncoder::PartEncoder(PartEncoder&&) noexcept = default;
PartEncoder& PartEncoder::operator=(PartEncoder&&) noexcept = default;
PartEncoder::~PartEncoder() = default;

uint32_t PartEncoder::layers() const {
  return impl_->shape.layers;
}
bool PartEncoder::done() const {
  return impl_->layer() == impl_->shape.layers;
}
uint32_t PartEncoder::raw_fallback_layers() const {
  return impl_->fallbacks;
}
const ErrorRecord& PartEncoder::error() const {
  return impl_->prefix.error;
}

void PartEncoder::EncodeLayer() {
  TOKURA_CHECK(!done());
  const ScopedFloatEnvironment environment;
  impl_->prefix.layer_codec.push_back(0);
  impl_->prefix.error.layers.emplace_back();
  if (!impl_->EncodeLayerAs(0)) {
    ++impl_->fallbacks;
    TOKURA_CHECK(impl_->EncodeLayerAs(1));
  }
}

size_t PartEncoder::Finish() {
  TOKURA_CHECK(done() && !impl_->finished);
  impl_->finished = true;
  Prefix& prefix = impl_->prefix;
  const bool exact = impl_->codec.raw() || impl_->fallbacks == impl_->shape.layers;
  prefix.fidelity = exact ? Fidelity::kExact : Fidelity::kQuantized;
  prefix.error.measured = exact || impl_->record == RecordKind::kPresent;
  WritePrefix(prefix, impl_->record, impl_->out.data());
  return impl_->prefix_bytes + impl_->payload_bytes;
}

}  // namespace tokura::kernels
