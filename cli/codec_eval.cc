#include "cli/codec_eval.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/judge.h"
#include "cli/local_codec.h"
#include "cli/sequence_memory.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/codec.h"
#include "kernels/profile_store.h"

namespace tokura::cli {
namespace {

// A table [layer][block].
using LayerBlocks = std::vector<std::vector<double>>;

// The context after encoding and decoding, in the capture's layer order.
struct DecodedContext {
  SequenceMemory memory;
  LayerBlocks declared;
  uint64_t profile = 0;
  uint64_t stored_bytes = 0;
};

size_t LayerPosition(const Capture& capture, uint32_t model_index) {
  const auto found = std::find_if(capture.layers.begin(), capture.layers.end(),
                                  [&](const CaptureLayer& l) { return l.index == model_index; });
  TOKURA_CHECK(found != capture.layers.end());
  return static_cast<size_t>(found - capture.layers.begin());
}

// Encode every part of `block` from `exact` and decode it into `context`.
absl::Status CodeBlock(const Capture& capture, const NamespaceRef& ns, uint32_t block,
                       const CodecEvalOptions& options, SequenceMemory* exact,
                       DecodedContext* context) {
  kernels::ProfileStore profiles;
  if (options.profile != nullptr) {
    profiles = kernels::ProfileStore({options.profile});
  }
  const SequenceView from = exact->View(ns->spec());
  const SequenceView to = context->memory.View(ns->spec());
  for (size_t group = 0; group < ns->spec().groups.size(); ++group) {
    const BlockPart part{ns, group, block, BlockKey{}};
    kernels::EncodeOptions encode;
    encode.codec = options.codec;
    encode.sink_tokens = options.sink_tokens;
    encode.record_queries = options.record_queries;
    encode.profiles = &profiles;
    encode.profile = options.profile == nullptr ? 0 : options.profile->id();
    TOKURA_ASSIGN_OR_RETURN(const size_t bytes_max, EncodedPartBytesMax(part, options.codec));
    const PartBuffer buffer(bytes_max);
    TOKURA_ASSIGN_OR_RETURN(const size_t bytes,
                            EncodePart(part, encode, from.groups[group], buffer.bytes()));
    TOKURA_ASSIGN_OR_RETURN(
        const kernels::PartInfo info,
        DecodePart(part, buffer.bytes().first(bytes), to.groups[group], &profiles));
    context->stored_bytes += bytes;
    context->profile = info.error.profile;
    const std::vector<uint32_t>& layers = ns->spec().groups[group].layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      context->declared[LayerPosition(capture, layers[i])][block] =
          info.error.layers.empty() ? 0 : info.error.LayerError(i);
    }
  }
  return absl::OkStatus();
}

// Mean over layers of the relative difference of the first `tokens` tokens of K or V.
template <typename ExactOf, typename DecodedOf>
double ValueError(const Capture& capture, size_t tokens, const ExactOf& exact_of,
                  const DecodedOf& decoded_of) {
  const size_t elements = tokens * capture.head_dim;
  double total = 0;
  for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
    kernels::AttentionSums sums;
    for (size_t head = 0; head < capture.kv_heads; ++head) {
      sums += ValueDifference(exact_of(layer, head).first(elements),
                              decoded_of(layer, head).first(elements));
    }
    total += sums.Relative();
  }
  return total / static_cast<double>(capture.layers.size());
}

double RootMeanSquare(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) {
    total += value * value;
  }
  return std::sqrt(total / static_cast<double>(values.size()));
}

// Declared against true errors, block by block; both exact counts as declared rightly.
void CompareBlocks(const LayerBlocks& truth, const LayerBlocks& declared, CodecEvaluation* out) {
  size_t count = 0;
  size_t within = 0;
  for (size_t layer = 0; layer < truth.size(); ++layer) {
    for (size_t block = 0; block < truth[layer].size(); ++block) {
      const double t = truth[layer][block];
      const double d = declared[layer][block];
      out->block_true_mean += t;
      out->block_declared_mean += d;
      within += d >= 0.8 * t && d <= 1.25 * t ? 1 : 0;
      if (t > 0 && d > 0) {
        out->block_ratios.push_back(d / t);
      }
      ++count;
    }
  }
  out->block_true_mean /= static_cast<double>(count);
  out->block_declared_mean /= static_cast<double>(count);
  out->within_25_percent = static_cast<double>(within) / static_cast<double>(count);
}

void JudgeAttention(const Capture& capture, const CodecEvalOptions& options,
                    const DecodedContext& context,
                    const std::function<void(std::string_view)>& progress, CodecEvaluation* out) {
  LayerBlocks truth;
  for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
    progress(absl::StrCat("attention of layer ", layer + 1, " of ", capture.layers.size()));
    kernels::AttentionSums sequence;
    std::vector<kernels::AttentionSums> blocks(out->blocks);
    for (size_t head = 0; head < capture.kv_heads; ++head) {
      const HeadComparison comparison(capture, context.memory, {layer, head});
      sequence += comparison.Error({0, capture.tokens});
      for (size_t block = 0; block < out->blocks; ++block) {
        const size_t begin = block * options.block_tokens;
        blocks[block] += comparison.Error(
            {std::max<size_t>(begin, options.sink_tokens), begin + options.block_tokens});
      }
    }
    out->attention_error.per_layer.push_back(sequence.Relative());
    out->declared_error.per_layer.push_back(RootMeanSquare(context.declared[layer]));
    truth.emplace_back();
    for (const kernels::AttentionSums& sums : blocks) {
      truth.back().push_back(sums.Relative());
    }
  }
  CompareBlocks(truth, context.declared, out);
}

