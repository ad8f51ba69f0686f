#include "kernels/rope.h"

#include <cmath>
#include <numbers>

#include "common/check.h"

namespace tokura::kernels {
namespace {

// Series for |x| ≤ π/4, to about 1e-12.
double Sine(double x) {
  const double y = x * x;
  return x *
         (1 + y * (-1 / 6.0 + y * (1 / 120.0 + y * (-1 / 5040.0 +
                                                    y * (1 / 362880.0 + y * (-1 / 39916800.0))))));
}

double Cosine(double x) {
  const double y = x * x;
  return 1 +
         y * (-1 / 2.0 +
              y * (1 / 24.0 + y * (-1 / 720.0 + y * (1 / 40320.0 + y * (-1 / 3628800.0 +
                                                                        y * (1 / 479001600.0))))));
}

}  // namespace

RopeShape::Pair RopeShape::PairAt(uint32_t index) const {
  TOKURA_DCHECK(index < pairs());
  return kind == RopeKind::kHalfSplit ? Pair{first + index, first + index + dims / 2}
                                      : Pair{first + 2 * index, first + 2 * index + 1};
}

uint32_t RopeShape::Partner(uint32_t channel) const {
  if (channel < first || channel >= first + dims) {
    return channel;
  }
  const uint32_t at = channel - first;
  if (kind == RopeKind::kInterleaved) {
    return first + (at ^ 1u);
  }
  return first + (at < dims / 2 ? at + dims / 2 : at - dims / 2);
}

Rotation RotationOf(uint64_t phase) {
  // The nearest quarter, and what is left of at most an eighth of a turn to either side.
  const uint64_t quarter = (phase + (uint64_t{1} << 61)) >> 62;
  const auto rest = static_cast<int64_t>(phase - (quarter << 62));
  const double x = static_cast<double>(rest) * (2 * std::numbers::pi * 0x1p-64);
  const auto cosine = static_cast<float>(Cosine(x));
  const auto sine = static_cast<float>(Sine(x));
  switch (quarter & 3) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

std::vector<uint64_t> TurnsOf(double base, uint32_t dims) {
  TOKURA_CHECK(base > 1 && dims % 2 == 0);
  std::vector<uint64_t> turns(dims / 2);
  for (uint32_t i = 0; i < dims / 2; ++i) {
    const double radians = std::pow(base, -2.0 * i / dims);
    turns[i] = static_cast<uint64_t>(radians / (2 * std::numbers::pi) * 0x1p64);
  }
  return turns;
}

void RotationsAt(std::span<const uint64_t> turns, uint64_t position, std::span<Rotation> out) {
  TOKURA_CHECK(out.size() == turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    out[i] = RotationOf(turns[i] * position);
  }
}

void Rotate(const RopeShape& shape, std::span<const Rotation> rotations, float* x) {
  TOKURA_CHECK(rotations.size() == shape.pairs());
  for (uint32_t i = 0; i < shape.pairs(); ++i) {
    const RopeShape::Pair pair = shape.PairAt(i);
    const float a = x[pair.a];
    const float b = x[pair.b];
    x[pair.a] = a * rotations[i].cosine - b * rotations[i].sine;
    x[pair.b] = b * rotations[i].cosine + a * rotations[i].sine;
  }
}

}  // namespace tokura::kernels
