#include "kernels/quantize.h"

namespace tokura::kernels {

float LargestFinite(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65504.0f;
    case DType::kBFloat16:
      return std::bit_cast<float>(0x7f7f0000u);
    default:
      return std::bit_cast<float>(0x7f7fffffu);
  }
}

float RoundToType(DType dtype, float value) {
  switch (dtype) {
    case DType::kFloat16:
      return HalfToFloat(FloatToHalf(value));
    case DType::kBFloat16:
      return BFloat16ToFloat(FloatToBFloat16(value));
    default:
      return value;
  }
}

float StoredScale(DType dtype, float range, float steps) {
  if (range == 0.0f) {
    return 1.0f;
  }
  const float scale = range / steps;
  if (dtype == DType::kFloat16) {
    return scale < 0x1p-14f ? std::ceil(scale * 0x1p24f) * 0x1p-24f : RoundToType(dtype, scale);
  }
  return scale < 0x1p-126f ? 0x1p-126f : RoundToType(dtype, scale);
}

}  // namespace tokura::kernels
