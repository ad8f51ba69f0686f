#include "tests/integration/kv_memory.h"

#include <algorithm>
#include <cstring>

#include <sys/mman.h>

#include "common/check.h"
#include "common/crc32c.h"

namespace tokura::integration {
namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kHeads = 2;
constexpr uint32_t kDim = 64;
constexpr size_t kPage = 4096;
constexpr std::byte kCanary{0xc5};

size_t SideBytes(uint32_t blocks) {
  return size_t{kHeads} * blocks * kBlockTokens * kDim * sizeof(uint16_t);
}

}  // namespace

NamespaceSpec TestSpace(const std::string& tenant) {
  NamespaceSpec spec;
  spec.tenant = tenant;
  spec.model = "model";
  spec.model_revision = "1";
  spec.dtype = DType::kFloat16;
  spec.block_tokens = kBlockTokens;
  LayerGroup group;
  for (uint32_t i = 0; i < kLayers; ++i) {
    group.layers.push_back(i);
  }
  group.kv_heads = kHeads;
  group.k_head_dim = kDim;
  group.v_head_dim = kDim;
  spec.groups = {group};
  return spec;
}

NamespaceSpec ShardedSpace() {
  NamespaceSpec spec = TestSpace("sharded");
  spec.head_shards = 2;
  return spec;
}

KvMemory::KvMemory(uint32_t blocks) : blocks_(blocks) {
  const size_t bytes = SideBytes(blocks) * 2 * kLayers;
  data_bytes_ = (bytes + kPage - 1) / kPage * kPage;
  mapping_bytes_ = data_bytes_ + 4 * kPage;
  void* mapping =
      mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TOKURA_CHECK(mapping != MAP_FAILED);
  mapping_ = static_cast<std::byte*>(mapping);
  data_ = mapping_ + 2 * kPage;
  std::fill(mapping_ + kPage, data_, kCanary);
  std::fill(data_ + data_bytes_, data_ + data_bytes_ + kPage, kCanary);
  TOKURA_CHECK(mprotect(mapping_, kPage, PROT_NONE) == 0);
  TOKURA_CHECK(mprotect(mapping_ + mapping_bytes_ - kPage, kPage, PROT_NONE) == 0);
}

KvMemory::~KvMemory() {
  munmap(mapping_, mapping_bytes_);
}

std::byte* KvMemory::layer(size_t index) const {
  return data_ + index * 2 * SideBytes(blocks_);
}

SequenceView KvMemory::ViewOf(uint32_t first_head, uint32_t heads) const {
  const size_t skipped = SideBytes(blocks_) / kHeads * first_head;
  std::vector<kernels::KvLayer> layers;
  for (uint32_t i = 0; i < kLayers; ++i) {
    layers.push_back({layer(i) + skipped, layer(i) + SideBytes(blocks_) + skipped});
  }
  SequenceView view;
  view.groups.push_back(kernels::ContiguousView(DType::kFloat16, heads, kDim,
                                                blocks_ * kBlockTokens, std::move(layers)));
  return view;
}

SequenceView KvMemory::View() {
  return ViewOf(0, kHeads);
}

SequenceView KvMemory::ShardView(uint32_t shard) {
  SequenceView view = ViewOf(shard, 1);
  view.first_shard = shard;
  return view;
}

std::span<const std::byte> KvMemory::KeyRow(size_t layer_index, uint32_t token) const {
  constexpr size_t kRowBytes = kDim * sizeof(uint16_t);
  return {layer(layer_index) + token * kRowBytes, kRowBytes};
}

void KvMemory::Fill(uint64_t seed) {
  auto* values = reinterpret_cast<uint16_t*>(data_);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < data_bytes_ / sizeof(uint16_t); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values[i] = static_cast<uint16_t>(0x3000 + (state >> 40) % 0x800);
  }
}

void KvMemory::Clear() {
  std::memset(data_, 0, data_bytes_);
}

uint32_t KvMemory::Checksum() const {
  return Crc32c(std::span<const std::byte>(mapping_ + kPage, data_bytes_ + 2 * kPage));
}

bool KvMemory::CanariesIntact() const {
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  return std::all_of(mapping_ + kPage, data_, is_canary) &&
         std::all_of(data_ + data_bytes_, data_ + data_bytes_ + kPage, is_canary);
}

bool KvMemory::SameData(const KvMemory& other, uint32_t first_block, uint32_t blocks) const {
  TOKURA_CHECK(blocks_ == other.blocks_ && first_block + blocks <= blocks_);
  const size_t head = size_t{blocks_} * kBlockTokens * kDim * sizeof(uint16_t);
  const size_t from = size_t{first_block} * kBlockTokens * kDim * sizeof(uint16_t);
  const size_t count = size_t{blocks} * kBlockTokens * kDim * sizeof(uint16_t);
  // [layers × 2 sides × heads] runs of [tokens, dim].
  for (size_t run = 0; run < size_t{kLayers} * 2 * kHeads; ++run) {
    if (std::memcmp(data_ + run * head + from, other.data_ + run * head + from, count) != 0) {
      return false;
    }
  }
  return true;
}

void KvMemory::Forbid() {
  TOKURA_CHECK(mprotect(mapping_, mapping_bytes_, PROT_NONE) == 0);
}

void KvMemory::Freeze() {
  TOKURA_CHECK(mprotect(mapping_ + kPage, mapping_bytes_ - 2 * kPage, PROT_READ) == 0);
}

size_t KvMemory::block_bytes() const {
  return SideBytes(1) * 2 * kLayers;
}

TokenChain MakeChain(const Namespace& space, uint64_t seed, uint32_t blocks) {
  TokenChain chain(space.fingerprint(), kBlockTokens);
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < blocks * kBlockTokens; ++i) {
    tokens.push_back(static_cast<uint32_t>(seed * 1000003 + i));
  }
  chain.Append(tokens);
  return chain;
}

}  // namespace tokura::integration
