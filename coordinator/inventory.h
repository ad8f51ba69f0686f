#pragma once

// Turns the nodes' inventory streams into what the index believes: sequence numbers, gaps,
// snapshots.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "coordinator/prefix_index.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// Keys, held and removed, that a batch may have, so that none keeps a lookup waiting for long.
inline constexpr size_t kInventoryKeysMax = 4096;
// Forms that a batch may have.
inline constexpr size_t kInventoryFormsMax = 8192;

// One life of one node, as this coordinator knows it.
struct NodeLife {
  std::string node;
  uint64_t incarnation = 0;
  NodeSlot slot = 0;
  bool complete = false;        // there was a snapshot, and no gap since
  bool wants_snapshot = false;  // nothing is under way that would make it complete
  uint64_t last_seq = 0;        // position in its log up to which changes are known
};

struct InventoryStats {
  uint64_t lives = 0;       // admitted and not forgotten
  uint64_t incomplete = 0;  // of them
  // Since creation.
  uint64_t records = 0;  // keys applied, removals included
  // Each batch counts as one of these four.
  uint64_t batches = 0;          // applied
  uint64_t gaps = 0;             // left out: something before it is missing
  uint64_t stale_batches = 0;    // left out: known already, or of no use before a snapshot
  uint64_t refused_batches = 0;  // malformed
  uint64_t snapshots_started = 0;
  uint64_t snapshots_finished = 0;
  uint64_t snapshots_restarted = 0;  // begun again, or given up after a lost chunk or a gap
  uint64_t refused_classes = 0;      // beyond PrefixIndex::kClassesMax: their forms are left out
};

// Owned by one thread. Batches of one life must come in the order in which one connection carried
// them: after a node has come back on a new connection, drop those of the old one.
class Inventory {
 public:
  static constexpr size_t kLivesMax = 4096;

  // `index` is borrowed and outlives this. Nobody else adds sources to it.
  explicit Inventory(PrefixIndex& index, PlantedBugs bugs = {});
  ~Inventory();
  Inventory(const Inventory&) = delete;
  Inventory& operator=(const Inventory&) = delete;

  // A node has registered under this incarnation; any other life of it is forgotten. Admitting a
  // life again changes nothing. The slot names this life in the index's answers and events until
  // Forget or a higher incarnation ends it; it is not given out again before its blocks are swept.
  // FAILED_PRECONDITION: a higher incarnation is admitted. RESOURCE_EXHAUSTED: kLivesMax, those
  // being swept included: try again later.
  absl::StatusOr<NodeSlot> Admit(std::string_view node, uint64_t incarnation);
  // A node is gone: its blocks are not found any more.
  void Forget(std::string_view node);

  // The life that is admitted; null when none is. Until the next call that is not const.
  const NodeLife* Find(std::string_view node) const;
  const NodeLife* Find(NodeSlot slot) const;
  // Blocks that the index knows of an admitted life; 0 when there is no such slot.
  uint64_t Blocks(NodeSlot slot) const;
  // All admitted lives, by name.
  std::vector<const NodeLife*> Lives() const;
  // One more than the largest slot in use: the size of LocateQuery::nodes.
  size_t slots() const;

  // Take a batch. Nothing of a refused one is applied.
  // INVALID_ARGUMENT: malformed; the message names the column. FAILED_PRECONDITION: not the
  // admitted life of that node. RESOURCE_EXHAUSTED: too many inventories are still being swept for
  // a snapshot to begin; let the node begin it again later.
  absl::StatusOr<proto::InventoryReply> Apply(const proto::InventoryBatch& batch);

  InventoryStats stats() const;

 private:
  struct Stream {
    NodeLife life;
    SourceId live = 0;      // of the last finished snapshot and the deltas since; 0: there was none
    SourceId filling = 0;   // of the snapshot under way; 0: there is none
    uint64_t snapshot = 0;  // its number
    uint32_t next_chunk = 0;
    uint64_t begun_at = 0;     // the position of the log at which it began, and
    uint64_t filling_seq = 0;  // the one that it has reached
  };
  // A batch as the index takes it, and its memory.
  struct Updates {
    std::vector<std::optional<ClassId>> classes;
    std::vector<IndexedForm> forms;
    std::vector<IndexUpdate> updates;
  };
  enum class Place { kFollows, kKnown, kGap };

  absl::StatusOr<NodeSlot> TakeSlot();
  void End(Stream& stream);
  absl::StatusOr<Stream*> StreamOf(const proto::InventoryBatch& batch);
  Place PlaceOf(const proto::InventoryBatch& batch, uint64_t seq) const;
  void ReadUpdates(const proto::InventoryBatch& batch);
  void ApplyDelta(Stream& stream, const proto::InventoryBatch& batch);
  absl::Status ApplyChunk(Stream& stream, const proto::InventoryBatch& batch);
  absl::Status BeginSnapshot(Stream& stream, const proto::InventoryBatch& batch);
  void FinishSnapshot(Stream& stream);
  void DropFilling(Stream& stream);

  PrefixIndex& index_;
  const PlantedBugs bugs_;
  std::map<std::string, Stream, std::less<>> streams_;
  std::vector<Stream*> by_slot_;    // null: free, or retiring
  std::vector<NodeSlot> retiring_;  // of ended lives: free once they are swept
  Updates scratch_;
  InventoryStats stats_;
};

}  // namespace tokura::coordinator
