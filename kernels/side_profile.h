#pragma once

// What codecs take from a model profile, as plain borrowed arrays: of one side of one (layer, KV
// head) and of one head. Whoever owns a profile (a file, a benchmark, a test) fills these.

#include <cstdint>
#include <span>

namespace tokura::kernels {

// How errors of rounding are pushed from one position to those not yet rounded (FORMAT.md, "Guided
// rounding"). Positions are channels for Rounding::kGuidedByChannel, where both arrays are
// constants of the profile, and coded tokens for kGuidedByToken, where they follow from the block.
struct RoundingGuide {
  // A permutation of the n positions: the order in which they are rounded.
  std::span<const uint16_t> order;
  // n · (n − 1) / 2 finite factors, row by row: row i holds, for j = i + 1 … n − 1, what position
  // order[j] loses per unit of the error of position order[i].
  std::span<const float> factors;
};

// Spans that the side's codec does not use may be empty; those that it uses have these sizes.
struct SideProfile {
  // λ of Transform::kSmooth: [dim], finite and above 0, the same for both channels of a RoPE pair.
  std::span<const float> smooth;
  // Channels kept as they are, for sides with outliers: OutlierChannels(side, dim) of them,
  // ascending, below dim − side.tail; of K whole RoPE pairs.
  std::span<const uint16_t> outliers;
  // For kGuidedByChannel. (For kGuidedByToken encoders put one here that they made of the block.)
  RoundingGuide guide;
  // Signs of Transform::kHadamard: 0 unless the profile says otherwise.
  uint64_t sign_seed = 0;
};

// Of one (layer, KV head).
struct HeadProfile {
  SideProfile k;
  SideProfile v;
};

}  // namespace tokura::kernels
