#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kernels/codec.h"
#include "kernels/float_convert.h"
#include "kernels/format.h"
#include "kernels/fp_environment.h"
#include "kernels/kv_access.h"
#include "kernels/layout.h"
#include "kernels/model_profile.h"
#include "kernels/part.h"
#include "kernels/prefix.h"
#include "kernels/profile_needs.h"
#include "kernels/side_codec.h"
#include "kernels/stream_copy.h"

namespace tokura::kernels {

struct PartReader::Table {
  std::vector<CodecPair> codecs;
  std::vector<uint8_t> layer_codec;
  std::vector<uint32_t> layer_crc;
  std::shared_ptr<const ModelProfile> maybe_profile;  // owners: this reader and its source
  absl::Status decodable;
};

namespace {

using Bytes = std::span<const std::byte>;

// One slab whose every offset and count has been checked.
struct SlabView {
  const std::byte* begin = nullptr;
  SlabShape shape;
  SlabLayout layout;
  // Maximal runs of coded or of exact tokens, in the order of the block.
  struct Run {
    uint32_t token = 0;  // in the block
    uint32_t count = 0;
    uint32_t index = 0;  // of the first in its own list
    bool exact = false;
  };
  std::vector<Run> runs;
};

absl::Status Malformed(const std::string& what) {
  return absl::DataLossError(absl::StrCat("part: malformed layer: ", what));
}

// Fills slab->runs from the indices of the exact tokens, which must ascend within the block.
absl::Status MakeRuns(uint32_t tokens, SlabView* slab) {
  uint32_t next = 0;  // first token that is in no run yet
  uint32_t coded = 0;
  const auto add_coded = [&](uint32_t end) {
    if (end > next) {
      slab->runs.push_back({next, end - next, coded, false});
      coded += end - next;
    }
  };
  for (uint32_t i = 0; i < slab->shape.exact_tokens; ++i) {
    uint32_t token;
    std::memcpy(&token, slab->begin + slab->layout.exact + i * sizeof(token), sizeof(token));
    if (token < next || token >= tokens) {
      return Malformed("indices of exact tokens");
    }
    add_coded(token);
    if (token == next && !slab->runs.empty() && slab->runs.back().exact) {
      ++slab->runs.back().count;
    } else {
      slab->runs.push_back({token, 1, i, true});
    }
    next = token + 1;
  }
  add_coded(tokens);
  return absl::OkStatus();
}

absl::Status ParseSlab(const PartShape& shape, const CodecPair& codec, Bytes bytes,
                       SlabView* slab) {
  format::Slab header;
  if (bytes.size() < sizeof(header)) {
    return Malformed("slab outside of the layer");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (uint64_t{header.coded_tokens} + header.exact_tokens != shape.tokens) {
    return Malformed("token counts");
  }
  if (header.log_weight != 0.0f) {
    return Malformed("weighted tokens outside of a summary");
  }
  slab->begin = bytes.data();
  slab->shape = {codec,
                 shape.dtype,
                 shape.k_head_dim,
                 shape.v_head_dim,
                 header.coded_tokens,
                 header.exact_tokens};
  slab->layout = SlabLayoutOf(slab->shape);
  if (header.bytes != slab->layout.bytes || header.k_offset != slab->layout.k ||
      header.v_offset != slab->layout.v || header.exact_offset != slab->layout.exact ||
      bytes.size() < slab->layout.bytes) {
    return Malformed("slab offsets");
  }
  return MakeRuns(shape.tokens, slab);
}

absl::StatusOr<std::vector<SlabView>> ParseLayer(const PartShape& shape, const CodecPair& codec,
                                                 Bytes bytes) {
  format::Layer header;
  uint64_t end = LayerHeaderBytes(shape.heads);
  if (bytes.size() < end) {
    return Malformed("no room for its header");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.slabs != shape.heads) {
    return Malformed("number of slabs");
  }
  std::vector<SlabView> slabs(shape.heads);
  for (uint32_t head = 0; head < shape.heads; ++head) {
    uint32_t offset;
    std::memcpy(&offset, bytes.data() + sizeof(header) + head * sizeof(offset), sizeof(offset));
    if (offset % format::kSlabAlignment != 0 || offset < end || offset > bytes.size()) {
      return Malformed("slab offset");
    }
    TOKURA_RETURN_IF_ERROR(ParseSlab(shape, codec, bytes.subspan(offset), &slabs[head]));
    end = offset + slabs[head].layout.bytes;
  }
  return slabs;
}

// Writes rows of raw data of `dtype` to the view, bit for bit when that is the view's dtype.
void StoreRaw(const SideAccess& access, DType dtype, TokenRange range, const std::byte* in) {
  if (dtype == access.dtype) {
    ScatterRaw(access, range, in);
    return;
  }
  constexpr uint32_t kTileElements = 2048;
  std::vector<float> tile(std::max(kTileElements, access.dim));
  const uint32_t step = std::max(kTileElements / std::max(access.dim, 1u), 1u);
  for (uint32_t done = 0; done < range.count; done += step) {
    const uint32_t count = std::min(step, range.count - done);
    const size_t elements = size_t{count} * access.dim;
    ToFloat(dtype, in + size_t{done} * access.dim * DTypeBytes(dtype), elements, tile.data());
    ScatterFloat(access, {range.first + done, count}, tile.data());
  }
}

struct SideSource {
  const CodecSide* side;
  const SideProfile* profile;
  const std::byte* coded;
  const std::byte* exact;
};

void StoreSide(const SlabView& slab, const SideSource& source, uint32_t first_token,
               const SideAccess& access, SideScratch* scratch) {
  const DType dtype = slab.shape.dtype;
  const size_t row_bytes = size_t{access.dim} * DTypeBytes(dtype);
  const SideTask task{*source.side, {slab.shape.coded_tokens, access.dim, dtype}, *source.profile};
  for (const SlabView::Run& run : slab.runs) {
    const uint32_t token = first_token + run.token;
    if (run.exact) {
      StoreRaw(access, dtype, {token, run.count}, source.exact + run.index * row_bytes);
    } else if (source.side->raw()) {
      StoreRaw(access, dtype, {token, run.count}, source.coded + run.index * row_bytes);
    } else if (access.dim != 0) {
      DecodeSideTo(task, source.coded, {run.index, run.count}, scratch, access, token);
    }
  }
}

SideAccess TargetAccess(SideAccess (*side)(const KvView&, size_t, uint32_t),
                        const PartReader::Target& target, uint32_t view_head) {
  SideAccess access = side(*target.view, target.view_layer, view_head);
  access.stores = target.stores;
  return access;
}

absl::Status CheckTarget(const PartShape& shape, const PartReader::Target& target) {
  const auto bad = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("part: ", what));
  };
  if (target.view == nullptr) {
    return bad("no view");
  }
  const KvView& view = *target.view;
  if (view.space != MemorySpace::kHost) {
    return bad("the view is not in host memory");
  }
  if (view.k_head_dim != shape.k_head_dim || view.v_head_dim != shape.v_head_dim) {
    return bad("part and view disagree in head size");
  }
  if (view.dtype != shape.dtype && !(ConvertsToFloat(view.dtype) && ConvertsToFloat(shape.dtype))) {
    return bad(
        absl::StrCat("no conversion from ", DTypeName(shape.dtype), " to ", DTypeName(view.dtype)));
  }
  if (target.view_layer >= view.layers.size() ||
      uint64_t{target.first_head} + shape.heads > view.heads ||
      uint64_t{target.first_token} + shape.tokens > view.tokens) {
    return bad("the view has not all heads and tokens of the part");
  }
  return absl::OkStatus();
}

}  // namespace

