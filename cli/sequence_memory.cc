#include "cli/sequence_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::cli {

absl::StatusOr<NamespaceSpec> CaptureNamespace(const Capture& capture,
                                               const NamespaceChoice& choice) {
  NamespaceSpec spec;
  spec.tenant = choice.tenant;
  spec.model = choice.model.empty() ? capture.model : choice.model;
  spec.dtype = DType::kFloat16;
  spec.block_tokens = choice.block_tokens;
  // Ordered, so that full layers come first and the fingerprint depends on the capture alone.
  std::map<std::pair<CaptureLayer::Kind, uint32_t>, LayerGroup> groups;
  for (const CaptureLayer& layer : capture.layers) {
    LayerGroup& group = groups[{layer.kind, layer.window}];
    group.kind =
        layer.kind == CaptureLayer::Kind::kFull ? AttentionKind::kFull : AttentionKind::kSliding;
    group.window = layer.window;
    group.layers.push_back(layer.index);
    group.kv_heads = capture.kv_heads;
    group.k_head_dim = capture.head_dim;
    group.v_head_dim = capture.head_dim;
  }
  for (auto& [kind, group] : groups) {
    spec.groups.push_back(std::move(group));
  }
  TOKURA_RETURN_IF_ERROR(ValidateNamespace(spec));
  return spec;
}

TokenChain CaptureChain(const Capture& capture, const Fingerprint& fingerprint,
                        uint32_t block_tokens) {
  TokenChain chain(fingerprint, block_tokens);
  chain.Append(capture.token_ids);
  return chain;
}

SequenceMemory::SequenceMemory(const Capture& capture)
    : kv_heads_(capture.kv_heads), tokens_(capture.tokens), head_dim_(capture.head_dim) {
  for (const CaptureLayer& layer : capture.layers) {
    layer_indices_.push_back(layer.index);
  }
}

SequenceMemory SequenceMemory::CopyOf(const Capture& capture) {
  SequenceMemory memory(capture);
  memory.k_ = capture.k;
  memory.v_ = capture.v;
  return memory;
}

SequenceMemory SequenceMemory::Blank(const Capture& capture) {
  SequenceMemory memory(capture);
  memory.k_.assign(capture.k.size(), 0xffff);
  memory.v_.assign(capture.v.size(), 0xffff);
  return memory;
}

SequenceView SequenceMemory::View(const NamespaceSpec& spec) {
  SequenceView view;
  for (const LayerGroup& group : spec.groups) {
    std::vector<kernels::KvLayer> layers;
    for (const uint32_t index : group.layers) {
      const auto found = std::find(layer_indices_.begin(), layer_indices_.end(), index);
      TOKURA_CHECK(found != layer_indices_.end());
      const size_t offset =
          static_cast<size_t>(found - layer_indices_.begin()) * kv_heads_ * HeadElements();
      layers.push_back({reinterpret_cast<std::byte*>(k_.data() + offset),
                        reinterpret_cast<std::byte*>(v_.data() + offset)});
    }
    view.groups.push_back(
        kernels::ContiguousView(DType::kFloat16, kv_heads_, head_dim_, tokens_, std::move(layers)));
  }
  return view;
}

std::span<const uint16_t> SequenceMemory::K(size_t layer, size_t head) const {
  return k().subspan((layer * kv_heads_ + head) * HeadElements(), HeadElements());
}

std::span<const uint16_t> SequenceMemory::V(size_t layer, size_t head) const {
  return v().subspan((layer * kv_heads_ + head) * HeadElements(), HeadElements());
}

void SequenceMemory::CopyTokensFrom(const Capture& capture, uint32_t first) {
  TOKURA_CHECK(capture.k.size() == k_.size() && capture.tokens == tokens_);
  const size_t skipped = size_t{first} * head_dim_;
  for (size_t row = 0; row < layer_indices_.size() * kv_heads_ && first < tokens_; ++row) {
    const auto begin = static_cast<std::ptrdiff_t>(row * HeadElements() + skipped);
    const auto end = static_cast<std::ptrdiff_t>((row + 1) * HeadElements());
    std::copy(capture.k.begin() + begin, capture.k.begin() + end, k_.begin() + begin);
    std::copy(capture.v.begin() + begin, capture.v.begin() + end, v_.begin() + begin);
  }
}

}  // namespace tokura::cli
