#pragma once

// How far an approximation of a captured sequence's KV is from the exact one: in values, and in the
// attention output of the captured queries.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/kvcap.h"
#include "cli/sequence_memory.h"
#include "kernels/attention.h"

namespace tokura::cli {

// Sums over IEEE float16 values for the relative difference ‖approximate − exact‖ / ‖exact‖
// (AttentionSums::Relative). The spans are of equal size.
kernels::AttentionSums ValueDifference(std::span<const uint16_t> exact,
                                       std::span<const uint16_t> approximate);

// One KV head of one layer of a capture that begins at position 0, exact and approximated, with the
// queries that read it. Copies what it needs. Thread-compatible.
class HeadComparison {
 public:
  struct Head {
    size_t layer = 0;  // captured layer, not the model's
    size_t head = 0;
  };
  HeadComparison(const Capture& capture, const SequenceMemory& approximation, const Head& which);

  // What the approximation changes in attention over tokens [begin, end) alone, each query seeing
  // those of them that it sees in the model.
  struct Tokens {
    size_t begin = 0;
    size_t end = 0;
  };
  kernels::AttentionSums Error(const Tokens& tokens) const;

 private:
  struct Values {
    std::vector<float> k;  // [tokens, head_dim]
    std::vector<float> v;
    kernels::AttentionKv Part(size_t begin, size_t end, size_t head_dim) const;
  };
  uint32_t head_dim_;
  uint32_t window_;
  double scale_;
  Values exact_;
  Values approximate_;
  std::vector<float> queries_;  // [query heads of the group · queries, head_dim]
  std::vector<int64_t> positions_;
};

// The relative error of each layer's attention output over the whole sequence.
std::vector<double> AttentionErrors(const Capture& capture, const SequenceMemory& approximation);

}  // namespace tokura::cli
