#pragma once

#include <cstdint>

namespace tokura::cli {

// A number that follows from two others and looks random (SplitMix64). For made-up content and for
// reproducible choices; not for anything that must be unguessable.
inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace tokura::cli
