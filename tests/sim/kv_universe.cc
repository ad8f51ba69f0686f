#include "tests/sim/kv_universe.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/crc32c.h"
#include "kernels/part.h"

namespace tokura::sim {
namespace {

constexpr size_t kGuard = 32;  // elements before and behind
constexpr size_t kHeadElements = size_t{kChainTokens} * kHeadDim;
constexpr size_t kSideElements = kHeads * kHeadElements;
constexpr size_t kBufferElements = size_t{kLayers} * 2 * kSideElements;

LayerGroup Group(std::vector<uint32_t> layers) {
  LayerGroup group;
  group.layers = std::move(layers);
  group.kv_heads = kHeads;
  group.k_head_dim = kHeadDim;
  group.v_head_dim = kHeadDim;
  return group;
}

NamespaceRef MakeNamespace(const std::string& model, std::vector<LayerGroup> groups) {
  NamespaceSpec spec;
  spec.model = model;
  spec.model_revision = "1";
  spec.dtype = DType::kFloat16;
  spec.head_shards = kShards;
  spec.block_tokens = kBlockTokens;
  spec.groups = std::move(groups);
  TOKURA_CHECK(ValidateNamespace(spec).ok());
  return std::make_shared<const Namespace>(std::move(spec));
}

NamespaceRef MakeFull() {
  static_assert(kLayers == 2);
  return MakeNamespace("simulated", {Group({0, 1})});
}

NamespaceRef MakeSliding() {
  std::vector<LayerGroup> groups = {Group({0}), Group({1})};
  groups[1].kind = AttentionKind::kSliding;
  groups[1].window = kWindowBlocks * kBlockTokens;
  return MakeNamespace("sliding", std::move(groups));
}

struct CodedPart {
  kernels::PartEncoder::Source from;
  const kernels::KvView* to = nullptr;
  uint32_t block = 0;
};

// Encode a part and decode what came out.
void CodePart(const kernels::PartIdentity& identity, const kernels::PartShape& shape,
              const std::string& codec, const CodedPart& coded) {
  alignas(kernels::kPartAlignment) std::array<std::byte, 8192> part;
  kernels::EncodeOptions options;
  options.codec = codec;
  options.block_position = coded.block;
  options.record = kernels::EncodeOptions::Record::kSkip;
  auto encoder = kernels::PartEncoder::Create(identity, shape, coded.from, options, part);
  TOKURA_CHECK(encoder.ok());
  while (!encoder->done()) {
    encoder->EncodeLayer();
  }
  const size_t bytes = encoder->Finish();
  auto reader = kernels::PartReader::Open(std::span(part).first(bytes));
  TOKURA_CHECK(reader.ok());
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const size_t begin = reader->info().layer_offset[layer];
    const size_t end = reader->info().layer_offset[layer + 1];
    const absl::Status decoded =
        reader->DecodeLayer(layer, std::span(part).subspan(begin, end - begin),
                            {coded.to, layer, 0, coded.block * kBlockTokens});
    TOKURA_CHECK(decoded.ok());
  }
}

// A finite float16 of moderate size.
uint16_t Half(uint64_t random) {
  const uint64_t exponent = 12 + random % 4;
  return static_cast<uint16_t>((random & 0x8000) | (exponent << 10) | ((random >> 20) & 0x3ff));
}

}  // namespace

KvBuffer::KvBuffer() : bytes_(kBufferElements + 2 * kGuard) {}

size_t KvBuffer::At(uint32_t layer, uint32_t side, uint32_t head, uint32_t token) {
  return kGuard + (size_t{layer} * 2 + side) * kSideElements + head * kHeadElements +
         size_t{token} * kHeadDim;
}

