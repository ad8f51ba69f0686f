#pragma once

// Reads the arenas of simulated nodes as they lie in memory, without asking the nodes: every stored
// part must be what its writer sealed, nothing of a dead writer may be stored late, and no node may
// take for damaged what is sound. Also damages stored parts, as failing memory would.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "cache-node/arena.h"
#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"

namespace tokura::sim {

// Thread-compatible; between events of the scheduler.
class MemoryAudit {
 public:
  MemoryAudit(Cluster& cluster, Checker& checker) : cluster_(cluster), checker_(checker) {}

  // `writer` alone puts this content.
  void OnPut(const ContentId& content, const ClientProcess& writer) { writers_[content] = &writer; }
  // Look at the parts that were stored since the last check.
  void Check();
  // Look at every stored part again.
  void CheckAll();
  // The complete forms that a node holds, as they lie in its memory.
  struct HeldForm {
    BlockKey key;
    uint32_t group_mask = 0;
  };
  std::vector<HeldForm> Held(size_t index) const;
  // Flip one bit of a stored part of node `index`; the block's key. Nothing: it stores nothing.
  std::optional<BlockKey> FlipOne(size_t index);

  uint64_t parts_checked() const { return parts_checked_; }
  // Dead clients that a node was seen to have let go of.
  uint64_t writers_gone() const { return writers_gone_; }

 private:
  using StoredPart = std::tuple<ContentId, BlockKey, uint8_t, uint8_t>;  // …, group, shard
  struct View {
    std::set<StoredPart> stored;   // at the last check
    std::set<StoredPart> flipped;  // damaged by FlipOne
    uint64_t flips = 0;            // by FlipOne, in all
    // Since when a dead client has had no connection here.
    std::map<const ClientProcess*, TimePoint> gone;
    TimePoint checked;
  };
  static StoredPart IdOf(const node::ExtentHeader& header);
  static std::vector<node::Extent> StoredExtents(const NodeProcess& process);
  static std::span<std::byte> Payload(const NodeProcess& process, const node::Extent& extent);
  void CheckNode(const NodeProcess& process);
  void CheckPart(const NodeProcess& process, const node::Extent& extent);
  void CheckWriter(const NodeProcess& process, const View& view, const node::Extent& extent);
  void CheckRemovals(const NodeProcess& process, const View& view);
  void SeeWhoIsGone(const NodeProcess& process, View& view);

  Cluster& cluster_;
  Checker& checker_;
  std::map<const NodeProcess*, View> views_;  // only looked up, never walked
  std::map<ContentId, const ClientProcess*> writers_;
  uint64_t parts_checked_ = 0;
  uint64_t writers_gone_ = 0;
};

}  // namespace tokura::sim
