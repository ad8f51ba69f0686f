#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/executor.h"
#include "common/net/transport.h"
#include "coordinator/server_connection.h"
#include "coordinator/server_context.h"
#include "coordinator/server_maintenance.h"

namespace tokura::coordinator {

// The coordinator's connections and its tick. Owned by the transport's thread. Shared by the
// coordinator, its connections and tasks posted to the executor.
class ServerLoop : public std::enable_shared_from_this<ServerLoop> {
 public:
  ServerLoop(std::shared_ptr<ServerContext> context, net::Transport& transport);
  ~ServerLoop();

  // Tick from now on.
  void Start();
  // A connection that the listener accepted. Null: refused, far above connections_max.
  net::ConnectionHandler* Accept(std::unique_ptr<net::Connection> connection);
  // GOODBYE on every connection, close each, abort at `deadline` what is left. `done` runs in a
  // task of its own when no connection is left.
  void Drain(TimePoint deadline, Task done);
  // Drop every connection as it stands, for a coordinator that is destroyed without a drain (its
  // thread has stopped).
  void Abandon();

  // Null: it has closed.
  std::shared_ptr<ServerConnection> Find(uint64_t id) const;
  // The index may have work.
  void WakeMaintenance() { maintenance_->Wake(); }
  // A batch of inventory waits at this connection: it gets a turn of its own, so that a lookup
  // waits for one batch at most, however many nodes send theirs.
  void QueueInventory(uint64_t connection);
  ServerContext& context() { return *context_; }
  Executor& executor() { return transport_.executor(); }
  // For ServerConnection: it has closed, or is being destroyed.
  void Forget(uint64_t id) { connections_.erase(id); }
  void Destroyed();

 private:
  void Tick();
  void PostInventory();
  void TakeInventory();
  void FinishDrainIfIdle();
  // What a connection's handlers do may remove it from the map: visit a copy.
  void ForEach(const std::function<void(ServerConnection&)>& visit);

  const std::shared_ptr<ServerContext> context_;  // owners: see ServerContext
  net::Transport& transport_;
  const std::shared_ptr<ServerMaintenance> maintenance_;  // owners: this and its posted slices
  std::map<uint64_t, std::shared_ptr<ServerConnection>> connections_;  // owners: see the class
  std::deque<uint64_t>
      inventory_;  // connections with a batch, one each; not empty: a task is posted
  uint64_t last_id_ = 0;
  size_t alive_ = 0;  // connections not destroyed yet
  Task drained_;
  TimerId drain_timer_ = 0;
};

}  // namespace tokura::coordinator
