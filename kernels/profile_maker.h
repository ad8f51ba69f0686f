#pragma once

// Making a profile: what one (layer, KV head) of a model gets from captured keys, values and
// queries.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/profile.h"

namespace tokura::kernels {

// First tokens of a sequence that statistics leave out, as encoders keep them raw.
inline constexpr uint32_t kProfileSinks = 4;

// Consecutive tokens of one sequence.
struct TokenRun {
  uint64_t first_position = 0;
  uint32_t tokens = 0;
  std::vector<float> k;  // [tokens, k_head_dim], RoPE applied
  std::vector<float> v;  // [tokens, v_head_dim]
};

struct HeadSamples {
  std::vector<TokenRun> runs;       // at least one token
  std::vector<float> queries;       // [n, k_head_dim], RoPE applied, not scaled
  std::vector<uint32_t> positions;  // [n] of the queries
};

// Where the head is in the model.
struct HeadPlace {
  uint32_t layer = 0;  // index in the group
  uint32_t head = 0;
};

// Statistics and exemplars of one head. `group` has everything but heads; `exemplars` ≤ n. A
// function of the arguments: equal ones give equal bits, on one build of this library.
ProfileHead MakeProfileHead(const ProfileGroup& group, const HeadPlace& place,
                            const HeadSamples& samples, uint32_t exemplars);

}  // namespace tokura::kernels