std::string FormatVersionString() {
  return absl::StrCat(kFormatMajor, ".", kFormatRevision);
}

absl::StatusOr<PartReader> PartReader::Open(std::span<const std::byte> prefix,
                                            const ProfileSource* profiles) {
  TOKURA_ASSIGN_OR_RETURN(ParsedPrefix parsed, ParsePrefix(prefix));
  Prefix& values = parsed.prefix;
  auto table = std::make_shared<Table>();
  PartReader reader;
  PartInfo& info = reader.info_;
  TOKURA_ASSIGN_OR_RETURN(info.codec, CodecNameOf(values.codecs[0].k, values.codecs[0].v));
  info.identity = values.identity;
  info.shape = values.shape;
  info.fidelity = values.fidelity;
  info.error = std::move(values.error);
  info.codec_profile = values.codec_profile;
  info.prefix_bytes = parsed.sizes.total();
  size_t end = info.prefix_bytes;
  for (const format::TableLayer& layer : values.table) {
    info.layer_offset.push_back(end);
    table->layer_crc.push_back(layer.crc32c);
    end += layer.bytes;
  }
  info.layer_offset.push_back(end);
  info.part_bytes = end;
  if (values.codec_profile != 0 && NeedsProfileToDecode(values)) {
    auto profile = FindProfile(profiles, values.codec_profile);
    table->decodable = profile.status();
    if (profile.ok()) {
      table->maybe_profile = *std::move(profile);
      table->decodable = table->maybe_profile->CheckPart(info.identity.part, info.shape,
                                                         DecodersNeeds(info.shape, values.codecs));
    }
  }
  table->codecs = std::move(values.codecs);
  table->layer_codec = std::move(values.layer_codec);
  reader.table_ = std::move(table);
  return reader;
}

