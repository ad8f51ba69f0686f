#include "tests/sim/transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/sim/connection.h"

namespace tokura::sim {
namespace {

using net::Address;
using net::CloseMode;
using net::Connection;
using net::ConnectionHandler;
using net::Done;
using net::RegisteredSpan;

constexpr uint16_t kFirstEphemeralPort = 20000;

// The Connection that the code above the transport holds.
class Facade final : public Connection {
 public:
  explicit Facade(std::shared_ptr<SimConnection> end) : end_(std::move(end)) {}
  ~Facade() override {
    // Before OnClosed only a connection that its acceptor refused may go.
    TOKURA_CHECK(end_->state() == SimConnection::State::kClosed || !watched_);
    end_->Abandon();
  }
  void Watch(ConnectionHandler* handler) {
    watched_ = true;
    end_->SetHandler(handler, this);
  }
  absl::Status SendMessage(std::span<const std::byte> header,
                           std::span<const std::byte> body) override {
    return end_->SendMessage(header, body);
  }
  void SendPayload(std::span<const std::byte> header, std::span<const RegisteredSpan> pieces,
                   Done done) override {
    end_->SendPayload(header, pieces, std::move(done));
  }
  void Close(CloseMode mode) override { end_->Close(mode); }
  std::string peer() const override { return end_->peer_name(); }

 private:
  std::shared_ptr<SimConnection> end_;  // shared with the network's events
  bool watched_ = false;
};

}  // namespace

// Registered with the network while it lives, unless its process dies first.
class SimListener final : public net::Listener {
 public:
  SimListener(SimNetwork& network, Address address, std::vector<SimTransport*> owners,
              net::Transport::AcceptHandler accept)
      : network_(network),
        address_(std::move(address)),
        owners_(std::move(owners)),
        accept_(std::move(accept)) {}
  ~SimListener() override;
  Address address() const override { return address_; }
  SimTransport& NextOwner() { return *owners_[next_++ % owners_.size()]; }
  SimHost& host() const { return owners_.front()->loop().host(); }
  net::Transport::AcceptHandler& accept() { return accept_; }

