#pragma once

#include "tokura.h"

namespace tokura::python {

// Throw the Python exception of this code (tokura._errors). Needs the interpreter lock.
[[noreturn]] void Raise(tokura_code code, const char* message);

// Where a call of the C ABI says what went wrong.
class Error {
 public:
  operator tokura_error*() { return &error_; }
  // Throw what the call reported.
  [[noreturn]] void Raise() const { python::Raise(error_.code, error_.message); }
  // Throw unless `code` is OK.
  void Check(tokura_code code) const {
    if (code != TOKURA_OK) {
      Raise();
    }
  }
  // `pointer`, or throw where it is null.
  template <typename T>
  T* Check(T* pointer) const {
    if (pointer == nullptr) {
      Raise();
    }
    return pointer;
  }

 private:
  tokura_error error_{TOKURA_INTERNAL, "no reason given"};
};

}  // namespace tokura::python
