#pragma once

// A chain in two head shards that a scheduler acquires and two workers load: what the test and
// cluster_child agree on.

#include <cstdint>

#include "tests/integration/kv_memory.h"

namespace tokura::integration {

inline constexpr uint64_t kShardedChain = 77;  // its seed; of its data, too
inline constexpr uint32_t kShardedBlocks = 32;

// Whether one head shard of both memories of the chain is the same.
bool SameShard(KvMemory& a, KvMemory& b, uint32_t shard);

}  // namespace tokura::integration
