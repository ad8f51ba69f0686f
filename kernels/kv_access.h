#pragma once

// Rows of K or of V of one layer and head of a view, whatever its strides, as dense
// [tokens, dim] arrays. Internal to kernels/.

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "kernels/kv_view.h"

namespace tokura::kernels {

// K or V of one (layer, head). Borrows the view.
struct SideAccess {
  std::byte* base = nullptr;  // element (page 0, token 0, channel 0)
  const uint32_t* page_table = nullptr;
  uint32_t page_tokens = 0;
  int64_t page_stride = 0;  // bytes, as are the others
  int64_t token_stride = 0;
  int64_t channel_stride = 0;
  uint32_t dim = 0;
  DType dtype = DType::kFloat16;
  PageStores stores = PageStores::kCached;
};

SideAccess AccessK(const KvView& view, size_t layer, uint32_t head);
SideAccess AccessV(const KvView& view, size_t layer, uint32_t head);

// Tokens [first, first + count) of the view; callers have checked that they exist.
struct TokenRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Copy elements as they are to `out`, [count, dim] of access.dtype, or back from `in`. Nothing but
// these elements is read or written. After the last ScatterRaw with streaming stores comes a
// StreamFence.
void GatherRaw(const SideAccess& access, TokenRange range, std::byte* out);
void ScatterRaw(const SideAccess& access, TokenRange range, const std::byte* in);

// The same with conversion from or to fp32, [count, dim]; dtype is float32, float16 or bfloat16.
void GatherFloat(const SideAccess& access, TokenRange range, float* out);
void ScatterFloat(const SideAccess& access, TokenRange range, const float* in);

}  // namespace tokura::kernels
