#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/bench_lookup_node.h"
#include "cli/polled_session.h"
#include "cli/server_process.h"
#include "common/net/transport.h"
#include "common/net/ucx_transport.h"
#include "common/time.h"

namespace tokura::cli {

// What the rows of `tokura bench lookup` are measured on: a coordinator process, a made-up node
// whose blocks it indexes, and a client. Owned by the thread that made it, which drives node and
// client.
class LookupBed {
 public:
  static absl::StatusOr<std::unique_ptr<LookupBed>> Start();

  // Let the node hold blocks [0, blocks) at least. DATA_LOSS: what was added is not found, or a
  // hole is.
  absl::Status Grow(uint64_t blocks);
  uint64_t blocks() const { return blocks_; }

  // Blocks [first, first + count).
  struct Range {
    uint64_t first = 0;
    uint32_t count = 0;
  };
  // The n-th of many ranges of `count` blocks that are spread over all of the node's.
  Range NthRange(uint64_t n, uint32_t count) const;
  // Look up blocks that the node holds: from their keys to the answer, read. Any other answer than
  // all of them is DATA_LOSS.
  absl::StatusOr<Duration> TimeLookup(const Range& range);

  // What the coordinator counted of its lookups since it started.
  struct ServerTime {
    double seconds = 0;
    double requests = 0;
  };
  absl::StatusOr<ServerTime> server_time() const;
  // The most CPU time that the coordinator has spent at a stretch on anything but answering, since
  // it started: how long a lookup can wait for the index itself.
  absl::StatusOr<Duration> longest_turn() const;
  // What the index takes by its own account, and the process by the system's.
  struct Memory {
    double index_bytes = 0;
    double resident_bytes = 0;
  };
  absl::StatusOr<Memory> memory();
  // Of the process before it knew any block.
  const Memory& memory_at_start() const { return memory_at_start_; }

  net::UcxTransport& transport() { return *transport_; }
  const net::Address& coordinator() const { return address_; }
  pid_t coordinator_pid() const { return process_->pid(); }
  const proto::NodeRef& holder() const { return node_->ref(); }
  // Another session with the coordinator.
  absl::StatusOr<std::unique_ptr<PolledSession>> Connect();

 private:
  LookupBed() = default;
  absl::Status Launch();
  absl::Status WaitUntilMember();
  absl::Status CheckFound(const Range& range, uint32_t blocks);
  absl::Status CheckHole();

  std::unique_ptr<ServerProcess> process_;
  net::Address address_;
  std::unique_ptr<net::UcxContext> context_;
  std::unique_ptr<net::UcxTransport> transport_;
  std::unique_ptr<MadeNode> node_;
  std::unique_ptr<PolledSession> client_;
  uint64_t blocks_ = 0;
  Memory memory_at_start_;
};

}  // namespace tokura::cli
