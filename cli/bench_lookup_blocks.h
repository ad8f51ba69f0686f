#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "proto/cluster.pb.h"

namespace tokura::cli {

// Made-up blocks for `tokura bench lookup`, numbered from 0: every kMadeChainBlocks of them are a
// chain. A coordinator looks for the keys that it is asked for, in their order, and not for where a
// chain begins: any range of numbers can be looked up.
inline constexpr uint64_t kMadeChainBlocks = 1024;
inline constexpr char kMadeCodec[] = "kivi4";
inline constexpr uint64_t kMadeStoredBytes = 147'456;  // of each block

BlockKey MadeKey(uint64_t block);
std::vector<BlockKey> MadeKeys(uint64_t first, uint64_t count);

// What a client asks to find `keys`, as the client library does: in any form, touching the chain.
proto::LocateRequest MakeLocateRequest(std::span<const BlockKey> keys);

// DATA_LOSS, and what is wrong, when `reply` does not find exactly the first `blocks` blocks that
// were asked for, all of them at `holder`, in runs without a gap and with the sizes that they have.
absl::Status CheckLocated(const proto::LocateReply& reply, uint32_t blocks,
                          const proto::NodeRef& holder);

// Writes the inventory of one made-up node. Thread-compatible.
class MadeInventory {
 public:
  explicit MadeInventory(proto::NodeRef node) : node_(std::move(node)) {}
  const proto::NodeRef& node() const { return node_; }

  // Keys in a batch, as cache nodes send them.
  static constexpr uint64_t kBatchBlocks = 1024;

  // A full inventory that has blocks [first, first + count), in as many chunks as it takes; one
  // when there are none.
  std::vector<proto::InventoryBatch> Snapshot(uint64_t first, uint64_t count);
  // Changes: the node holds blocks [first, first + count) now, count ≤ kBatchBlocks; or not any
  // more.
  proto::InventoryBatch Added(uint64_t first, uint64_t count);
  proto::InventoryBatch Removed(uint64_t block);

 private:
  proto::InventoryBatch Delta(uint64_t changes);

  const proto::NodeRef node_;
  uint64_t snapshots_ = 0;
  uint64_t log_ = 0;  // changes so far
};

}  // namespace tokura::cli
