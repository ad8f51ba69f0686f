#include "views.h"

#include <string>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "errors.h"

namespace nb = nanobind;

namespace tokura::python {
namespace {

tokura_kv_strides ReadStrides(const Pages::Strides& strides) {
  return {std::get<0>(strides), std::get<1>(strides), std::get<2>(strides), std::get<3>(strides)};
}

}  // namespace

Pages::Pages(const Shape& shape, const std::vector<std::pair<uintptr_t, uintptr_t>>& layers,
             const Strides& k_strides, const Strides& v_strides) {
  for (const auto& [k, v] : layers) {
    layers_.push_back({reinterpret_cast<void*>(k), reinterpret_cast<void*>(v)});
  }
  tokura_kv_view_init(&view_, sizeof(view_));
  view_.dtype = std::get<0>(shape);
  view_.space = std::get<1>(shape);
  view_.heads = std::get<2>(shape);
  view_.k_head_dim = std::get<3>(shape);
  view_.v_head_dim = std::get<4>(shape);
  view_.page_tokens = std::get<5>(shape);
  view_.read_only = std::get<6>(shape) ? 1 : 0;
  view_.layers = layers_.data();
  view_.layers_count = layers_.size();
  view_.k_strides = ReadStrides(k_strides);
  view_.v_strides = ReadStrides(v_strides);
}

View::View(const Pages& memory, nb::handle page_table, int64_t tokens, uint64_t pages)
    : page_table_(ReadIntegers(page_table, "page_table")), view_(memory.view()) {
  for (const uint32_t page : page_table_) {
    if (page >= pages) {
      Raise(TOKURA_INVALID_ARGUMENT,
            ("page_table names page " + std::to_string(page) + " of " + std::to_string(pages))
                .c_str());
    }
  }
  const uint64_t covered = uint64_t{page_table_.size()} * view_.page_tokens;
  const uint64_t asked = tokens < 0 ? covered : static_cast<uint64_t>(tokens);
  if (asked > covered || asked > UINT32_MAX) {
    Raise(TOKURA_INVALID_ARGUMENT,
          (std::to_string(asked) + " tokens in pages for " + std::to_string(covered)).c_str());
  }
  view_.tokens = static_cast<uint32_t>(asked);
  view_.page_table = page_table_.data();
  view_.page_table_count = page_table_.size();
}

void BindViews(nb::module_& module) {
  nb::class_<Pages>(module, "Pages")
      .def(nb::init<const Pages::Shape&, const std::vector<std::pair<uintptr_t, uintptr_t>>&,
                    const Pages::Strides&, const Pages::Strides&>(),
           nb::arg("shape"), nb::arg("layers"), nb::arg("k_strides"), nb::arg("v_strides"));
  nb::class_<View>(module, "View")
      .def(nb::init<const Pages&, nb::handle, int64_t, uint64_t>(), nb::arg("memory"),
           nb::arg("page_table"), nb::arg("tokens"), nb::arg("pages"), nb::keep_alive<1, 2>())
      .def_prop_ro("tokens", &View::tokens);
  module.def("describe_array", &DescribeArray, nb::arg("array"));
}

}  // namespace tokura::python
