#include "tests/integration/sharded_chain.h"

#include <cstring>

namespace tokura::integration {

bool SameShard(KvMemory& a, KvMemory& b, uint32_t shard) {
  const SequenceView view_a = a.ShardView(shard);
  const SequenceView view_b = b.ShardView(shard);
  const auto& layers_a = view_a.groups[0].layers;
  const auto& layers_b = view_b.groups[0].layers;
  // Of one head, two of which a block has in each layer and side.
  const size_t bytes = kShardedBlocks * a.block_bytes() / (2 * 2 * layers_a.size());
  for (size_t i = 0; i < layers_a.size(); ++i) {
    if (std::memcmp(layers_a[i].k, layers_b[i].k, bytes) != 0 ||
        std::memcmp(layers_a[i].v, layers_b[i].v, bytes) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace tokura::integration
