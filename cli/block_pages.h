#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cli/local_codec.h"
#include "kernels/kv_view.h"
#include "proto/namespace.h"

namespace tokura::cli {

// The namespace of made-up KV: one full-attention group of float16.
struct PagesShape {
  uint32_t layers = 1;
  uint32_t heads = 1;
  uint32_t head_dim = 64;
  uint32_t block_tokens = 16;
  // Of K or of V of one layer of one block.
  constexpr size_t SideBytes() const {
    return size_t{heads} * block_tokens * head_dim * sizeof(uint16_t);
  }
  constexpr size_t LayerBytes() const { return 2 * SideBytes(); }
  constexpr size_t BlockBytes() const { return layers * LayerBytes(); }
};
NamespaceSpec PagesNamespace(const PagesShape& shape, std::string tenant, std::string model);

// Memory of an engine whose page is a block, so that a block's raw bytes lie together:
// [layer][k, v][head][token][channel]. Not initialised. Movable; the view
// borrows it and stays valid. Thread-compatible.
class BlockPages {
 public:
  BlockPages(const PagesShape& shape, size_t blocks);
  size_t blocks() const { return blocks_; }
  const PagesShape& shape() const { return shape_; }
  std::span<std::byte> bytes() const { return buffer_.bytes(); }
  std::span<std::byte> Block(size_t block) const;
  std::span<std::byte> Layer(size_t block, size_t layer) const;
  // Block i of a sequence is page i.
  const kernels::KvView& view() const { return view_; }

 private:
  PagesShape shape_;
  size_t blocks_;
  PartBuffer buffer_;
  kernels::KvView view_;
};

}  // namespace tokura::cli
