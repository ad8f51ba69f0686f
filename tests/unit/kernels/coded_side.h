#pragma once

// One side of a slab, coded and taken apart again.

#include <cstddef>
#include <vector>

#include "kernels/side_codec.h"

namespace tokura::kernels {

struct CodedSide {
  SideResult result = SideResult::kNotRepresentable;
  std::vector<std::byte> bytes;
  // Of integer sides and codebooks: in the order (token, channel), signed ones as signed.
  std::vector<int> codes;
  std::vector<float> parameters;  // as stored, of float8 as they are
  std::vector<float> decoded;     // [tokens, dim]
};

// Codes `x` [tokens, dim]. Fails the test when a byte outside of the side is written, when coding
// it again gives other bytes, or when decoding by single rows gives other numbers.
CodedSide CodeSide(const SideTask& task, const std::vector<float>& x);

}  // namespace tokura::kernels
