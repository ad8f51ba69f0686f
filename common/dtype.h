#pragma once

#include <cstddef>
#include <cstdint>

namespace tokura {

// Element types of an engine's KV. The numbers are part of FORMAT.md.
enum class DType : uint8_t { kFloat32 = 1, kFloat16 = 2, kBFloat16 = 3, kFloat8E4M3 = 4 };

constexpr size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat8E4M3:
      return 1;
  }
  return 0;
}

constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat8E4M3:
      return "float8_e4m3";
  }
  return "unknown";
}

}  // namespace tokura
