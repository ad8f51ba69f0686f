#include "errors.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace tokura::python {

void Raise(tokura_code code, const char* message) {
  const nb::object error =
      nb::module_::import_("tokura._errors").attr("make_error")(static_cast<int>(code), message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace tokura::python
