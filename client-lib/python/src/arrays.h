#pragma once

#include <cstdint>
#include <vector>

#include <nanobind/nanobind.h>

namespace tokura::python {

// Unsigned 32-bit integers (`name`, for the message): a sequence of int, or a one-dimensional
// integer array. Raises InvalidArgument.
std::vector<uint32_t> ReadIntegers(nanobind::handle values, const char* name);

// (address, shape, strides in bytes, type code and bits of DLPack, whether it is on a GPU, whether
// it is read-only) of an array. Raises InvalidArgument for what is no array.
nanobind::tuple DescribeArray(nanobind::handle array);

}  // namespace tokura::python
