#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "tokura.h"

namespace tokura::python {

// An engine's paged memory of one layer group. Immutable. Its arrays are kept alive in Python.
class Pages {
 public:
  // (dtype, space, heads, k_head_dim, v_head_dim, page_tokens, read_only)
  using Shape = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, bool>;
  using Strides = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  Pages(const Shape& shape, const std::vector<std::pair<uintptr_t, uintptr_t>>& layers,
        const Strides& k_strides, const Strides& v_strides);
  Pages(const Pages&) = delete;  // the description points into it
  Pages& operator=(const Pages&) = delete;

  // The description, but for the page table and the tokens.
  const tokura_kv_view& view() const { return view_; }

 private:
  std::vector<tokura_kv_layer> layers_;
  tokura_kv_view view_;
};

// The pages of one sequence. Immutable.
class View {
 public:
  // Raises InvalidArgument: a page that is not below `pages`, or too few pages for the tokens;
  // `tokens` negative: all of the pages.
  View(const Pages& memory, nanobind::handle page_table, int64_t tokens, uint64_t pages);
  View(const View&) = delete;  // the description points into it
  View& operator=(const View&) = delete;

  const tokura_kv_view* get() const { return &view_; }
  uint32_t tokens() const { return view_.tokens; }

 private:
  std::vector<uint32_t> page_table_;
  tokura_kv_view view_;
};

void BindViews(nanobind::module_& module);

}  // namespace tokura::python
