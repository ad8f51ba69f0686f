#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client-lib/src/client_metrics.h"
#include "client-lib/src/node_link.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/time.h"

namespace tokura {

// Blocks whose bytes did not match their checksums when a node sent them. Memory of the node that
// has lost a bit would make every later get fail, and every put find the block held; so the node is
// told. Whether it is damaged, and not the way here, the node finds out itself. Nobody waits for
// the answer. A node checks one request's blocks after the other, so it gets one request at a time:
// what becomes suspect meanwhile is in the next one. Owned by the core's executor; every link that
// it sends on stops before it is destroyed.
class Suspects {
 public:
  static constexpr size_t kBlocksMax = 256;  // that are being checked or wait for it

  // `patience`: of a request. The others outlive this.
  Suspects(Executor& executor, ClientMetrics& metrics, Duration patience)
      : executor_(executor), metrics_(metrics), patience_(patience) {}
  Suspects(const Suspects&) = delete;
  Suspects& operator=(const Suspects&) = delete;

  // Have the node of `link` check the block; a block that it is to check already once. Not while
  // the link is not usable, nor beyond kBlocksMax: the next get that meets the damage asks again.
  void Report(NodeLink& link, const Fingerprint& fingerprint, const BlockKey& key);

 private:
  class CheckCall;
  using NodeLife = std::pair<std::string, uint64_t>;  // name, incarnation
  using Block = std::pair<Fingerprint, BlockKey>;
  struct Queue {
    std::set<Block> asked;  // by the request under way
    std::set<Block> waiting;
  };

  // Ask about what waits, as far as one request can. `queue` has nothing under way, and something
  // that waits.
  void Ask(NodeLink& link, const NodeLife& life, Queue& queue);
  void OnAnswer(NodeLink& link, const NodeLife& life, const absl::Status& status,
                std::span<const std::byte> body);

  Executor& executor_;
  ClientMetrics& metrics_;
  const Duration patience_;
  std::map<NodeLife, Queue> queues_;  // with a request under way
  size_t blocks_ = 0;                 // of all of them
};

}  // namespace tokura
