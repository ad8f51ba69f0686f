#pragma once

// Every KV value that a simulated cluster may ever hold: contents are functions of (variant, chain,
// block), so that a checker knows all bytes that a get may return.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/kv_view.h"
#include "proto/block_key.h"
#include "tests/sim/scheduler.h"
#include "tokura/types.h"

namespace tokura::sim {

inline constexpr uint32_t kBlockTokens = 4;
inline constexpr uint32_t kLayers = 2;
inline constexpr uint32_t kHeads = 2;
inline constexpr uint32_t kShards = 2;  // one head each
inline constexpr uint32_t kHeadDim = 8;
inline constexpr uint32_t kChains = 6;
inline constexpr uint32_t kFirstSlidingChain = 4;  // from here on: of the namespace with a window
inline constexpr uint32_t kWindowBlocks = 2;       // of its sliding group
inline constexpr uint32_t kChainBlocks = 6;
inline constexpr uint32_t kChainTokens = kChainBlocks * kBlockTokens;

inline bool IsSliding(uint32_t chain) {
  return chain >= kFirstSlidingChain;
}

// One head of one layer of one block, K or V: [tokens, channels] of float16 bits.
using HeadBytes = std::array<uint16_t, kBlockTokens * kHeadDim>;
// [layer][k, v][head].
using LayerValues = std::array<std::array<HeadBytes, kHeads>, 2>;
using BlockValues = std::array<LayerValues, kLayers>;

// An engine's memory of one whole chain, with guard zones around it. Filled, read and compared by
// block; the cluster sees it through views.
class KvBuffer {
 public:
  KvBuffer();
  KvBuffer(const KvBuffer&) = delete;
  KvBuffer& operator=(const KvBuffer&) = delete;

  // What a worker that has the head shards [first_shard, first_shard + shards) of `chain` sees
  // here. Groups that are not in `group_mask` have no memory.
  SequenceView View(uint32_t chain, uint32_t first_shard, uint32_t shards,
                    uint32_t group_mask = ~uint32_t{0});
  void Store(uint32_t block, const BlockValues& values);
  BlockValues Load(uint32_t block) const;
  // Overwrite everything, guards included, with noise that no block's values equal.
  void Scramble(SimRandom& random) { random.Fill(std::as_writable_bytes(std::span(bytes_))); }
  std::vector<uint16_t> Copy() const { return bytes_; }
  uint32_t Crc() const;
  bool GuardsEqual(const std::vector<uint16_t>& before) const;
  // Load from a Copy.
  static BlockValues LoadFrom(const std::vector<uint16_t>& bytes, uint32_t block);

 private:
  static size_t At(uint32_t layer, uint32_t side, uint32_t head, uint32_t token);
  std::vector<uint16_t> bytes_;
};

using Variant = uint32_t;

// Two namespaces: one with both layers in a full group, one with the first layer in a full and the
// second in a sliding group.
class KvUniverse {
 public:
  KvUniverse();
  const NamespaceRef& ns(uint32_t chain) const { return IsSliding(chain) ? sliding_ : full_; }
  const TokenChain& chain(uint32_t index) const { return chains_[index]; }
  // What a writer of `variant` has in its pages.
  static BlockValues Original(Variant variant, uint32_t chain, uint32_t block);
  // The same after coding with `codec`: what a reader gets. Computed once.
  const BlockValues& Decoded(Variant variant, uint32_t chain, uint32_t block,
                             const std::string& codec);

 private:
  using Key = std::tuple<Variant, uint32_t, uint32_t, std::string>;
  NamespaceRef full_;
  NamespaceRef sliding_;
  std::vector<TokenChain> chains_;
  std::map<Key, BlockValues> decoded_;
};

}  // namespace tokura::sim
