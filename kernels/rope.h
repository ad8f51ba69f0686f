#pragma once

// Rotary position embedding, with angles as exact fractions of a turn: phases are integers modulo
// 2^64, so that a position of any size is rotated without loss and by the same bits everywhere.

#include <cstdint>
#include <span>
#include <vector>

namespace tokura::kernels {

// The numbers are part of PROFILE.md.
enum class RopeKind : uint8_t {
  kNone = 0,
  kHalfSplit = 1,    // channel i of the rotated ones turns with channel i + dims / 2 ("NeoX")
  kInterleaved = 2,  // channel 2i turns with channel 2i + 1
};

// Which channels of a key turn, and in which pairs.
struct RopeShape {
  RopeKind kind = RopeKind::kNone;
  uint32_t first = 0;  // rotated channel
  uint32_t dims = 0;   // rotated channels, even; 0 for kNone

  struct Pair {
    uint32_t a;
    uint32_t b;
  };
  uint32_t pairs() const { return dims / 2; }
  // Channels of pair `index` < pairs().
  Pair PairAt(uint32_t index) const;
  // The channel that turns with `channel`, or `channel` itself.
  uint32_t Partner(uint32_t channel) const;
  friend bool operator==(const RopeShape&, const RopeShape&) = default;
};

struct Rotation {
  float cosine = 1;
  float sine = 0;
};

// `phase` in 2^-64 turns. IEEE arithmetic in a fixed order; needs the default floating-point
// environment (fp_environment.h). Errors below 1e-7.
Rotation RotationOf(uint64_t phase);

// Turns of each pair for one position: base^(-2i/dims) radians, in 2^-64 turns. For making a
// profile: the last digits depend on the mathematics library. `base` > 1.
std::vector<uint64_t> TurnsOf(double base, uint32_t dims);

// Rotations of all pairs at `position`, modulo 2^64: negative positions are given as their two's
// complement. `out` has turns.size() entries.
void RotationsAt(std::span<const uint64_t> turns, uint64_t position, std::span<Rotation> out);

// Turn one vector in place; `rotations` has shape.pairs() entries.
void Rotate(const RopeShape& shape, std::span<const Rotation> rotations, float* x);

}  // namespace tokura::kernels
