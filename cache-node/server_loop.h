#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "cache-node/server_connection.h"
#include "cache-node/server_context.h"
#include "cache-node/server_transfers.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/net/transport.h"

namespace tokura::node {

// One I/O thread of the node: its connections, its share of the transfer limit, its tick. Owned by
// the transport's thread unless a declaration says otherwise. Shared by the node, its connections
// and tasks posted to it.
class ServerLoop : public std::enable_shared_from_this<ServerLoop> {
 public:
  struct Options {
    size_t index = 0;
    uint64_t transfer_bytes_max = 0;
    Duration tick{};
  };
  // `on_tick` runs at the end of every tick; may be empty. Any thread.
  ServerLoop(std::shared_ptr<ServerContext> context, net::Transport& transport, Options options,
             std::function<void(TimePoint)> on_tick);

  // Tick from now on. Any thread.
  void Start();
  // A connection that the listener accepted. Null: refused, far above connections_max.
  net::ConnectionHandler* Accept(std::unique_ptr<net::Connection> connection);

  // Each of these posts to the loop. Any thread.
  void AbortConnections(std::vector<uint64_t> ids);
  void ExpireLease(const LeaseToken& lease, std::vector<uint64_t> connections);
  // Close the connections of incarnations below this one.
  void EndLivesBelow(uint64_t incarnation);
  // GOODBYE on every connection, close each when idle, all of them at `deadline`. `done` runs on
  // this loop when no connection is left.
  void Drain(TimePoint deadline, Task done);

  // Drop every connection as it stands, for a node that is destroyed without a drain (its threads
  // have stopped).
  void Abandon();

  // The time of the last tick. Any thread.
  TimePoint last_tick() const { return TimePoint(Duration(last_tick_.load())); }

  ServerContext& context() { return *context_; }
  Executor& executor() { return transport_.executor(); }
  TransferGate& gate() { return gate_; }
  // For ServerConnection: it has closed, or is being destroyed.
  void Forget(uint64_t id);
  void Destroyed();

 private:
  void Tick();
  void FinishDrainIfIdle();
  // What a connection's handlers do may remove it from the map: visit by id.
  void ForEach(const std::function<void(ServerConnection&)>& visit);

  const std::shared_ptr<ServerContext> context_;  // owners: see ServerContext
  net::Transport& transport_;
  const Options options_;
  const std::function<void(TimePoint)> on_tick_;
  TransferGate gate_;
  std::map<uint64_t, std::shared_ptr<ServerConnection>> connections_;  // owners: see the class
  size_t alive_ = 0;  // connections not destroyed yet, closed ones with work under way included
  Task drained_;
  TimerId drain_timer_ = 0;
  std::atomic<int64_t> last_tick_{0};
};

}  // namespace tokura::node
