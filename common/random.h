#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tokura {

// Source of randomness, handed to components so that a simulation is reproducible from its seed.
// Thread-safe.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual void Fill(std::span<std::byte> out) = 0;
  uint64_t Next() {
    uint64_t value;
    Fill(std::as_writable_bytes(std::span<uint64_t, 1>(&value, 1)));
    return value;
  }
};

// The kernel's random numbers: unguessable, for tokens and instance ids. Thread-safe; lives for
// ever.
RandomSource& SystemRandom();

}  // namespace tokura
