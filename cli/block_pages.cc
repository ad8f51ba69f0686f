#include "cli/block_pages.h"

#include <utility>

namespace tokura::cli {

NamespaceSpec PagesNamespace(const PagesShape& shape, std::string tenant, std::string model) {
  NamespaceSpec spec;
  spec.tenant = std::move(tenant);
  spec.model = std::move(model);
  spec.block_tokens = shape.block_tokens;
  LayerGroup group;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    group.layers.push_back(layer);
  }
  group.kv_heads = shape.heads;
  group.k_head_dim = shape.head_dim;
  group.v_head_dim = shape.head_dim;
  spec.groups.push_back(std::move(group));
  return spec;
}

BlockPages::BlockPages(const PagesShape& shape, size_t blocks)
    : shape_(shape), blocks_(blocks), buffer_(blocks * shape.BlockBytes()) {
  view_.heads = shape.heads;
  view_.k_head_dim = shape.head_dim;
  view_.v_head_dim = shape.head_dim;
  view_.page_tokens = shape.block_tokens;
  view_.tokens = static_cast<uint32_t>(blocks) * shape.block_tokens;
  for (uint32_t page = 0; page < blocks; ++page) {
    view_.page_table.push_back(page);
  }
  for (size_t layer = 0; layer < shape.layers; ++layer) {
    std::byte* k = buffer_.bytes().data() + layer * shape.LayerBytes();
    view_.layers.push_back({k, k + shape.SideBytes()});
  }
  const auto token_bytes = static_cast<int64_t>(shape.head_dim * sizeof(uint16_t));
  view_.k_strides.page = static_cast<int64_t>(shape.BlockBytes());
  view_.k_strides.head = shape.block_tokens * token_bytes;
  view_.k_strides.token = token_bytes;
  view_.k_strides.channel = sizeof(uint16_t);
  view_.v_strides = view_.k_strides;
}

std::span<std::byte> BlockPages::Block(size_t block) const {
  return bytes().subspan(block * shape_.BlockBytes(), shape_.BlockBytes());
}

std::span<std::byte> BlockPages::Layer(size_t block, size_t layer) const {
  return Block(block).subspan(layer * shape_.LayerBytes(), shape_.LayerBytes());
}

}  // namespace tokura::cli