absl::StatusOr<uint32_t> WholeBlocks(const Capture& capture, const CodecEvalOptions& options) {
  if (capture.first_position != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the capture begins at position ", capture.first_position,
                     ": give the capture that comes before it with --prefix"));
  }
  if (capture.queries == 0) {
    return absl::FailedPreconditionError(
        "the capture has no queries to measure an attention error with; give one that has, such as "
        "a request (--kv tests/data/kv/request_1.kvcap --prefix tests/data/kv/prefix.kvcap)");
  }
  const uint32_t blocks = capture.context_tokens / options.block_tokens;
  if (blocks == 0) {
    return absl::InvalidArgumentError(absl::StrCat("the context of ", capture.context_tokens,
                                                   " tokens holds no whole block of ",
                                                   options.block_tokens));
  }
  return blocks;
}

}  // namespace

double LayerErrors::Mean() const {
  return per_layer.empty() ? 0
                           : std::accumulate(per_layer.begin(), per_layer.end(), 0.0) /
                                 static_cast<double>(per_layer.size());
}

double LayerErrors::Max() const {
  return per_layer.empty() ? 0 : *std::max_element(per_layer.begin(), per_layer.end());
}

absl::StatusOr<CodecEvaluation> EvaluateCodec(
    const Capture& capture, const CodecEvalOptions& options,
    const std::function<void(std::string_view)>& progress) {
  TOKURA_RETURN_IF_ERROR(kernels::FindCodec(options.codec).status());
  TOKURA_ASSIGN_OR_RETURN(const uint32_t blocks, WholeBlocks(capture, options));
  TOKURA_ASSIGN_OR_RETURN(
      NamespaceSpec spec,
      CaptureNamespace(capture, {.model = "", .block_tokens = options.block_tokens}));
  const auto ns = std::make_shared<const Namespace>(std::move(spec));

  CodecEvaluation out;
  out.codec = options.codec;
  out.blocks = blocks;
  SequenceMemory exact = SequenceMemory::CopyOf(capture);
  DecodedContext context{
      .memory = SequenceMemory::CopyOf(capture),
      .declared = LayerBlocks(capture.layers.size(), std::vector<double>(blocks))};
  for (uint32_t block = 0; block < blocks; ++block) {
    progress(absl::StrCat("encoding block ", block + 1, " of ", blocks));
    TOKURA_RETURN_IF_ERROR(CodeBlock(capture, ns, block, options, &exact, &context));
  }
  out.profile = context.profile;
  const size_t tokens = size_t{blocks} * options.block_tokens;
  const double elements = 2.0 * static_cast<double>(capture.layers.size() * capture.kv_heads *
                                                    tokens * capture.head_dim);
  out.bits_per_element = 8.0 * static_cast<double>(context.stored_bytes) / elements;
  out.k_error = ValueError(
      capture, tokens, [&](size_t l, size_t h) { return capture.K(l, h); },
      [&](size_t l, size_t h) { return context.memory.K(l, h); });
  out.v_error = ValueError(
      capture, tokens, [&](size_t l, size_t h) { return capture.V(l, h); },
      [&](size_t l, size_t h) { return context.memory.V(l, h); });
  JudgeAttention(capture, options, context, progress, &out);
  return out;
}

namespace {

// The value below which `share` of `sorted` lie.
double Quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

Json RatioJson(std::vector<double> ratios) {
  if (ratios.empty()) {
    return nullptr;
  }
  std::sort(ratios.begin(), ratios.end());
  return Json{{"min", ratios.front()},
              {"p5", Quantile(ratios, 0.05)},
              {"median", Quantile(ratios, 0.5)},
              {"p95", Quantile(ratios, 0.95)},
              {"max", ratios.back()}};
}

// Share of layers whose error over the whole sequence is at most the declared one.
double BoundShare(const CodecEvaluation& evaluation) {
  const std::vector<double>& truth = evaluation.attention_error.per_layer;
  size_t held = 0;
  for (size_t layer = 0; layer < truth.size(); ++layer) {
    held += truth[layer] <= evaluation.declared_error.per_layer[layer] ? 1 : 0;
  }
  return static_cast<double>(held) / static_cast<double>(truth.size());
}

}  // namespace

Json ToJson(const CodecEvaluation& evaluation) {
  const auto errors = [](const LayerErrors& e) {
    return Json{{"mean", e.Mean()}, {"max", e.Max()}, {"per_layer", e.per_layer}};
  };
  Json declared = errors(evaluation.declared_error);
  // As text: readers of JSON lose digits of so large a number.
  declared["profile"] = nullptr;
  if (evaluation.profile != 0) {
    declared["profile"] = kernels::ProfileIdText(evaluation.profile);
  }
  declared["bound_share"] = BoundShare(evaluation);
  return Json{{"codec", evaluation.codec},
              {"bits_per_element", evaluation.bits_per_element},
              {"k_error", evaluation.k_error},
              {"v_error", evaluation.v_error},
              {"attention_error", errors(evaluation.attention_error)},
              {"declared_error", declared},
              {"block_error",
               {{"true_mean", evaluation.block_true_mean},
                {"declared_mean", evaluation.block_declared_mean},
                {"within_25_percent", evaluation.within_25_percent},
                {"ratio", RatioJson(evaluation.block_ratios)}}}};
}

}  // namespace tokura::cli
