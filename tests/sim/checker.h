#pragma once

// Knows every byte ever put and says when an answer is wrong.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/kv_universe.h"
#include "tokura/types.h"

namespace tokura::sim {

class Checker {
 public:
  // One put of one block by one writer or, sharded, by several.
  struct Candidate {
    Variant variant = 0;
    uint32_t chain = 0;
    std::string codec;
    uint32_t group_mask = 0;
    uint32_t writers = 1;  // of a sharded block, so far
    bool cancelled = false;
    bool seen = false;  // some get returned it
  };
  // What a get asked for and what its memory held before.
  struct Reading {
    uint32_t chain = 0;
    uint32_t first_block = 0;
    uint32_t blocks = 0;
    uint32_t prefix_blocks = 0;  // of the whole match
    uint32_t first_layer = 0;    // of every group
    uint32_t layers = kLayers;
    uint32_t first_shard = 0;
    uint32_t shards = kShards;
    bool exact_only = false;
    bool flips = false;  // bits may have been flipped on the way
    bool held = false;   // under a lease that nothing disturbed
    bool calm = false;   // nothing goes on but this
    std::vector<uint16_t> before;
    bool Asks(uint32_t block, uint32_t layer, uint32_t head) const;
  };

  explicit Checker(KvUniverse& universe) : universe_(universe) {}

  // Blocks [first_block, first_block + blocks), each as `candidate` says.
  void OnPut(uint32_t first_block, uint32_t blocks, const Candidate& candidate);
  void OnPutResult(uint32_t chain, uint32_t first_block, Variant variant, const PutResult& result);
  // Memory that holds a part of this block is damaged from now on.
  void OnMemoryFlip(const BlockKey& key) { damaged_.insert(key); }
  // Whether a bit of what a node stores was ever flipped.
  bool memory_flipped() const { return !damaged_.empty(); }
  void OnGetResult(const Reading& reading, const KvBuffer& buffer, const GetResult& result);

  void Violation(std::string what);
  const std::vector<std::string>& violations() const { return violations_; }
  uint64_t blocks_verified() const { return blocks_verified_; }
  uint64_t blocks_missed() const { return blocks_missed_; }
  // Verified blocks that two writers had put together.
  uint64_t joint_blocks_verified() const { return joint_blocks_verified_; }
  // DATA_LOSS of a block in damaged memory while nothing flipped bits on the wire.
  uint64_t memory_flips_found() const { return memory_flips_found_; }

 private:
  void CheckBlock(const Reading& reading, uint32_t block, const std::string& codec,
                  const BlockValues& got);
  void CheckMiss(const Reading& reading, uint32_t block, const absl::Status& status);
  void CheckUntouched(const Reading& reading, const KvBuffer& buffer);

  KvUniverse& universe_;
  std::map<std::pair<BlockKey, uint32_t>, std::vector<Candidate>> candidates_;
  std::vector<std::string> violations_;
  uint64_t blocks_verified_ = 0;
  uint64_t blocks_missed_ = 0;
  uint64_t joint_blocks_verified_ = 0;
  uint64_t memory_flips_found_ = 0;
  std::set<BlockKey> damaged_;
};

}  // namespace tokura::sim
