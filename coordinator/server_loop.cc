#include "coordinator/server_loop.h"

#include <utility>

#include "common/cpu_time.h"

namespace tokura::coordinator {
namespace {

// Connections beyond connections_max that are still accepted, to be told why they are refused.
constexpr size_t kRefusedPolitelyMax = 64;
constexpr Duration kTick = std::chrono::milliseconds(100);

}  // namespace

ServerLoop::ServerLoop(std::shared_ptr<ServerContext> context, net::Transport& transport)
    : context_(std::move(context)),
      transport_(transport),
      maintenance_(std::make_shared<ServerMaintenance>(context_, transport.executor())) {}

ServerLoop::~ServerLoop() = default;

void ServerLoop::Start() {
  Tick();
}

void ServerLoop::Tick() {
  const TimePoint now = executor().Now();
  context_->last_tick.store(now.time_since_epoch().count());
  maintenance_->Tick();
  executor().RunAt(now + kTick, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->Tick();
    }
  });
}

void ServerLoop::QueueInventory(uint64_t connection) {
  inventory_.push_back(connection);
  if (inventory_.size() == 1) {
    PostInventory();
  }
}

void ServerLoop::PostInventory() {
  executor().Post([weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->TakeInventory();
    }
  });
}

void ServerLoop::TakeInventory() {
  if (const std::shared_ptr<ServerConnection> connection = Find(inventory_.front())) {
    const Duration before = ThreadCpuTime();
    connection->TakeInventoryTurn();
    context_->metrics.TurnEnded(Turn::kInventory, ThreadCpuTime() - before);
  }
  inventory_.pop_front();
  if (!inventory_.empty()) {
    PostInventory();
  }
}

net::ConnectionHandler* ServerLoop::Accept(std::unique_ptr<net::Connection> connection) {
  if (context_->draining.load() ||
      connections_.size() >= context_->options.connections_max + kRefusedPolitelyMax) {
    context_->metrics.ConnectionEnded(ConnectionEnd::kLimit);
    return nullptr;
  }
  const uint64_t id = ++last_id_;
  auto accepted = std::make_shared<ServerConnection>(shared_from_this(), id);
  ++alive_;
  connections_[id] = accepted;
  return accepted->Open(transport_, std::move(connection));
}

void ServerLoop::Drain(TimePoint deadline, Task done) {
  drained_ = std::move(done);
  drain_timer_ = executor().RunAt(deadline, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->drain_timer_ = 0;
      self->ForEach([](ServerConnection& connection) { connection.Abort(); });
    }
  });
  context_->watches->AnswerAll();
  ForEach([](ServerConnection& connection) { connection.Drain(); });
  FinishDrainIfIdle();
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
  connections_.clear();
}

std::shared_ptr<ServerConnection> ServerLoop::Find(uint64_t id) const {
  auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second;
}

void ServerLoop::Destroyed() {
  --alive_;
  FinishDrainIfIdle();
}

void ServerLoop::FinishDrainIfIdle() {
  if (drained_ && alive_ == 0) {
    executor().CancelTimer(std::exchange(drain_timer_, 0));
    // Posted: the last connection may still be inside its destructor.
    executor().Post(std::exchange(drained_, nullptr));
  }
}

}  // namespace tokura::coordinator
