#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/kvcap.h"
#include "cli/output.h"
#include "kernels/profile.h"

namespace tokura::cli {

struct CodecEvalOptions {
  std::string codec = "kivi4";
  uint32_t block_tokens = 64;
  uint32_t sink_tokens = 4;
  // Whose exemplars stand for the queries in declared errors, and what codecs that need one take;
  // null: none, and the blocks' own keys stand in. Owners: the caller and encoders and readers.
  std::shared_ptr<const kernels::Profile> profile = nullptr;
  uint32_t record_queries = kernels::kExemplarsMax;
};

// One number per captured layer, and their mean and maximum.
struct LayerErrors {
  std::vector<double> per_layer;
  double Mean() const;
  double Max() const;
};

// What a codec does to a captured sequence whose context is encoded in whole blocks; sinks, the
// rest of the context and the continuation stay exact. All errors are relative.
struct CodecEvaluation {
  std::string codec;
  uint32_t blocks = 0;
  double bits_per_element = 0;  // everything stored, headers and sinks included
  double k_error = 0;  // ‖decoded − k‖ / ‖k‖ over the encoded tokens, mean over layers
  double v_error = 0;
  // Attention output of the captured queries over the whole sequence.
  LayerErrors attention_error;
  // What the encoded blocks declare: per layer the root mean square over the blocks.
  LayerErrors declared_error;
  uint64_t profile = 0;  // that the declared errors were measured with; 0: the blocks' own keys
  // Block by block, sinks left out: attention of the captured queries over that block alone.
  double block_true_mean = 0;
  double block_declared_mean = 0;
  double within_25_percent = 0;  // share of (block, layer) with declared / true in 0.8…1.25
  // declared / true of every (block, layer) where neither is 0, layer by layer.
  std::vector<double> block_ratios;
};

// INVALID_ARGUMENT: the capture continues a prefix, or its context holds no whole block;
// FAILED_PRECONDITION: it has no queries; NOT_FOUND: unknown codec; others as PartEncoder.
absl::StatusOr<CodecEvaluation> EvaluateCodec(
    const Capture& capture, const CodecEvalOptions& options,
    const std::function<void(std::string_view)>& progress);
// The object that `tokura codec eval --json` writes.
Json ToJson(const CodecEvaluation& evaluation);

}  // namespace tokura::cli
