#include "cache-node/server_loop.h"

#include <algorithm>
#include <utility>

namespace tokura::node {
namespace {

// Connections beyond connections_max that are still accepted, to be told why they are refused.
constexpr size_t kRefusedPolitelyMax = 64;

int64_t Nanos(TimePoint time) {
  return time.time_since_epoch().count();
}

}  // namespace

ServerLoop::ServerLoop(std::shared_ptr<ServerContext> context, net::Transport& transport,
                       Options options, std::function<void(TimePoint)> on_tick)
    : context_(std::move(context)),
      transport_(transport),
      options_(options),
      on_tick_(std::move(on_tick)),
      gate_(options.transfer_bytes_max) {}

void ServerLoop::Start() {
  last_tick_.store(Nanos(executor().Now()));
  executor().Post([weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->Tick();
    }
  });
}

void ServerLoop::Tick() {
  const TimePoint now = executor().Now();
  ForEach([now](ServerConnection& connection) { connection.Tick(now); });
  context_->metrics.TransfersWaiting(options_.index, gate_.waiting());
  if (on_tick_) {
    on_tick_(now);
  }
  last_tick_.store(Nanos(now));
  executor().RunAt(now + options_.tick, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->Tick();
    }
  });
}

net::ConnectionHandler* ServerLoop::Accept(std::unique_ptr<net::Connection> connection) {
  if (context_->draining.load() ||
      connections_.size() >= context_->options.connections_max + kRefusedPolitelyMax) {
    context_->metrics.ConnectionEnded(ConnectionEnd::kLimit);
    return nullptr;
  }
  const uint64_t id = context_->next_connection_id.fetch_add(1);
  auto accepted = std::make_shared<ServerConnection>(shared_from_this(), id);
  ++alive_;
  connections_[id] = accepted;
  return accepted->Open(transport_, std::move(connection));
}

void ServerLoop::AbortConnections(std::vector<uint64_t> ids) {
  executor().Post([self = shared_from_this(), ids = std::move(ids)] {
    for (uint64_t id : ids) {
      if (auto it = self->connections_.find(id); it != self->connections_.end()) {
        const std::shared_ptr<ServerConnection> connection = it->second;
        connection->Abort(ConnectionEnd::kStuck, "a reservation is overdue");
      }
    }
  });
}

void ServerLoop::ExpireLease(const LeaseToken& lease, std::vector<uint64_t> connections) {
  executor().Post([self = shared_from_this(), lease, ids = std::move(connections)] {
    for (uint64_t id : ids) {
      if (auto it = self->connections_.find(id); it != self->connections_.end()) {
        const std::shared_ptr<ServerConnection> connection = it->second;
        connection->ExpireLease(lease, self->executor().Now());
      }
    }
  });
}

void ServerLoop::EndLivesBelow(uint64_t incarnation) {
  executor().Post([self = shared_from_this(), incarnation] {
    self->ForEach([incarnation](ServerConnection& connection) {
      if (connection.incarnation() < incarnation) {
        connection.EndLife();
      }
    });
  });
}

void ServerLoop::Drain(TimePoint deadline, Task done) {
  executor().Post([self = shared_from_this(), deadline, done = std::move(done)]() mutable {
    self->drained_ = std::move(done);
    self->drain_timer_ = self->executor().RunAt(deadline, [weak = std::weak_ptr(self)] {
      if (auto loop = weak.lock()) {
        loop->drain_timer_ = 0;
        loop->ForEach([](ServerConnection& connection) {
          connection.channel().Close(net::CloseMode::kAbort);
        });
      }
    });
    self->ForEach([](ServerConnection& connection) { connection.Drain(); });
    self->FinishDrainIfIdle();
  });
}

void ServerLoop::ForEach(const std::function<void(ServerConnection&)>& visit) {
  std::vector<std::shared_ptr<ServerConnection>> connections;
  connections.reserve(connections_.size());
  for (const auto& [id, connection] : connections_) {
    connections.push_back(connection);
  }
  for (const std::shared_ptr<ServerConnection>& connection : connections) {
    visit(*connection);
  }
}

void ServerLoop::Abandon() {
  const auto connections = std::exchange(connections_, {});
  for (const auto& [id, connection] : connections) {
    connection->Abandon();
  }
}

void ServerLoop::Forget(uint64_t id) {
  connections_.erase(id);
}

void ServerLoop::Destroyed() {
  --alive_;
  FinishDrainIfIdle();
}

void ServerLoop::FinishDrainIfIdle() {
  if (drained_ && alive_ == 0) {
    executor().CancelTimer(std::exchange(drain_timer_, 0));
    // Posted: the last connection is still inside its destructor.
    executor().Post(std::exchange(drained_, nullptr));
  }
}

}  // namespace tokura::node
