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
  for (const Run& run : runs) {
    if (block >= run.first && block - run.first < run.count && run.holder < holders.size()) {
      return &holders[run.holder];
    }
  }
  return nullptr;
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
