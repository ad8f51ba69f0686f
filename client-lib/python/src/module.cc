// tokura._core: the C ABI for the Python package, which gives it names, defaults and types.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "client.h"
#include "errors.h"
#include "names.h"
#include "operation.h"
#include "tokura.h"
#include "views.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  // What an engine still refers to when its interpreter ends is its own affair, not worth a page on
  // its standard error.
  nb::set_leak_warnings(false);
  module.def("abi_version", &tokura_abi_version);
  module.def("version", [] { return std::string(tokura_version()); });
  module.def("ucx_version_built", [] { return std::string(tokura_ucx_version_built()); });
  module.def("ucx_version_loaded", [] { return std::string(tokura_ucx_version_loaded()); });
  module.def(
      "set_log_level",
      [](const std::string& level) {
        tokura::python::Error error;
        error.Check(tokura_set_log_level(level.c_str(), error));
      },
      nb::arg("level"));
  tokura::python::BindNames(module);
  tokura::python::BindViews(module);
  tokura::python::BindOperation(module);
  tokura::python::BindClient(module);
}
