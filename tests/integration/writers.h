#pragma once

// Two processes that write: what the test and client_child agree on.

#include <cstdint>

#include "tests/integration/kv_memory.h"
#include "tokura/client.h"

namespace tokura::integration {

// What client_child puts in its mode `put`.
inline constexpr uint64_t kOnceChain = 1;
inline constexpr uint32_t kOnceBlocks = 8;

// Two that write the same keys.
inline constexpr uint32_t kRivalChains = 4;
inline constexpr uint32_t kRivalBlocks = 8;

// Both write every key, each its own bits.
enum class Writer { kTest, kRival };

// Fill `memory` with what `writer` puts for a chain.
void FillAsWriter(Writer writer, uint64_t chain, KvMemory& memory);
// Put both head shards of a chain's blocks.
void PutAsWriter(Client& client, const NamespaceRef& space, Writer writer, uint64_t chain,
                 KvMemory& memory);
// Put one head shard of the blocks of chain `seed`, as one of two workers that share a sequence.
PutResult PutShard(Client& client, const NamespaceRef& space, uint32_t shard, uint64_t seed,
                   KvMemory& memory);

}  // namespace tokura::integration
