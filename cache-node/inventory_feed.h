#pragma once

// What one coordinator is told of the store's content, batch by batch.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache-node/block_store.h"
#include "cache-node/node.h"
#include "common/ids.h"
#include "common/time.h"
#include "proto/cluster.pb.h"

namespace tokura::node {

// Turns the store's change log into InventoryBatches (WIRE.md): first a snapshot, then the changes
// since its cut; a snapshot again when it is asked for, or when the log no longer reaches back to
// where the coordinator is. One batch is outstanding at a time, so that what waits is bounded by
// the store's log. Deterministic; owned by one thread.
class InventoryFeed {
 public:
  // Most of a batch, by default no more than a coordinator takes. Each holds at least one key with
  // kInventoryFormsMax forms.
  struct Limits {
    size_t keys = 1024;  // described at once: what a batch takes of the I/O thread
    size_t forms = 8192;
    size_t bytes = size_t{512} << 10;
  };

  // `store` outlives this.
  InventoryFeed(const BlockStore& store, std::string node, PlantedBugs bugs, Limits limits);

  // The next batch, of the node's life `incarnation`. Nothing: the coordinator knows everything, or
  // a batch is outstanding.
  std::optional<proto::InventoryBatch> Next(uint64_t incarnation, TimePoint now);
  // The outstanding batch has arrived.
  void Delivered();
  // Whether the outstanding batch has arrived is not known. A snapshot begins anew; changes are
  // told again.
  void Lost();
  // Begin a snapshot: the coordinator asks for one, or knows nothing of this life of the node.
  void Restart();

  bool outstanding() const { return outstanding_.has_value(); }
  bool in_snapshot() const { return snapshot_.has_value(); }
  // Changes that the coordinator has not been told of; all that there were before a snapshot.
  uint64_t lag() const { return store_.change_position() - position_; }
  uint64_t snapshots_started() const { return snapshots_; }

 private:
  struct Snapshot {
    uint64_t cut = 0;            // position of the log at its beginning
    uint64_t cursor = 0;         // of the walk over the store
    std::vector<BlockKey> keys;  // met by the walk, not told yet
    bool walked = false;
    uint32_t chunk = 0;
  };

  std::optional<proto::InventoryBatch> NextChanges(uint64_t incarnation, TimePoint now);
  proto::InventoryBatch NextChunk(uint64_t incarnation, TimePoint now);
  proto::InventoryBatch Header(uint64_t incarnation) const;

  const BlockStore& store_;
  const std::string node_;
  const PlantedBugs bugs_;
  const Limits limits_;
  uint64_t position_ = 0;             // of the log: what was delivered
  std::optional<Snapshot> snapshot_;  // under way
  bool snapshot_due_ = true;
  uint64_t snapshots_ = 0;  // begun
  // What is outstanding: the position of the log that is delivered with it.
  std::optional<uint64_t> outstanding_;
};

}  // namespace tokura::node