 private:
  SimNetwork& network_;
  const Address address_;
  const std::vector<SimTransport*> owners_;
  net::Transport::AcceptHandler accept_;
  size_t next_ = 0;
};

SimListener::~SimListener() {
  const auto it = network_.listeners_.find(address_);
  if (it != network_.listeners_.end() && it->second == this) {
    network_.listeners_.erase(it);
  }
}

SimNetwork::SimNetwork(SimScheduler& scheduler, Options options)
    : scheduler_(scheduler), options_(std::move(options)) {}

SimNetwork::~SimNetwork() {
  // Ends refer to each other; those that never closed are let go here.
  for (auto& [id, weak] : connections_) {
    if (const auto end = weak.lock()) {
      end->Forget();
    }
  }
}

LinkConditions& SimNetwork::link(const std::string& from, const std::string& to) {
  return links_.try_emplace({from, to}, options_.link).first->second;
}

void SimNetwork::Cut(const std::string& from, const std::string& to) {
  link(from, to).cut = true;
  scheduler_.Record("cut");
}

void SimNetwork::Mend(const std::string& from, const std::string& to) {
  link(from, to).cut = false;
  scheduler_.Record("mend");
  MendConnections();
}

std::vector<std::shared_ptr<SimConnection>> SimNetwork::Connections() {
  std::vector<std::shared_ptr<SimConnection>> ends;
  for (auto it = connections_.begin(); it != connections_.end();) {
    std::shared_ptr<SimConnection> end = it->second.lock();
    if (end == nullptr) {
      it = connections_.erase(it);
      continue;
    }
    ends.push_back(std::move(end));
    ++it;
  }
  return ends;
}

void SimNetwork::MendConnections() {
  for (const auto& end : Connections()) {
    if (end->peer_must_learn()) {
      end->NotifyPeer();
    }
    end->Pump();
  }
}

void SimNetwork::Reset(const std::string& one, const std::string& other) {
  scheduler_.Record("reset");
  for (const auto& end : Connections()) {
    const auto peer = end->peer();
    if (peer != nullptr && end->host().ip() == one && peer->host().ip() == other) {
      const Duration limit = std::chrono::milliseconds(5);
      end->PeerGone(scheduler_.random().Between(Duration{0}, limit));
      peer->PeerGone(scheduler_.random().Between(Duration{0}, limit));
    }
  }
}

void SimNetwork::Kill(SimHost& host, Death death) {
  scheduler_.Record("kill", static_cast<uint64_t>(death));
  dead_.insert(&host);
  for (auto it = listeners_.begin(); it != listeners_.end();) {
    it = &it->second->host() == &host ? listeners_.erase(it) : std::next(it);
  }
  for (const auto& end : Connections()) {
    if (&end->host() != &host) {
      continue;
    }
    if (death == Death::kMachine) {
      end->FallSilent();
    }
    end->BeginClose(absl::UnavailableError("this process is dead"),
                    absl::UnavailableError("this process is dead"));
  }
}

NetworkActivity SimNetwork::activity(const SimHost& host) const {
  NetworkActivity activity;
  for (const auto& [id, weak] : connections_) {
    const auto end = weak.lock();
    if (end != nullptr && &end->host() == &host) {
      end->AddActivity(&activity);
    }
  }
  return activity;
}

bool SimNetwork::Connected(const SimHost& host, const SimHost& peer) const {
  return std::any_of(connections_.begin(), connections_.end(), [&](const auto& entry) {
    const auto end = entry.second.lock();
    return end != nullptr && &end->host() == &host &&
           end->state() != SimConnection::State::kClosed && end->peer() != nullptr &&
           &end->peer()->host() == &peer;
  });
}

std::shared_ptr<SimConnection> SimNetwork::MakeEnd(SimTransport& transport) {
  const uint64_t id = ++last_connection_;
  auto end = std::make_shared<SimConnection>(*this, transport, id);
  connections_.emplace(id, end);
  return end;
}

void SimNetwork::StartConnect(const std::shared_ptr<SimConnection>& end, const Address& peer) {
  SimLoop& loop = end->transport().loop();
  LinkConditions& out = link(end->host().ip(), peer.host);
  const Duration delay = out.latency + scheduler_.random().Between(Duration{0}, out.jitter);
  loop.At(scheduler_.Now() + options_.connect_timeout, [end] {
    if (end->state() == SimConnection::State::kConnecting) {
      const absl::Status why = absl::UnavailableError("connecting timed out");
      end->BeginClose(why, why);
    }
  });
  const auto listener = listeners_.find(peer);
  if (dead_.count(&end->host()) != 0 || out.cut) {
    return;
  }
  if (listener == listeners_.end()) {
    end->PeerGone(2 * delay);
    return;
  }
  // The connection is made on the loop that will own it, so that a stopped process answers late.
  SimTransport& owner = listener->second->NextOwner();
  owner.loop().At(scheduler_.Now() + delay,
                  [this, end, peer, &owner] { ArriveConnect(end, peer, owner); });
}

void SimNetwork::ArriveConnect(const std::shared_ptr<SimConnection>& end, const Address& peer,
                               SimTransport& owner) {
  if (end->state() != SimConnection::State::kConnecting) {
    return;
  }
  const auto listener = listeners_.find(peer);
  if (listener == listeners_.end() || &listener->second->host() != &owner.loop().host()) {
    end->PeerGone(options_.link.latency);
    return;
  }
  const std::shared_ptr<SimConnection> accepted = MakeEnd(owner);
  accepted->SetPeer(end, SimConnection::State::kOpen);
  end->SetPeer(accepted, SimConnection::State::kConnecting);
  auto facade = std::make_unique<Facade>(accepted);
  Facade* const watched = facade.get();
  Packet connected;
  connected.kind = Packet::Kind::kConnected;
  accepted->Enqueue(std::move(connected));
  ConnectionHandler* const handler = listener->second->accept()(owner, std::move(facade));
  if (handler == nullptr) {
    end->PeerGone(options_.link.latency);
    accepted->Forget();
    return;
  }
  watched->Watch(handler);
}

SimTransport::SimTransport(SimNetwork& network, SimLoop& loop, std::string version)
    : network_(network), loop_(loop), version_(std::move(version)) {}

absl::StatusOr<std::unique_ptr<net::MemoryRegion>> SimTransport::Register(
    std::span<std::byte> bytes) {
  if (bytes.empty()) {
    return absl::InvalidArgumentError("nothing to register");
  }
  registered_.push_back(bytes);
  return std::make_unique<SimRegion>(bytes);
}

std::unique_ptr<Connection> SimTransport::Connect(const Address& peer, ConnectionHandler& handler) {
  TOKURA_CHECK(loop_.IsCurrent());
  const std::shared_ptr<SimConnection> end = network_.MakeEnd(*this);
  end->SetPeerName(peer.ToString());
  auto facade = std::make_unique<Facade>(end);
  facade->Watch(&handler);
  network_.StartConnect(end, peer);
  return facade;
}

absl::StatusOr<std::unique_ptr<net::Listener>> SimTransport::Listen(
    const Address& address, std::vector<net::Transport*> owners, AcceptHandler accept) {
  std::vector<SimTransport*> transports;
  for (net::Transport* owner : owners) {
    transports.push_back(static_cast<SimTransport*>(owner));
  }
  if (transports.empty()) {
    transports.push_back(this);
  }
  if (address.host != loop_.host().ip()) {
    return absl::UnavailableError(absl::StrCat(address.ToString(), " is not local"));
  }
  Address actual = address;
  if (actual.port == 0) {
    for (actual.port = kFirstEphemeralPort; network_.listeners_.count(actual) != 0;) {
      ++actual.port;
    }
  }
  if (network_.listeners_.count(actual) != 0) {
    return absl::UnavailableError(absl::StrCat(actual.ToString(), " is in use"));
  }
  auto listener =
      std::make_unique<SimListener>(network_, actual, std::move(transports), std::move(accept));
  network_.listeners_[actual] = listener.get();
  return listener;
}

}  // namespace tokura::sim
