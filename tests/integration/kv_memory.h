#pragma once

// An engine's KV memory for tests: filled from a seed, with canary pages on both sides and
// inaccessible pages beyond, so that what is written or read out of turn is found.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/block_key.h"
#include "tokura/types.h"

namespace tokura::integration {

inline constexpr uint32_t kBlockTokens = 16;

// The namespace of all tests here: one full group of 4 layers with 2 KV heads of 64 channels.
NamespaceSpec TestSpace(const std::string& tenant = "integration");
// The same in two head shards, and so two parts a block.
NamespaceSpec ShardedSpace();

class KvMemory {
 public:
  explicit KvMemory(uint32_t blocks);
  ~KvMemory();
  KvMemory(const KvMemory&) = delete;
  KvMemory& operator=(const KvMemory&) = delete;

  SequenceView View();
  // Finite float16 values that differ by seed, block and place.
  void Fill(uint64_t seed);
  void Clear();
  // Over data and canaries.
  uint32_t Checksum() const;
  bool CanariesIntact() const;
  bool SameData(const KvMemory& other, uint32_t first_block, uint32_t blocks) const;
  // From now on every access is a crash.
  void Forbid();
  // From now on every write is a crash.
  void Freeze();
  // The keys of one token in the first head of a layer.
  std::span<const std::byte> KeyRow(size_t layer, uint32_t token) const;
  // The view of a worker that holds one of two head shards.
  SequenceView ShardView(uint32_t shard);
  size_t block_bytes() const;

 private:
  SequenceView ViewOf(uint32_t first_head, uint32_t heads) const;
  std::byte* layer(size_t index) const;

  const uint32_t blocks_;
  size_t data_bytes_ = 0;  // rounded up to pages
  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
};

// The chain of `blocks` blocks of the sequence named by `seed`.
TokenChain MakeChain(const Namespace& space, uint64_t seed, uint32_t blocks);

}  // namespace tokura::integration
