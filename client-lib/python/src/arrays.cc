#include "arrays.h"

#include <string>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "errors.h"

namespace nb = nanobind;

namespace tokura::python {
namespace {

using AnyArray = nb::ndarray<nb::ro>;

[[noreturn]] void RaiseIntegers(const char* name) {
  Raise(TOKURA_INVALID_ARGUMENT,
        (std::string(name) + " must be integers from 0 to 2**32 - 1").c_str());
}

template <typename T>
void CopyIntegers(const AnyArray& array, const char* name, std::vector<uint32_t>* out) {
  const auto* values = static_cast<const T*>(array.data());
  for (size_t i = 0; i < array.shape(0); ++i) {
    const T value = values[static_cast<int64_t>(i) * array.stride(0)];
    if (value < T{0} || static_cast<uint64_t>(value) > UINT32_MAX) {
      RaiseIntegers(name);
    }
    out->push_back(static_cast<uint32_t>(value));
  }
}

std::vector<uint32_t> ReadArray(const AnyArray& array, const char* name) {
  std::vector<uint32_t> out;
  out.reserve(array.shape(0));
  const nb::dlpack::dtype type = array.dtype();
  const bool is_signed = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int);
  const bool is_unsigned = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt);
  if (is_unsigned && type.bits == 32) {
    CopyIntegers<uint32_t>(array, name, &out);
  } else if (is_unsigned && type.bits == 64) {
    CopyIntegers<uint64_t>(array, name, &out);
  } else if (is_signed && type.bits == 32) {
    CopyIntegers<int32_t>(array, name, &out);
  } else if (is_signed && type.bits == 64) {
    CopyIntegers<int64_t>(array, name, &out);
  } else {
    RaiseIntegers(name);
  }
  return out;
}

std::vector<uint32_t> ReadSequence(nb::handle values, const char* name) {
  std::vector<uint32_t> out;
  if (nb::isinstance<nb::str>(values) || nb::isinstance<nb::bytes>(values)) {
    RaiseIntegers(name);
  }
  for (nb::handle value : nb::iter(values)) {
    uint32_t number = 0;
    if (!nb::try_cast<uint32_t>(value, number)) {
      RaiseIntegers(name);
    }
    out.push_back(number);
  }
  return out;
}

}  // namespace

std::vector<uint32_t> ReadIntegers(nb::handle values, const char* name) {
  AnyArray array;
  const bool plain = nb::isinstance<nb::list>(values) || nb::isinstance<nb::tuple>(values) ||
                     nb::isinstance<nb::bytes>(values);
  if (plain || !nb::try_cast<AnyArray>(values, array)) {
    return ReadSequence(values, name);
  }
  if (array.ndim() != 1 || array.device_type() != nb::device::cpu::value) {
    RaiseIntegers(name);
  }
  return ReadArray(array, name);
}

nb::tuple DescribeArray(nb::handle source) {
  nb::ndarray<> writable;
  AnyArray array;
  const bool writes = nb::try_cast<nb::ndarray<>>(source, writable);
  if (writes) {
    array = AnyArray(writable);
  } else if (!nb::try_cast<AnyArray>(source, array)) {
    Raise(TOKURA_INVALID_ARGUMENT, "not an array: it has neither __dlpack__ nor a buffer");
  }
  nb::list shape;
  nb::list strides;
  const nb::dlpack::dtype type = array.dtype();
  const int64_t bytes = type.bits / 8;
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i) * bytes);
  }
  const bool gpu = array.device_type() != nb::device::cpu::value;
  return nb::make_tuple(reinterpret_cast<uintptr_t>(array.data()), nb::tuple(shape),
                        nb::tuple(strides), static_cast<int>(type.code),
                        static_cast<int>(type.bits), gpu, !writes);
}

}  // namespace tokura::python
