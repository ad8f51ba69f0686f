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
#include "kernels/guided_rounding.h"
#include "kernels/kv_access.h"
#include "kernels/layout.h"
#include "kernels/model_profile.h"
#include "kernels/part.h"
#include "kernels/prefix.h"
#include "kernels/profile_needs.h"
#include "kernels/quantize.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {
namespace {

static_assert(kFormatMajor == format::kMajor && kFormatRevision == format::kRevision);

// Bytes copied between two steps of the checksum: they are still in the first cache levels.
constexpr uint32_t kPieceBytes = 32768;

// Exemplar queries that guided rounding of V asks the profile for.
constexpr uint32_t kGuideQueries = 64;

absl::StatusOr<CodecPair> CodecFor(const PartShape& shape, std::string_view name) {
  TOKURA_ASSIGN_OR_RETURN(const CodecPreset preset, FindCodec(name));
  const CodecPair codec{preset.k, preset.v};
  TOKURA_RETURN_IF_ERROR(CheckSide(codec.k, shape.dtype));
  TOKURA_RETURN_IF_ERROR(CheckSide(codec.v, shape.dtype));
  return codec;
}

// The codecs of a part: entry 0 is its own, the last the raw one to fall back to where any of them
// can fail.
struct CodecPlan {
  std::vector<CodecPair> list;
  std::vector<uint8_t> of_layer;

