#pragma once

// A simulated cluster that a test leads step by step, with every answer checked as in random runs.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/memory_audit.h"

namespace tokura::sim {

// Thread-compatible; called between events of the scheduler. Everything has met when the
// constructor returns.
class Scenario {
 public:
  explicit Scenario(const ClusterOptions& options);

  Cluster& cluster() { return cluster_; }
  const KvUniverse& universe() const { return universe_; }
  void RunFor(Duration duration);
  // Run until `condition` holds, `limit` at most; whether it does.
  bool RunUntil(const std::function<bool()>& condition, Duration limit);

  // Put blocks [first_block, first_block + blocks) of a chain. `codec`: unset, what the policy
  // says; `expected` is what the blocks must come back as.
  struct Writing {
    uint32_t chain = 0;
    Variant variant = 1;
    uint32_t first_block = 0;
    uint32_t blocks = kChainBlocks;
    std::optional<std::string> codec = std::nullopt;
    std::string expected = "raw";
  };
  PutResult Put(size_t client, const Writing& writing);
  enum class Touch : uint8_t { kNo, kYes };
  Match Lookup(size_t client, uint32_t chain, Touch touch = Touch::kNo);
  // Nothing pinned: an empty match.
  Match Acquire(size_t client, uint32_t chain, const Match& match);
  void Remove(size_t client, uint32_t chain, uint32_t block);

  // A get that was begun. The checker sees its answer unless its process has died.
  struct Reading {
    uint32_t chain = 0;
    uint32_t first_shard = 0;
    uint32_t shards = kShards;
    bool held = false;  // under a lease that nothing may end
  };
  using GetRef = std::shared_ptr<std::optional<GetResult>>;  // shared with the callback
  GetRef StartGet(size_t client, const Match& match, const Reading& reading);
  // Begin it and wait for its answer.
  GetResult Get(size_t client, const Match& match, const Reading& reading);

  // Over all nodes.
  uint64_t leases();
  uint64_t pinned_forms();
  uint64_t orphaned_blocks();
  uint64_t blocks();
  uint64_t used_bytes();
  // Blocks of a chain that lie in some node's memory, by position.
  std::set<uint32_t> Held(uint32_t chain);

  // Take everything down. What was wrong, here or before.
  std::vector<std::string> End();

 private:
  uint64_t Sum(uint64_t node::Node::Accounting::*what);

  KvUniverse universe_;
  Cluster cluster_;
  Checker checker_;
  MemoryAudit audit_;
};

}  // namespace tokura::sim
