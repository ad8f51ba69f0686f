#include "kernels/float_convert.h"

#include <cstring>

#include "common/check.h"
#include "kernels/float8.h"
#include "kernels/kernel_set.h"

namespace tokura::kernels {
namespace {

// Elements from which on the wide instructions are worth the call.
constexpr size_t kWorthACall = 16;

// memcpy of one element compiles to an unaligned load or store and does not stop vectorisation.
template <float (*kConvert)(uint16_t)>
void Widen(const std::byte* in, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t raw;
    std::memcpy(&raw, in + 2 * i, sizeof(raw));
    out[i] = kConvert(raw);
  }
}

template <uint16_t (*kConvert)(float)>
void Narrow(const float* in, size_t count, std::byte* out) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t raw = kConvert(in[i]);
    std::memcpy(out + 2 * i, &raw, sizeof(raw));
  }
}

}  // namespace

bool ConvertsToFloat(DType dtype) {
  return DTypeBytes(dtype) != 0;
}

void ToFloat(DType dtype, const std::byte* in, size_t count, float* out) {
  TOKURA_CHECK(ConvertsToFloat(dtype));
  if (count == 0) {
    return;
  }
  if (count >= kWorthACall) {
    if (const auto to_float = ActiveKernels().to_float) {
      return to_float(dtype, in, count, out);
    }
  }
  if (dtype == DType::kFloat32) {
    std::memcpy(out, in, count * sizeof(float));
  } else if (dtype == DType::kFloat16) {
    Widen<HalfToFloat>(in, count, out);
  } else if (dtype == DType::kFloat8E4M3) {
    for (size_t i = 0; i < count; ++i) {
      out[i] = Float8ToFloat(static_cast<uint8_t>(in[i]));
    }
  } else {
    Widen<BFloat16ToFloat>(in, count, out);
  }
}

void FromFloat(DType dtype, const float* in, size_t count, std::byte* out) {
  TOKURA_CHECK(ConvertsToFloat(dtype));
  if (count == 0) {
    return;
  }
  if (count >= kWorthACall) {
    if (const auto from_float = ActiveKernels().from_float) {
      return from_float(dtype, in, count, out);
    }
  }
  if (dtype == DType::kFloat32) {
    std::memcpy(out, in, count * sizeof(float));
  } else if (dtype == DType::kFloat16) {
    Narrow<FloatToHalf>(in, count, out);
  } else if (dtype == DType::kFloat8E4M3) {
    for (size_t i = 0; i < count; ++i) {
      out[i] = static_cast<std::byte>(FloatToFloat8(in[i]));
    }
  } else {
    Narrow<FloatToBFloat16>(in, count, out);
  }
}

float LoadElement(DType dtype, const std::byte* p) {
  float value;
  ToFloat(dtype, p, 1, &value);
  return value;
}

void StoreElement(DType dtype, float value, std::byte* p) {
  FromFloat(dtype, &value, 1, p);
}

}  // namespace tokura::kernels
