#pragma once

// e^x without the mathematics library, so that results have the same bits on every machine.

#include <bit>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quantize.h"

namespace tokura::kernels {

// e^x for x ≤ 0 to about 1e-7 relative: 2^n · e^r with |r| ≤ ln(2)/2 by its series. NaN counts as
// very small, so that codes which are made with it are the same everywhere.
TOKURA_HOST_DEVICE inline float ExpOfNegative(float x) {
  const float clamped = x > -87.0f ? x : -87.0f;
  const int32_t n = RoundToInt(clamped * 1.44269504f);
  const auto n_float = static_cast<float>(n);
  const float r = clamped - n_float * 0.693359375f + n_float * 2.12194440e-4f;
  const float series =
      1 + r * (1 + r * (1 / 2.0f +
                        r * (1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * (1 / 720.0f))))));
  return series * std::bit_cast<float>((n + 127) << 23);
}

}  // namespace tokura::kernels
