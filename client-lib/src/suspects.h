#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>

#include "client-lib/src/client_metrics.h"
#include "client-lib/src/node_link.h"
#include "common/ids.h"
#include "common/time.h"

namespace tokura {

// Blocks whose bytes did not match their checksums when a node sent them. Memory of the node that
// has lost a bit would make every later get fail, and every put find the block held; so the node is
// told, once per block at a time. Whether it is damaged, and not the way here, the node finds out
// itself. Nobody waits for the answer. Owned by the core's executor; every link that it sends on
// stops before it is destroyed.
class Suspects {
 public:
  static constexpr size_t kUnderWayMax = 64;

  explicit Suspects(ClientMetrics& metrics) : metrics_(metrics) {}
  Suspects(const Suspects&) = delete;
  Suspects& operator=(const Suspects&) = delete;

  // Have the node of `link` check the block, by `deadline`. Nothing is sent on a link that is not
  // usable, nor while kUnderWayMax blocks are under way: the next get asks again.
  void Report(NodeLink& link, const Fingerprint& fingerprint, const BlockKey& key,
              TimePoint deadline);

 private:
  class CheckCall;
  using Suspect = std::tuple<std::string, uint64_t, Fingerprint, BlockKey>;  // node, incarnation, …

  ClientMetrics& metrics_;
  std::set<Suspect> under_way_;
};

}  // namespace tokura
