#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/dtype.h"

namespace tokura::kernels {

enum class MemorySpace : uint8_t { kHost = 0, kCuda = 1 };

// How a view's pages are written: through the processor's caches, for little that is read at once;
// or past them, for what would only push other things out and is read much later.
enum class PageStores : uint8_t { kCached = 0, kStreaming = 1 };

// Byte strides of K or of V inside an engine's pages. May be negative never; channel_stride need
// not be the element size: vLLM's CPU backend keeps K as [D, N] (channel-major) and V as [N, D]
// inside one tensor.
struct KvStrides {
  int64_t page = 0;
  int64_t head = 0;
  int64_t token = 0;
  int64_t channel = 0;
};

// One layer's base pointers: element (page 0, head 0, token 0, channel 0) of K and of V. V may be
// null for MLA.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
};

// Where the KV of one layer group of one sequence lies in an engine's memory: tokens 0…tokens-1 of
// the view are token t at page page_table[t / page_tokens], slot t % page_tokens. Contiguous memory
// is one page. Borrows everything; the engine keeps the pages valid until the operation that was
// given the view has released it. Shapes: K element (layer, token, head, channel), heads of the
// view = the KV heads that this worker holds, in model order.
struct KvView {
  DType dtype = DType::kFloat16;
  MemorySpace space = MemorySpace::kHost;
  uint32_t heads = 0;
  uint32_t k_head_dim = 0;
  uint32_t v_head_dim = 0;
  uint32_t tokens = 0;
  uint32_t page_tokens = 0;
  std::vector<uint32_t> page_table;
  std::vector<KvLayer> layers;  // in the order of the layer group
  KvStrides k_strides;
  KvStrides v_strides;

  std::byte* KAt(size_t layer, uint32_t token, uint32_t head) const {
    return layers[layer].k + At(k_strides, token, head);
  }
  std::byte* VAt(size_t layer, uint32_t token, uint32_t head) const {
    return layers[layer].v + At(v_strides, token, head);
  }

 private:
  int64_t At(const KvStrides& s, uint32_t token, uint32_t head) const {
    return static_cast<int64_t>(page_table[token / page_tokens]) * s.page +
           static_cast<int64_t>(head) * s.head +
           static_cast<int64_t>(token % page_tokens) * s.token;
  }
};

// Contiguous [heads, tokens, head_dim] per layer (the layout of .kvcap captures); one page.
KvView ContiguousView(DType dtype, uint32_t heads, uint32_t head_dim, uint32_t tokens,
                      std::vector<KvLayer> layers);

// vLLM's CPU pages: per layer [num_pages, heads, 2·page_tokens·head_dim]; within a head K is [D,
// N], then V is [N, D]. `layer_bases[i]` is the first byte of a layer's tensor.
struct VllmCpuLayout {
  DType dtype = DType::kBFloat16;
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t page_tokens = 0;
};
KvView VllmCpuView(const VllmCpuLayout& layout, uint32_t tokens, std::vector<uint32_t> page_table,
                   std::span<std::byte* const> layer_bases);

// INVALID_ARGUMENT names the field: no layers, null pointers, a page table too short for `tokens`,
// strides that overlap.
absl::Status ValidateView(const KvView& view);

}  // namespace tokura::kernels
