#include "cli/local_codec.h"

#include <new>

#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

constexpr std::align_val_t kAlignment{kernels::kPartAlignment};

kernels::PartIdentity IdentityOf(const BlockPart& part) {
  kernels::PartIdentity identity;
  identity.fingerprint = part.ns->fingerprint();
  identity.key = part.key;
  identity.content_id.bytes.fill(1);  // never meets another writer's
  identity.part.group = static_cast<uint8_t>(part.group);
  return identity;
}

}  // namespace

PartBuffer::PartBuffer(size_t bytes)
    : data_(static_cast<std::byte*>(::operator new(bytes, kAlignment))), size_(bytes) {}

void PartBuffer::Free::operator()(std::byte* data) const {
  ::operator delete(data, kAlignment);
}

absl::StatusOr<size_t> EncodePart(const BlockPart& part, kernels::EncodeOptions options,
                                  const kernels::KvView& from, std::span<std::byte> out) {
  TOKURA_CHECK(part.ns->spec().head_shards == 1);
  options.block_position = part.block;
  kernels::PartEncoder::Source source;
  source.view = &from;
  source.first_token = part.block * part.ns->spec().block_tokens;
  TOKURA_ASSIGN_OR_RETURN(kernels::PartEncoder encoder,
                          kernels::PartEncoder::Create(IdentityOf(part), part.ns->Shape(part.group),
                                                       source, options, out));
  while (!encoder.done()) {
    encoder.EncodeLayer();
  }
  return encoder.Finish();
}

absl::StatusOr<kernels::PartInfo> DecodePart(const BlockPart& part,
                                             std::span<const std::byte> bytes,
                                             const kernels::KvView& to,
                                             const kernels::ProfileSource* maybe_profiles) {
  TOKURA_ASSIGN_OR_RETURN(const kernels::PartReader reader,
                          kernels::PartReader::Open(bytes, maybe_profiles));
  const kernels::PartInfo& info = reader.info();
  for (uint32_t layer = 0; layer < info.shape.layers; ++layer) {
    const auto stored = bytes.subspan(info.layer_offset[layer],
                                      info.layer_offset[layer + 1] - info.layer_offset[layer]);
    TOKURA_RETURN_IF_ERROR(reader.VerifyLayer(layer, stored));
    kernels::PartReader::Target target;
    target.view = &to;
    target.view_layer = layer;
    target.first_token = part.block * part.ns->spec().block_tokens;
    TOKURA_RETURN_IF_ERROR(reader.DecodeLayer(layer, stored, target));
  }
  return info;
}

absl::StatusOr<size_t> EncodedPartBytesMax(const BlockPart& part, const std::string& codec) {
  return kernels::PartBytesMax(part.ns->Shape(part.group), codec);
}

}  // namespace tokura::cli