  bool measured(DType dtype) const {
    return std::any_of(list.begin(), list.end(),
                       [&](const CodecPair& codec) { return !codec.exact(dtype); });
  }
};

absl::StatusOr<uint8_t> Listed(const CodecPair& codec, std::vector<CodecPair>* list) {
  const auto found = std::find(list->begin(), list->end(), codec);
  const auto index = static_cast<size_t>(found - list->begin());
  if (found == list->end()) {
    if (list->size() + 1 >= format::kCodecsMax) {
      return absl::InvalidArgumentError("part: too many different layer codecs");
    }
    list->push_back(codec);
  }
  return static_cast<uint8_t>(index);
}

absl::StatusOr<CodecPlan> PlanCodecs(const PartShape& shape, const EncodeOptions& options) {
  TOKURA_RETURN_IF_ERROR(CheckShape(shape));
  CodecPlan plan;
  TOKURA_ASSIGN_OR_RETURN(const CodecPair codec, CodecFor(shape, options.codec));
  plan.list.push_back(codec);
  plan.of_layer.assign(shape.layers, 0);
  std::vector<bool> named(shape.layers);
  for (const EncodeOptions::LayerCodec& exception : options.layer_codecs) {
    if (exception.layer >= shape.layers || named[exception.layer]) {
      return absl::InvalidArgumentError(
          absl::StrCat("part: layer codecs name layer ", exception.layer, " of ", shape.layers,
                       exception.layer < shape.layers ? " twice" : ""));
    }
    named[exception.layer] = true;
    TOKURA_ASSIGN_OR_RETURN(const CodecPair other, CodecFor(shape, exception.codec));
    TOKURA_ASSIGN_OR_RETURN(plan.of_layer[exception.layer], Listed(other, &plan.list));
  }
  if (std::any_of(plan.list.begin(), plan.list.end(),
                  [](const CodecPair& entry) { return !entry.raw(); })) {
    plan.list.push_back({});
  }
  return plan;
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

PrefixSizes PrefixSizesFor(const CodecPlan& plan, RecordKind record) {
  return PrefixSizesOf(static_cast<uint32_t>(plan.of_layer.size()),
                       static_cast<uint32_t>(plan.list.size()), record);
}

// The profile that encoding uses, null where it uses none.
absl::StatusOr<std::shared_ptr<const ModelProfile>> ProfileFor(PartId part, const PartShape& shape,
                                                               const EncodeOptions& options,
                                                               const CodecPlan& plan) {
  const ProfileUse use = EncodersUse(plan.list);
  if (use == ProfileUse::kNone || (use == ProfileUse::kOptional && options.profile == 0)) {
    return nullptr;
  }
  if (options.profile == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("part: codec ", options.codec, " needs a model profile; none is named"));
  }
  TOKURA_ASSIGN_OR_RETURN(auto profile, FindProfile(options.profiles, options.profile));
  TOKURA_RETURN_IF_ERROR(profile->CheckPart(part, shape, EncodersNeeds(shape, plan.list)));
  return profile;
}

// The profile whose exemplars are the record's queries, null where the block's own keys are.
absl::StatusOr<std::shared_ptr<const ModelProfile>> RecordProfileFor(PartId part,
                                                                     const PartShape& shape,
                                                                     const EncodeOptions& options) {
  if (options.profile == 0) {
    return nullptr;
  }
  TOKURA_ASSIGN_OR_RETURN(auto profile, FindProfile(options.profiles, options.profile));
  TOKURA_RETURN_IF_ERROR(profile->CheckPart(part, shape, {.queries = true}));
  return profile;
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
  CodecPlan plan;
  // What codecs use, and what has the record's exemplar queries. Owners: this encoder and its
  // source.
  std::shared_ptr<const ModelProfile> maybe_profile;
  std::shared_ptr<const ModelProfile> maybe_record_profile;
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
  std::vector<float> queries;
  GuideArrays guides;
  SideScratch scratch;
  RecordMeter meter;

  // One slab on its way into a part.
  struct SlabTask {
    SlabShape shape;
    SlabLayout layout;
    uint32_t head = 0;
    HeadProfile profile;
    TokenRange coded;
    bool measured = false;
    SideTask k() const {
      return {shape.codec.k, {coded.count, shape.k_dim, shape.dtype}, profile.k};
    }
    SideTask v() const {
      return {shape.codec.v, {coded.count, shape.v_dim, shape.dtype}, profile.v};
    }
  };

  uint32_t layer() const { return static_cast<uint32_t>(prefix.table.size()); }
  bool EncodeLayerAs(uint8_t codec_index);
  SlabTask TaskOf(const CodecPair& pair, uint32_t head, uint32_t exact) const;
  SideResult AppendSlab(SlabTask task, LayerCursor* cursor);
  // Keeps the coded values in `maybe_x` when that is given.
  SideResult AppendSide(const SideTask& task, const SideAccess& access, TokenRange coded,
                        std::vector<float>* maybe_x, LayerCursor* cursor);
  void AppendExact(const SideAccess& k_access, const SideAccess& v_access, uint32_t exact,
                   LayerCursor* cursor);
  void GuideByTokens(SlabTask* task);
  void MeasureSlab(const SlabTask& task, const std::byte* slab);
  AttentionSums Measure(uint32_t head, RecordInput input);
  // Of the block, in its sequence.
  uint64_t LastPosition() const {
    return (uint64_t{options.block_position} + 1) * shape.tokens - 1;
  }
};

SideResult PartEncoder::Impl::AppendSide(const SideTask& task, const SideAccess& access,
                                         TokenRange coded, std::vector<float>* maybe_x,
                                         LayerCursor* cursor) {
  if (maybe_x != nullptr) {
    maybe_x->resize(size_t{coded.count} * access.dim);
    GatherFloat(access, coded, maybe_x->data());
  }
  if (task.side.raw()) {
    AppendRaw(access, coded, cursor);
    return SideResult::kOk;
  }
  const SideResult result = maybe_x != nullptr
                                ? EncodeSide(task, maybe_x->data(), &scratch, cursor->at())
                                : EncodeSideFrom(task, access, coded, &scratch, cursor->at());
  if (result == SideResult::kOk) {
    cursor->Advance(SideBytesOf(task.side, task.shape).padded());
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

PartEncoder::Impl::SlabTask PartEncoder::Impl::TaskOf(const CodecPair& pair, uint32_t head,
                                                      uint32_t exact) const {
  SlabTask task;
  const uint32_t coded = shape.tokens - exact;
  task.shape = {pair, shape.dtype, shape.k_head_dim, shape.v_head_dim, coded, exact};
  task.layout = SlabLayoutOf(task.shape);
  task.head = head;
  task.coded = {source.first_token + exact, coded};
  task.profile = HeadProfileOf(maybe_profile.get(), prefix.identity.part, shape, {layer(), head});
  task.measured = record == RecordKind::kPresent && !pair.exact(shape.dtype);
  return task;
}

// The guide of V's rounding, from the keys that are in `k`.
void PartEncoder::Impl::GuideByTokens(SlabTask* task) {
  queries.clear();
  const ProfileSlot slot = SlotOf(prefix.identity.part, shape, {layer(), task->head});
  AppendExemplarRows(maybe_profile->ExemplarsOf(slot, kGuideQueries), LastPosition(), &queries);
  MakeTokenGuides({k.data(), task->coded.count, shape.k_head_dim, queries}, &guides);
  task->profile.v.guide = guides.view();
}

SideResult PartEncoder::Impl::AppendSlab(SlabTask task, LayerCursor* cursor) {
  format::Slab slab{};
  slab.bytes = static_cast<uint32_t>(task.layout.bytes);
  slab.coded_tokens = task.coded.count;
  slab.exact_tokens = task.shape.exact_tokens;
  slab.k_offset = static_cast<uint32_t>(task.layout.k);
  slab.v_offset = static_cast<uint32_t>(task.layout.v);
  slab.exact_offset = static_cast<uint32_t>(task.layout.exact);
  const std::byte* begin = cursor->at();
  cursor->Append(&slab, sizeof(slab));
  const SideAccess k_access = AccessK(*source.view, layer(), source.first_head + task.head);
  const SideAccess v_access = AccessV(*source.view, layer(), source.first_head + task.head);
  const bool guided = task.shape.codec.v.rounding == Rounding::kGuidedByToken;
  if (AppendSide(task.k(), k_access, task.coded, guided ? &k : nullptr, cursor) !=
      SideResult::kOk) {
    return SideResult::kNotRepresentable;
  }
  if (guided && shape.v_head_dim != 0) {
    GuideByTokens(&task);
  }
  if (AppendSide(task.v(), v_access, task.coded, nullptr, cursor) != SideResult::kOk) {
    return SideResult::kNotRepresentable;
  }
  AppendExact(k_access, v_access, task.shape.exact_tokens, cursor);
  if (task.measured) {
    MeasureSlab(task, begin);
  }
  return SideResult::kOk;
}

void PartEncoder::Impl::MeasureSlab(const SlabTask& task, const std::byte* slab) {
  const SideAccess k_access = AccessK(*source.view, layer(), source.first_head + task.head);
  const SideAccess v_access = AccessV(*source.view, layer(), source.first_head + task.head);
  RecordInput input;
  input.k = {k_access, task.coded.first, task.k(), slab + task.layout.k};
  input.v = {v_access, task.coded.first, task.v(), slab + task.layout.v};
  input.v_dim = shape.v_head_dim;
  if (shape.v_head_dim == 0) {
    // Heads without V attend to their own K.
    input.v = input.k;
    input.v_is_k = true;
    input.v_dim = shape.k_head_dim;
  }
  const AttentionSums sums = Measure(task.head, input);
  prefix.error.layers.back().error += sums.error;
  prefix.error.layers.back().size += sums.size;
}

AttentionSums PartEncoder::Impl::Measure(uint32_t head, RecordInput input) {
  if (maybe_record_profile == nullptr) {
    return meter.MeasureProxies(input, options.record_queries);
  }
  const Exemplars exemplars = maybe_record_profile->ExemplarsOf(
      SlotOf(prefix.identity.part, shape, {layer(), head}), options.record_queries);
  if (shape.v_head_dim == 0 && exemplars.rope.first != 0) {
    input.v_dim = exemplars.rope.first;
  }
  prefix.error.queries = exemplars.count;
  return meter.MeasureExemplars(input, exemplars, LastPosition());
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
    if (AppendSlab(TaskOf(pair, head, exact), &cursor) != SideResult::kOk) {
      return false;
    }
  }
  cursor.Pad(format::kSectionAlignment);
  prefix.table.push_back({payload_bytes, static_cast<uint32_t>(cursor.bytes()), cursor.Crc()});
  payload_bytes += cursor.bytes();
  return true;
}

absl::StatusOr<size_t> PartBytesMax(const PartShape& shape, const EncodeOptions& options) {
  TOKURA_ASSIGN_OR_RETURN(const CodecPlan plan, PlanCodecs(shape, options));
  const RecordKind record = plan.measured(shape.dtype) ? RecordKind::kPresent : RecordKind::kAbsent;
  uint64_t bytes = PrefixSizesFor(plan, record).total();
  for (const uint8_t index : plan.of_layer) {
    TOKURA_ASSIGN_OR_RETURN(const uint64_t layer_bytes, LayerBytesMax(shape, plan.list[index]));
    bytes += layer_bytes;
  }
  return bytes;
}

absl::StatusOr<size_t> PartBytesMax(const PartShape& shape, std::string_view codec) {
  EncodeOptions options;
  options.codec = codec;
  return PartBytesMax(shape, options);
}

absl::Status CheckProfileFor(PartId part, const PartShape& shape, const EncodeOptions& options) {
  TOKURA_ASSIGN_OR_RETURN(const CodecPlan plan, PlanCodecs(shape, options));
  TOKURA_RETURN_IF_ERROR(ProfileFor(part, shape, options, plan).status());
  const bool measured =
      plan.measured(shape.dtype) && options.record == EncodeOptions::Record::kMeasure;
  return measured ? RecordProfileFor(part, shape, options).status() : absl::OkStatus();
}

absl::StatusOr<PartEncoder> PartEncoder::Create(const PartIdentity& identity,
                                                const PartShape& shape, const Source& source,
                                                const EncodeOptions& options,
                                                std::span<std::byte> out) {
  TOKURA_ASSIGN_OR_RETURN(const size_t bytes_max, PartBytesMax(shape, options));
  TOKURA_RETURN_IF_ERROR(CheckSource(shape, source));
  if (out.size() < bytes_max || reinterpret_cast<uintptr_t>(out.data()) % kPartAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("part: the output needs ", bytes_max, " aligned bytes, has ", out.size()));
  }
  PartEncoder encoder;
  encoder.impl_ = std::make_unique<Impl>();
  Impl& impl = *encoder.impl_;
  TOKURA_ASSIGN_OR_RETURN(impl.plan, PlanCodecs(shape, options));
  TOKURA_ASSIGN_OR_RETURN(impl.maybe_profile, ProfileFor(identity.part, shape, options, impl.plan));
  impl.shape = shape;
  impl.source = source;
  impl.options = options;
  if (options.record_queries == 0) {
    impl.options.record_queries = DefaultRecordQueries();
  }
  impl.sinks = SinksInBlock(options, shape.tokens);
  impl.out = out;
  impl.prefix.identity = identity;
  impl.prefix.shape = shape;
  impl.prefix.codecs = impl.plan.list;
  impl.prefix.codec_profile = impl.maybe_profile == nullptr ? 0 : options.profile;
  if (impl.plan.measured(shape.dtype) && options.record == EncodeOptions::Record::kMeasure) {
    TOKURA_ASSIGN_OR_RETURN(impl.maybe_record_profile,
                            RecordProfileFor(identity.part, shape, options));
    impl.record = RecordKind::kPresent;
    impl.prefix.error.queries = impl.options.record_queries;
    impl.prefix.error.profile = impl.maybe_record_profile == nullptr ? 0 : options.profile;
  }
  impl.prefix_bytes = PrefixSizesFor(impl.plan, impl.record).total();
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
  if (!impl_->EncodeLayerAs(impl_->plan.of_layer[impl_->layer()])) {
    ++impl_->fallbacks;
    TOKURA_CHECK(impl_->EncodeLayerAs(static_cast<uint8_t>(impl_->plan.list.size() - 1)));
  }
}

size_t PartEncoder::Finish() {
  TOKURA_CHECK(done() && !impl_->finished);
  impl_->finished = true;
  Prefix& prefix = impl_->prefix;
  const bool exact =
      std::all_of(prefix.layer_codec.begin(), prefix.layer_codec.end(),
                  [&](uint8_t index) { return prefix.codecs[index].exact(prefix.shape.dtype); });
  prefix.fidelity = exact ? Fidelity::kExact : Fidelity::kQuantized;
  prefix.error.measured = exact || impl_->record == RecordKind::kPresent;
  WritePrefix(prefix, impl_->record, impl_->out.data());
  return impl_->prefix_bytes + impl_->payload_bytes;
}

}  // namespace tokura::kernels
