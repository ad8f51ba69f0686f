#include "client-lib/src/sequence_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("view: ", parts...));
}

absl::Status CheckGroup(const Namespace& ns, const SequenceView& view, size_t g, ViewUse use) {
  const kernels::KvView& group = view.groups[g];
  const kernels::PartShape shape = ns.Shape(g);
  TOKURA_RETURN_IF_ERROR(kernels::ValidateView(group));
  if (group.space != kernels::MemorySpace::kHost) {
    return Invalid("group ", g, " is not in host memory");
  }
  if (group.layers.size() != shape.layers) {
    return Invalid("group ", g, " has ", group.layers.size(), " layers, the namespace ",
                   shape.layers);
  }
  if (group.heads != shape.heads * view.shards) {
    return Invalid("group ", g, " has ", group.heads, " heads, ", view.shards, " shards have ",
                   shape.heads * view.shards);
  }
  if (group.k_head_dim != shape.k_head_dim || group.v_head_dim != shape.v_head_dim) {
    return Invalid("group ", g, " has another head size than the namespace");
  }
  if (use == ViewUse::kRead && group.dtype != shape.dtype) {
    return Invalid("group ", g, " is ", DTypeName(group.dtype), ", the namespace ",
                   DTypeName(shape.dtype));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSequenceView(const Namespace& ns, const SequenceView& view,
                               const BlockRange& range, ViewUse use) {
  const NamespaceSpec& spec = ns.spec();
  if (view.groups.size() != spec.groups.size()) {
    return Invalid("has ", view.groups.size(), " groups, the namespace ", spec.groups.size());
  }
  if (view.shards == 0 || view.first_shard >= spec.head_shards ||
      view.shards > spec.head_shards - view.first_shard) {
    return Invalid("shards [", view.first_shard, ", +", view.shards, ") of ", spec.head_shards);
  }
  if (view.first_token % spec.block_tokens != 0) {
    return Invalid("first_token ", view.first_token, " is not a multiple of ", spec.block_tokens);
  }
  if (ViewGroups(view) == 0) {
    return Invalid("no group has memory");
  }
  for (size_t g = 0; g < view.groups.size(); ++g) {
    if (!view.groups[g].layers.empty()) {
      TOKURA_RETURN_IF_ERROR(CheckGroup(ns, view, g, use));
    }
  }
  if (range.first * spec.block_tokens < view.first_token ||
      BlocksCovered(ns, view, range.first) < range.count) {
    return Invalid("does not cover blocks [", range.first, ", +", range.count, ")");
  }
  return absl::OkStatus();
}

PutRange RangeOfPut(const Namespace& ns, uint64_t chain_blocks, const SequenceView& view,
                    const PutOptions& options) {
  const uint64_t in_chain = chain_blocks - std::min<uint64_t>(chain_blocks, options.first_block);
  uint64_t count = options.blocks;
  if (count == 0) {
    count = std::min(in_chain, BlocksCovered(ns, view, options.first_block));
  }
  PutRange put{{options.first_block, std::min(count, in_chain)}, absl::OkStatus()};
  if (count > in_chain) {
    put.status = absl::InvalidArgumentError(absl::StrCat("blocks [", options.first_block, ", +",
                                                         count, ") of a chain of ", chain_blocks));
  }
  return put;
}

uint32_t ViewGroups(const SequenceView& view) {
  uint32_t mask = 0;
  for (size_t g = 0; g < view.groups.size(); ++g) {
    mask |= view.groups[g].layers.empty() ? 0 : 1u << g;
  }
  return mask;
}

uint64_t BlocksCovered(const Namespace& ns, const SequenceView& view, uint64_t first) {
  const uint64_t block_tokens = ns.spec().block_tokens;
  uint64_t covered = 0;
  bool any = false;
  for (const kernels::KvView& group : view.groups) {
    if (group.layers.empty()) {
      continue;
    }
    const uint64_t end = (view.first_token + group.tokens) / block_tokens;
    const uint64_t here = end > first ? end - first : 0;
    covered = any ? std::min(covered, here) : here;
    any = true;
  }
  return covered;
}

std::vector<PartId> PartsOf(const SequenceView& view, uint32_t group_mask) {
  std::vector<PartId> parts;
  for (size_t g = 0; g < view.groups.size(); ++g) {
    if ((group_mask & (1u << g)) == 0) {
      continue;
    }
    for (uint32_t s = 0; s < view.shards; ++s) {
      parts.push_back({static_cast<uint8_t>(g), static_cast<uint8_t>(view.first_shard + s)});
    }
  }
  return parts;
}

uint32_t FirstHead(const Namespace& ns, const SequenceView& view, PartId part) {
  return (part.shard - view.first_shard) * ns.Shape(part.group).heads;
}

uint32_t FirstToken(const Namespace& ns, const SequenceView& view, uint64_t block) {
  return static_cast<uint32_t>(block * ns.spec().block_tokens - view.first_token);
}

uint64_t RawBytes(const kernels::PartShape& shape) {
  return uint64_t{shape.layers} * shape.heads * shape.tokens *
         (uint64_t{shape.k_head_dim} + shape.v_head_dim) * DTypeBytes(shape.dtype);
}

}  // namespace tokura
