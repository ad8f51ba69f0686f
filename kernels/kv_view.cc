#include "kernels/kv_view.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/format.h"

namespace tokura::kernels {
namespace {

absl::Status CheckSizes(const KvView& view) {
  const auto bad = [](const char* field, uint64_t value) {
    return absl::InvalidArgumentError(absl::StrCat("kv view: ", field, " is ", value));
  };
  if (DTypeBytes(view.dtype) == 0) {
    return bad("dtype", static_cast<uint64_t>(view.dtype));
  }
  if (view.layers.empty() || view.layers.size() > format::kLayersMax) {
    return bad("layers", view.layers.size());
  }
  if (view.heads == 0 || view.heads > format::kHeadsMax) {
    return bad("heads", view.heads);
  }
  if (view.k_head_dim == 0 || view.k_head_dim > format::kHeadDimMax) {
    return bad("k_head_dim", view.k_head_dim);
  }
  if (view.v_head_dim > format::kHeadDimMax) {
    return bad("v_head_dim", view.v_head_dim);
  }
  if (view.page_tokens == 0) {
    return bad("page_tokens", 0);
  }
  const uint64_t pages = (uint64_t{view.tokens} + view.page_tokens - 1) / view.page_tokens;
  if (view.page_table.size() < pages) {
    return absl::InvalidArgumentError(absl::StrCat("kv view: page_table has ",
                                                   view.page_table.size(), " entries, ",
                                                   view.tokens, " tokens need ", pages));
  }
  return absl::OkStatus();
}

absl::Status CheckPointers(const KvView& view) {
  for (size_t layer = 0; layer < view.layers.size(); ++layer) {
    if (view.layers[layer].k == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("kv view: layers[", layer, "].k is null"));
    }
    if (view.v_head_dim != 0 && view.layers[layer].v == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("kv view: layers[", layer, "].v is null"));
    }
  }
  return absl::OkStatus();
}

// No two elements share a byte, and no offset leaves int64_t: taken in the order of their strides,
// each axis steps over all of the axes inside it. Every layout that is a permutation of the axes,
// with gaps or without, passes.
absl::Status CheckStrides(const KvView& view, const KvStrides& strides, uint32_t dim,
                          const char* field) {
  struct Axis {
    int64_t stride;
    int64_t extent;
  };
  const uint32_t page_max = view.page_table.empty()
                                ? 0
                                : *std::max_element(view.page_table.begin(), view.page_table.end());
  std::array<Axis, 4> axes = {{{strides.page, int64_t{page_max} + 1},
                               {strides.head, view.heads},
                               {strides.token, std::min(view.page_tokens, view.tokens)},
                               {strides.channel, dim}}};
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  int64_t inside = static_cast<int64_t>(DTypeBytes(view.dtype));
  for (const Axis& axis : axes) {
    if (axis.stride < 0) {
      return absl::InvalidArgumentError(absl::StrCat("kv view: ", field, " has a negative stride"));
    }
    if (axis.extent <= 1) {
      continue;
    }
    if (axis.stride < inside) {
      return absl::InvalidArgumentError(absl::StrCat("kv view: ", field, " overlap: stride ",
                                                     axis.stride, " is below ", inside, " bytes"));
    }
    int64_t last;
    if (__builtin_mul_overflow(axis.stride, axis.extent - 1, &last) ||
        __builtin_add_overflow(last, inside, &inside)) {
      return absl::InvalidArgumentError(absl::StrCat("kv view: ", field, " exceed 2^63 bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

KvView ContiguousView(DType dtype, uint32_t heads, uint32_t head_dim, uint32_t tokens,
                      std::vector<KvLayer> layers) {
  const int64_t element = static_cast<int64_t>(DTypeBytes(dtype));
  KvView view;
  view.dtype = dtype;
  view.heads = heads;
  view.k_head_dim = head_dim;
  view.v_head_dim = head_dim;
  view.tokens = tokens;
  view.page_tokens = std::max(tokens, 1u);
  view.page_table = {0};
  view.layers = std::move(layers);
  view.k_strides.channel = element;
  view.k_strides.token = element * head_dim;
  view.k_strides.head = view.k_strides.token * tokens;
  view.k_strides.page = view.k_strides.head * heads;
  view.v_strides = view.k_strides;
  return view;
}

KvView VllmCpuView(const VllmCpuLayout& layout, uint32_t tokens, std::vector<uint32_t> page_table,
                   std::span<std::byte* const> layer_bases) {
  const int64_t element = static_cast<int64_t>(DTypeBytes(layout.dtype));
  const int64_t half = element * layout.page_tokens * layout.head_dim;  // K of a head, or V
  KvView view;
  view.dtype = layout.dtype;
  view.heads = layout.heads;
  view.k_head_dim = layout.head_dim;
  view.v_head_dim = layout.head_dim;
  view.tokens = tokens;
  view.page_tokens = layout.page_tokens;
  view.page_table = std::move(page_table);
  for (std::byte* base : layer_bases) {
    view.layers.push_back({base, base == nullptr ? nullptr : base + half});
  }
  view.k_strides = {2 * half * layout.heads, 2 * half, element, element * layout.page_tokens};
  view.v_strides = {2 * half * layout.heads, 2 * half, element * layout.head_dim, element};
  return view;
}

absl::Status ValidateView(const KvView& view) {
  absl::Status status = CheckSizes(view);
  if (status.ok()) {
    status = CheckPointers(view);
  }
  if (status.ok()) {
    status = CheckStrides(view, view.k_strides, view.k_head_dim, "k_strides");
  }
  if (status.ok() && view.v_head_dim != 0) {
    status = CheckStrides(view, view.v_strides, view.v_head_dim, "v_strides");
  }
  return status;
}

}  // namespace tokura::kernels
