#include "cli/soak_content.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "cli/local_codec.h"
#include "cli/mix.h"
#include "common/status_macros.h"

namespace tokura::cli {

PagesShape SoakShape(uint64_t block_bytes) {
  constexpr uint64_t kLayersMax = 32;
  PagesShape shape;
  const uint64_t units =
      std::max<uint64_t>(1, (block_bytes + shape.LayerBytes() - 1) / shape.LayerBytes());
  shape.layers = static_cast<uint32_t>(std::min(units, kLayersMax));
  shape.heads = static_cast<uint32_t>((units + shape.layers - 1) / shape.layers);
  return shape;
}

SoakContent::SoakContent(const Options& options)
    : options_(options),
      shape_(SoakShape(options.block_bytes)),
      ns_(std::make_shared<const Namespace>(PagesNamespace(shape_, options.tenant, "soak"))) {
  std::vector<uint32_t> tokens(size_t{options.blocks_per_chain} * shape_.block_tokens);
  for (uint32_t chain = 0; chain < options.chains; ++chain) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<uint32_t>(Mix(chain, i) >> 33);
    }
    chains_.emplace_back(ns_->fingerprint(), shape_.block_tokens);
    chains_.back().Append(tokens);
  }
}

SequenceView SoakContent::View(const BlockPages& pages) const {
  SequenceView view;
  view.groups.push_back(pages.view());
  return view;
}

void SoakContent::FillBlock(uint32_t chain, uint32_t block, const BlockPages& pages) const {
  // Four float16 values at a time, of magnitude 0.5…1 and either sign.
  constexpr uint64_t kKeep = 0x83ff83ff83ff83ffU;
  constexpr uint64_t kExponents = 0x3800380038003800U;
  const auto bytes = pages.Block(block);
  const uint64_t seed = Mix(chain, block);
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t values = (Mix(seed, at) & kKeep) | kExponents;
    std::memcpy(bytes.data() + at, &values, sizeof(values));
  }
}

void SoakContent::Fill(uint32_t chain, const BlockPages& pages) const {
  for (uint32_t block = 0; block < options_.blocks_per_chain; ++block) {
    FillBlock(chain, block, pages);
  }
}

absl::Status SoakContent::Expect(uint32_t chain, uint32_t block, const BlockPages& pages) const {
  FillBlock(chain, block, pages);
  if (exact(chain)) {
    return absl::OkStatus();
  }
  const BlockPart part{ns_, 0, block, chains_[chain].keys()[block]};
  kernels::EncodeOptions encode;
  encode.codec = codec(chain);
  encode.sink_tokens = options_.sink_tokens;
  encode.record = kernels::EncodeOptions::Record::kSkip;
  TOKURA_ASSIGN_OR_RETURN(const size_t bytes_max, EncodedPartBytesMax(part, encode.codec));
  const PartBuffer buffer(bytes_max);
  TOKURA_ASSIGN_OR_RETURN(const size_t bytes,
                          EncodePart(part, encode, pages.view(), buffer.bytes()));
  return DecodePart(part, buffer.bytes().first(bytes), pages.view()).status();
}

}  // namespace tokura::cli