SequenceView KvBuffer::View(uint32_t chain, uint32_t first_shard, uint32_t shards,
                            uint32_t group_mask) {
  const uint32_t groups = IsSliding(chain) ? 2 : 1;
  SequenceView view;
  for (uint32_t group = 0; group < groups; ++group) {
    std::vector<kernels::KvLayer> layers;
    for (uint32_t layer = group; layer < (groups == 1 ? kLayers : group + 1); ++layer) {
      layers.push_back({reinterpret_cast<std::byte*>(&bytes_[At(layer, 0, first_shard, 0)]),
                        reinterpret_cast<std::byte*>(&bytes_[At(layer, 1, first_shard, 0)])});
    }
    view.groups.push_back(kernels::ContiguousView(DType::kFloat16, shards * kHeads / kShards,
                                                  kHeadDim, kChainTokens, std::move(layers)));
    if ((group_mask >> group & 1) == 0) {
      view.groups.back().layers.clear();
    }
  }
  view.first_shard = first_shard;
  view.shards = shards;
  return view;
}

void KvBuffer::Store(uint32_t block, const BlockValues& values) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t side = 0; side < 2; ++side) {
      for (uint32_t head = 0; head < kHeads; ++head) {
        const HeadBytes& from = values[layer][side][head];
        std::copy(from.begin(), from.end(),
                  bytes_.begin() +
                      static_cast<std::ptrdiff_t>(At(layer, side, head, block * kBlockTokens)));
      }
    }
  }
}

BlockValues KvBuffer::LoadFrom(const std::vector<uint16_t>& bytes, uint32_t block) {
  BlockValues values;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t side = 0; side < 2; ++side) {
      for (uint32_t head = 0; head < kHeads; ++head) {
        HeadBytes& to = values[layer][side][head];
        std::memcpy(to.data(), &bytes[At(layer, side, head, block * kBlockTokens)], sizeof(to));
      }
    }
  }
  return values;
}

BlockValues KvBuffer::Load(uint32_t block) const {
  return LoadFrom(bytes_, block);
}

uint32_t KvBuffer::Crc() const {
  return Crc32c(std::as_bytes(std::span(bytes_)));
}

bool KvBuffer::GuardsEqual(const std::vector<uint16_t>& before) const {
  return std::equal(bytes_.begin(), bytes_.begin() + kGuard, before.begin()) &&
         std::equal(bytes_.end() - kGuard, bytes_.end(), before.end() - kGuard);
}

KvUniverse::KvUniverse() : full_(MakeFull()), sliding_(MakeSliding()) {
  for (uint32_t index = 0; index < kChains; ++index) {
    TokenChain chain(ns(index)->fingerprint(), kBlockTokens);
    std::vector<uint32_t> tokens;
    for (uint32_t token = 0; token < kChainTokens; ++token) {
      // Chains 2i and 2i + 1 share their first two blocks, like prompts with a common prefix.
      const bool shared = token < 2 * kBlockTokens;
      tokens.push_back(token + 1000 * (shared ? index / 2 * 2 : index));
    }
    chain.Append(tokens);
    chains_.push_back(std::move(chain));
  }
}

BlockValues KvUniverse::Original(Variant variant, uint32_t chain, uint32_t block) {
  SimRandom random((uint64_t{variant} << 32) ^ (chain << 8) ^ block);
  BlockValues values;
  for (LayerValues& layer : values) {
    for (auto& side : layer) {
      for (HeadBytes& head : side) {
        for (uint16_t& value : head) {
          value = Half(random.Draw());
        }
      }
    }
  }
  return values;
}

const BlockValues& KvUniverse::Decoded(Variant variant, uint32_t chain, uint32_t block,
                                       const std::string& codec) {
  const auto [it, fresh] = decoded_.try_emplace(Key{variant, chain, block, codec});
  if (!fresh) {
    return it->second;
  }
  if (codec == "raw") {
    it->second = Original(variant, chain, block);
    return it->second;
  }
  KvBuffer source;
  KvBuffer target;
  source.Store(block, Original(variant, chain, block));
  for (uint8_t shard = 0; shard < kShards; ++shard) {
    const SequenceView from = source.View(chain, shard, 1);
    const SequenceView to = target.View(chain, shard, 1);
    for (uint8_t group = 0; group < from.groups.size(); ++group) {
      const kernels::PartIdentity identity{ns(chain)->fingerprint(), {}, {}, {group, shard}};
      CodePart(identity, ns(chain)->Shape(group), codec,
               {{&from.groups[group], 0, block * kBlockTokens}, &to.groups[group], block});
    }
  }
  it->second = target.Load(block);
  return it->second;
}

}  // namespace tokura::sim
