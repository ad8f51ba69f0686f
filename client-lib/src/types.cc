#include "tokura/types.h"

#include <algorithm>

namespace tokura {

kernels::PartShape Namespace::Shape(size_t group) const {
  const LayerGroup& layers = spec_.groups[group];
  kernels::PartShape shape;
  shape.dtype = spec_.dtype;
  shape.layers = static_cast<uint32_t>(layers.layers.size());
  shape.heads = layers.kv_heads / spec_.head_shards;
  shape.k_head_dim = layers.k_head_dim;
  shape.v_head_dim = layers.v_head_dim;
  shape.tokens = spec_.block_tokens;
  return shape;
}

const Match::Holder* Match::HolderOf(size_t block) const {
  const auto after = std::upper_bound(runs.begin(), runs.end(), block,
                                      [](size_t at, const Run& run) { return at < run.first; });
  if (after == runs.begin()) {
    return nullptr;
  }
  const Run& run = *(after - 1);
  return block - run.first < run.count && run.holder < holders.size() ? &holders[run.holder]
                                                                      : nullptr;
}

bool Match::held() const {
  return std::any_of(holders.begin(), holders.end(),
                     [](const Holder& holder) { return !holder.lease.empty(); });
}

size_t GetResult::prefix_ok() const {
  size_t count = 0;
  while (count < blocks.size() && blocks[count].ok()) {
    ++count;
  }
  return count;
}

size_t PutResult::stored() const {
  size_t count = 0;
  for (const absl::Status& status : blocks) {
    count += status.ok() ? 1 : 0;
  }
  return count;
}

}  // namespace tokura
