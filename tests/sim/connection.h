#pragma once

// One end of a simulated connection. Internal to the simulated transport.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/net/transport.h"
#include "tests/sim/transport.h"

namespace tokura::sim {

// Counts the operations that use it: destroying memory that the transport still has is caught.
class SimRegion final : public net::MemoryRegion {
 public:
  explicit SimRegion(std::span<std::byte> bytes) : bytes_(bytes) {}
  ~SimRegion() override;
  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  friend class RegionUse;
  std::span<std::byte> bytes_;
  mutable size_t uses_ = 0;
};

// Keeps a range of a region in use while it lives; checks that the range lies inside.
class RegionUse {
 public:
  explicit RegionUse(net::RegisteredSpan range);
  RegionUse(RegionUse&& other) noexcept;
  RegionUse& operator=(RegionUse&& other) = delete;
  ~RegionUse();
  net::RegisteredSpan range() const { return range_; }

 private:
  net::RegisteredSpan range_;
};

// A payload between two connection ends. `sender` and `receiver` are shared with the network's
// events and the receiver's IncomingPayload; the cycle ends with either end's completion.
struct Transfer {
  std::shared_ptr<SimConnection> sender;
  std::shared_ptr<SimConnection> receiver;
  uint64_t send_op = 0;
  uint64_t receive_op = 0;  // 0: not accepted yet
  size_t bytes = 0;
  size_t moved = 0;
  size_t next_piece = 0;  // bytes that are on the wire; 0: none
  bool dead = false;      // one side's buffer is its owner's again: nothing may touch either
};

struct Packet {
  enum class Kind { kConnected, kMessage, kOffer, kFin };
  Kind kind = Kind::kMessage;
  TimePoint arrival;
  std::vector<std::byte> header;
  std::vector<std::byte> body;
  std::shared_ptr<Transfer> transfer;
};

// Shared by the Connection object that its owner holds, events, and transfers.
class SimConnection final : public std::enable_shared_from_this<SimConnection> {
 public:
  enum class State { kConnecting, kOpen, kFlushing, kClosing, kClosed };

  SimConnection(SimNetwork& network, SimTransport& transport, uint64_t id)
      : network_(network), transport_(transport), id_(id) {}

  void SetHandler(net::ConnectionHandler* handler, net::Connection* facade) {
    handler_ = handler;
    facade_ = facade;
  }
  void SetPeer(std::shared_ptr<SimConnection> peer, State state) {
    peer_ = std::move(peer);
    outbound_link_ = &network_.link(host().ip(), peer_->host().ip());
    state_ = state;
    if (peer_name_.empty()) {
      peer_name_ = peer_->host().ip();
    }
  }
  void SetPeerName(std::string name) { peer_name_ = std::move(name); }
  const std::string& peer_name() const { return peer_name_; }

  absl::Status SendMessage(std::span<const std::byte> header, std::span<const std::byte> body);
  void SendPayload(std::span<const std::byte> header, std::span<const net::RegisteredSpan> pieces,
                   net::Done done);
  void Receive(const std::shared_ptr<Transfer>& transfer, net::RegisteredSpan destination,
               net::Arrived maybe_arrived, net::Done done);
  void Reject(const std::shared_ptr<Transfer>& transfer);
  void Close(net::CloseMode mode);
  // Let go of everything that refers back to this end, without telling anybody.
  void Forget() {
    state_ = State::kClosed;
    peer_ = nullptr;
    queue_.clear();
    stalled_.clear();
    ops_.clear();
  }
  // The owner destroyed its Connection: no callback reaches it any more.
  void Abandon();

  // Put a packet in order behind those sent before.
  void Enqueue(Packet packet);
  // Deliver what is due, when the link carries it.
  void Pump();
  // End: complete every operation with `ops`, then OnClosed(`why`).
  void BeginClose(absl::Status ops, absl::Status why);
  // Tell the peer that this end is gone, if the link lets it.
  void NotifyPeer();
  // The peer is gone; noticed within `delay`.
  void PeerGone(Duration delay);

  State state() const { return state_; }
  uint64_t id() const { return id_; }
  SimTransport& transport() { return transport_; }
  SimHost& host() const { return transport_.loop().host(); }
  std::shared_ptr<SimConnection> peer() const { return peer_; }
  void AddActivity(NetworkActivity* activity) const;
  bool peer_must_learn() const { return peer_must_learn_; }
  // From here on the peer is told nothing.
  void FallSilent() { silent_ = true; }

 private:
  struct Operation {
    net::Done done;
    net::Arrived arrived;  // receives; may be null
    std::vector<RegionUse> memory;
    std::shared_ptr<Transfer> transfer;
    bool completing = false;
  };

  SimLoop& loop() { return transport_.loop(); }
  SimRandom& random() { return network_.scheduler().random(); }
  // The conditions of all that this end sends. After SetPeer, and after the peer is gone, too.
  LinkConditions& outbound_link() const { return *outbound_link_; }
  uint64_t pair_id() const { return std::min(id_, peer_->id_); }
  Duration Soon();
  void Deliver();
  void DeliverTo(SimConnection& receiver, Packet packet);
  void FlipSome(uint64_t permille, std::span<std::byte> bytes);
  void SchedulePiece(const std::shared_ptr<Transfer>& transfer);
  void MovePiece(const std::shared_ptr<Transfer>& transfer);
  void CopyPiece(Transfer& transfer, size_t count);
  void TellArrived(const Transfer& transfer);
  // Complete operation `id` after `delay`, once.
  void Complete(uint64_t id, absl::Status status, Duration delay);
  void ContinueFlush();
  void MaybeClosed();

  SimNetwork& network_;
  SimTransport& transport_;
  const uint64_t id_;
  net::ConnectionHandler* handler_ = nullptr;
  net::Connection* facade_ = nullptr;
  std::string peer_name_;                    // for logs
  std::shared_ptr<SimConnection> peer_;      // until closed
  LinkConditions* outbound_link_ = nullptr;  // of the network
  State state_ = State::kConnecting;
  absl::Status why_;
  std::deque<Packet> queue_;
  TimePoint last_arrival_;
  uint64_t unsent_bytes_ = 0;
  bool pumping_ = false;  // an event will deliver the head of the queue
  bool fin_sent_ = false;
  bool reporting_ = false;  // OnClosed is scheduled
  bool peer_must_learn_ = false;
  bool silent_ = false;  // its machine is gone: the peer is told nothing
  uint64_t last_op_ = 0;
  std::map<uint64_t, Operation> ops_;
  std::vector<std::shared_ptr<Transfer>> stalled_;  // pieces that wait for the link

  friend class SimNetwork;
};

}  // namespace tokura::sim