absl::Status PartReader::VerifyLayer(uint32_t layer, std::span<const std::byte> bytes) const {
  if (layer >= info_.shape.layers ||
      bytes.size() != info_.layer_offset[layer + 1] - info_.layer_offset[layer]) {
    return absl::InvalidArgumentError(
        absl::StrCat("part: ", bytes.size(), " bytes are not layer ", layer));
  }
  if (Crc32c(bytes) != table_->layer_crc[layer]) {
    return absl::DataLossError(absl::StrCat("part: checksum of layer ", layer, " does not match"));
  }
  return absl::OkStatus();
}

absl::Status PartReader::CheckDecodable() const {
  return table_->decodable;
}

absl::Status PartReader::DecodeLayer(uint32_t layer, std::span<const std::byte> bytes,
                                     const Target& target) const {
  TOKURA_RETURN_IF_ERROR(CheckTarget(info_.shape, target));
  TOKURA_RETURN_IF_ERROR(table_->decodable);
  if (layer >= info_.shape.layers ||
      bytes.size() != info_.layer_offset[layer + 1] - info_.layer_offset[layer]) {
    return absl::InvalidArgumentError(
        absl::StrCat("part: ", bytes.size(), " bytes are not layer ", layer));
  }
  const CodecPair& codec = table_->codecs[table_->layer_codec[layer]];
  TOKURA_ASSIGN_OR_RETURN(const std::vector<SlabView> slabs, ParseLayer(info_.shape, codec, bytes));
  const ScopedFloatEnvironment environment;
  SideScratch scratch;
  for (uint32_t head = 0; head < info_.shape.heads; ++head) {
    const SlabView& slab = slabs[head];
    const uint32_t view_head = target.first_head + head;
    const HeadProfile profile =
        HeadProfileOf(table_->maybe_profile.get(), info_.identity.part, info_.shape, {layer, head});
    StoreSide(slab,
              {&codec.k, &profile.k, slab.begin + slab.layout.k, slab.begin + slab.layout.exact_k},
              target.first_token, TargetAccess(AccessK, target, view_head), &scratch);
    StoreSide(slab,
              {&codec.v, &profile.v, slab.begin + slab.layout.v, slab.begin + slab.layout.exact_v},
              target.first_token, TargetAccess(AccessV, target, view_head), &scratch);
  }
  if (target.stores == PageStores::kStreaming) {
    StreamFence();
  }
  return absl::OkStatus();
}

absl::StatusOr<PartInfo> VerifyPart(std::span<const std::byte> part, const PartIdentity* expected) {
  TOKURA_ASSIGN_OR_RETURN(const PartReader reader, PartReader::Open(part));
  const PartInfo& info = reader.info();
  if (part.size() != info.part_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("part: has ", part.size(), " bytes, its table says ", info.part_bytes));
  }
  if (expected != nullptr && info.identity != *expected) {
    return absl::DataLossError("part: of another identity than expected");
  }
  for (uint32_t layer = 0; layer < info.shape.layers; ++layer) {
    const size_t offset = info.layer_offset[layer];
    TOKURA_RETURN_IF_ERROR(
        reader.VerifyLayer(layer, part.subspan(offset, info.layer_offset[layer + 1] - offset)));
  }
  return info;
}

}  // namespace tokura::kernels
