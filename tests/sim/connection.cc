#include "tests/sim/connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32c.h"

namespace tokura::sim {
namespace {

using net::Arrived;
using net::CloseMode;
using net::Done;
using net::IncomingPayload;
using net::RegisteredSpan;

class SimIncoming final : public IncomingPayload::Impl {
 public:
  SimIncoming(std::shared_ptr<SimConnection> end, std::shared_ptr<Transfer> transfer)
      : end_(std::move(end)), transfer_(std::move(transfer)), bytes_(transfer_->bytes) {}
  size_t size() const override { return bytes_; }
  void Receive(RegisteredSpan destination, Arrived maybe_arrived, Done done) override {
    TOKURA_CHECK(destination.size >= bytes_);
    end_->Receive(transfer_, destination.Sub(0, bytes_), std::move(maybe_arrived), std::move(done));
  }
  void Reject() override { end_->Reject(transfer_); }

 private:
  std::shared_ptr<SimConnection> end_;  // shared with the connection's owner and events
  std::shared_ptr<Transfer> transfer_;  // shared with the sender's operation and events
  const size_t bytes_;
};

}  // namespace

SimRegion::~SimRegion() {
  // Deregistered before its operations completed: a bug of the code above the transport.
  TOKURA_CHECK(uses_ == 0);
}

RegionUse::RegionUse(RegisteredSpan range) : range_(range) {
  const auto* region = static_cast<const SimRegion*>(range.region);
  TOKURA_CHECK(region != nullptr);
  const std::span<std::byte> all = region->bytes_;
  TOKURA_CHECK(range.data >= all.data() && range.data + range.size <= all.data() + all.size());
  ++region->uses_;
}

RegionUse::RegionUse(RegionUse&& other) noexcept : range_(std::exchange(other.range_, {})) {}

RegionUse::~RegionUse() {
  if (range_.region != nullptr) {
    --static_cast<const SimRegion*>(range_.region)->uses_;
  }
}

Duration SimConnection::Soon() {
  // Mostly quick, sometimes long: a buffer whose operation was aborted stays the transport's.
  const Duration limit = network_.options().completion_delay_max;
  return random().Between(Duration{0}, random().Permille(50) ? limit * 20 : limit);
}

absl::Status SimConnection::SendMessage(std::span<const std::byte> header,
                                        std::span<const std::byte> body) {
  TOKURA_CHECK(header.size() <= net::kHeaderBytesMax && body.size() <= net::kMessageBytesMax);
  TOKURA_CHECK(loop().IsCurrent());
  if (state_ != State::kOpen) {
    return absl::UnavailableError("the connection is not open");
  }
  if (unsent_bytes_ + header.size() + body.size() > network_.options().unsent_bytes_max) {
    return absl::ResourceExhaustedError("too many bytes wait for this peer");
  }
  if (network_.witness_ != nullptr) {
    network_.witness_->OnSent({host(), peer_->host(), pair_id(), header, body});
  }
  Packet packet;
  packet.header.assign(header.begin(), header.end());
  packet.body.assign(body.begin(), body.end());
  Enqueue(std::move(packet));
  return absl::OkStatus();
}

void SimConnection::SendPayload(std::span<const std::byte> header,
                                std::span<const RegisteredSpan> pieces, Done done) {
  TOKURA_CHECK(header.size() <= net::kHeaderBytesMax);
  TOKURA_CHECK(!pieces.empty() && pieces.size() <= net::kPayloadPiecesMax);
  TOKURA_CHECK(loop().IsCurrent());
  const uint64_t id = ++last_op_;
  Operation& op = ops_[id];
  op.done = std::move(done);
  for (const RegisteredSpan& piece : pieces) {
    op.memory.emplace_back(piece);
  }
  if (state_ != State::kOpen) {
    Complete(id, absl::UnavailableError("the connection is not open"), Soon());
    return;
  }
  Packet packet;
  packet.kind = Packet::Kind::kOffer;
  packet.header.assign(header.begin(), header.end());
  packet.transfer = std::make_shared<Transfer>();
  packet.transfer->sender = shared_from_this();
  packet.transfer->receiver = peer_;
  packet.transfer->send_op = id;
  for (const RegisteredSpan& piece : pieces) {
    packet.transfer->bytes += piece.size;
  }
  op.transfer = packet.transfer;
  Enqueue(std::move(packet));
}

void SimConnection::Enqueue(Packet packet) {
  const LinkConditions& link = outbound_link();
  const size_t bytes = packet.header.size() + packet.body.size();
  const bool lossy = packet.kind == Packet::Kind::kMessage || packet.kind == Packet::Kind::kOffer;
  if (lossy && random().Permille(link.drop_permille)) {
    ++network_.lost_messages_;
    network_.scheduler().Record("lost", id_);
    if (packet.transfer) {
      // No real transport loses an offer and keeps the connection; to the sender it looks refused.
      Complete(packet.transfer->send_op, absl::ResourceExhaustedError("the offer was lost"),
               random().Between(Duration{0}, std::chrono::milliseconds(300)));
    }
    return;
  }
  const Duration wire(static_cast<int64_t>(bytes * 1'000'000'000 / link.bytes_per_second));
  const Duration delay = link.latency + random().Between(Duration{0}, link.jitter) + wire;
  last_arrival_ = std::max(last_arrival_, network_.scheduler().Now() + delay);
  packet.arrival = last_arrival_;
  unsent_bytes_ += bytes;
  if (lossy && !queue_.empty() && queue_.back().kind != Packet::Kind::kConnected &&
      random().Permille(link.reorder_permille)) {
    std::swap(packet.arrival, queue_.back().arrival);
    queue_.insert(queue_.end() - 1, std::move(packet));
  } else {
    queue_.push_back(std::move(packet));
  }
  Pump();
}

void SimConnection::Pump() {
  if (!peer_) {
    return;
  }
  if (!queue_.empty() && !pumping_ && !outbound_link().cut) {
    pumping_ = true;
    peer_->loop().At(std::max(queue_.front().arrival, network_.scheduler().Now()),
                     [self = shared_from_this()] { self->Deliver(); });
  }
  if (!outbound_link().cut) {
    for (const auto& transfer : std::exchange(stalled_, {})) {
      SchedulePiece(transfer);
    }
  }
}

void SimConnection::Deliver() {
  pumping_ = false;
  if (!peer_ || queue_.empty() || outbound_link().cut) {
    return;  // Mending the link pumps again.
  }
  Packet packet = std::move(queue_.front());
  queue_.pop_front();
  unsent_bytes_ -= packet.header.size() + packet.body.size();
  const std::shared_ptr<SimConnection> receiver = peer_;
  FlipSome(outbound_link().flip_permille, random().Permille(500)
                                              ? std::span<std::byte>(packet.header)
                                              : std::span<std::byte>(packet.body));
  DeliverTo(*receiver, std::move(packet));
  Pump();
  ContinueFlush();
}

void SimConnection::DeliverTo(SimConnection& receiver, Packet packet) {
  network_.scheduler().Record("deliver", receiver.id_ * 8 + static_cast<uint64_t>(packet.kind),
                              Crc32c(packet.body, Crc32c(packet.header)));
  if (packet.kind == Packet::Kind::kConnected && receiver.state_ == State::kConnecting) {
    receiver.state_ = State::kOpen;
    receiver.handler_->OnConnected(*receiver.facade_);
    return;
  }
  if (packet.kind == Packet::Kind::kFin) {
    receiver.BeginClose(absl::UnavailableError("closed by the peer"),
                        absl::UnavailableError("closed by the peer"));
    return;
  }
  if (receiver.state_ != State::kOpen && receiver.state_ != State::kFlushing) {
    return;  // Its close tells this side; operations complete with that.
  }
  if (packet.kind == Packet::Kind::kMessage) {
    if (network_.witness_ != nullptr) {
      network_.witness_->OnDelivered(
          {host(), receiver.host(), pair_id(), packet.header, packet.body});
    }
    receiver.handler_->OnMessage(*receiver.facade_, packet.header, packet.body);
  } else if (packet.kind == Packet::Kind::kOffer) {
    receiver.handler_->OnPayload(*receiver.facade_, packet.header,
                                 IncomingPayload(std::make_unique<SimIncoming>(
                                     receiver.shared_from_this(), std::move(packet.transfer))));
  }
}

void SimConnection::FlipSome(uint64_t permille, std::span<std::byte> bytes) {
  if (bytes.empty() || !random().Permille(permille)) {
    return;
  }
  const uint64_t bit = random().Below(bytes.size() * 8);
  bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  ++network_.flipped_bits_;
  network_.scheduler().Record("flip", id_, bit);
}

void SimConnection::Receive(const std::shared_ptr<Transfer>& transfer, RegisteredSpan destination,
                            Arrived maybe_arrived, Done done) {
  TOKURA_CHECK(loop().IsCurrent());
  TOKURA_CHECK(transfer->receive_op == 0);
  const uint64_t id = ++last_op_;
  Operation& op = ops_[id];
  op.arrived = std::move(maybe_arrived);
  op.done = std::move(done);
  op.memory.emplace_back(destination);
  op.transfer = transfer;
  transfer->receive_op = id;
  if (state_ != State::kOpen && state_ != State::kFlushing) {
    Complete(id, absl::UnavailableError("the connection is closed"), Soon());
  } else if (transfer->dead) {
    Complete(id, absl::UnavailableError("the sender gave up"), Soon());
  } else {
    SchedulePiece(transfer);
  }
}

void SimConnection::Reject(const std::shared_ptr<Transfer>& transfer) {
  transfer->dead = true;
  const std::shared_ptr<SimConnection> sender = transfer->sender;
  const LinkConditions& link = outbound_link();
  if (!link.cut) {
    sender->Complete(transfer->send_op, absl::ResourceExhaustedError("the receiver rejected it"),
                     link.latency + random().Between(Duration{0}, link.jitter));
  } else if (peer_) {
    stalled_.push_back(transfer);  // The answer waits for the link like everything else.
  }
}

void SimConnection::SchedulePiece(const std::shared_ptr<Transfer>& transfer) {
  if (transfer->dead && transfer->receive_op == 0) {
    Reject(transfer);
    return;
  }
  const LinkConditions& link = transfer->sender->outbound_link();
  if (transfer->next_piece == 0) {
    const size_t pieces = random().Between(1, link.pieces_max);
    transfer->next_piece =
        std::min(transfer->bytes - transfer->moved, transfer->bytes / pieces + 1);
  }
  const Duration wire(
      static_cast<int64_t>(transfer->next_piece * 1'000'000'000 / link.bytes_per_second));
  const Duration delay = wire + random().Between(link.latency, link.latency + link.jitter);
  transfer->receiver->loop().At(network_.scheduler().Now() + delay,
                                [transfer] { transfer->receiver->MovePiece(transfer); });
}

// On the receiver, in the receiver's context: like a transport that copies while it makes progress.
void SimConnection::MovePiece(const std::shared_ptr<Transfer>& transfer) {
  if (transfer->dead) {
    return;
  }
  SimConnection& sender = *transfer->sender;
  if (network_.dead_.count(&host()) != 0 || network_.dead_.count(&sender.host()) != 0) {
    return;  // The survivor's operation ends with its connection.
  }
  if (sender.host().paused()) {
    // A stopped sender sends nothing; go on when it continues.
    sender.loop().At(network_.scheduler().Now(),
                     [transfer] { transfer->receiver->SchedulePiece(transfer); });
    return;
  }
  const LinkConditions& link = sender.outbound_link();
  if (link.cut) {
    sender.stalled_.push_back(transfer);
    return;
  }
  CopyPiece(*transfer, std::exchange(transfer->next_piece, 0));
  if (transfer->moved < transfer->bytes) {
    SchedulePiece(transfer);
    TellArrived(*transfer);
    return;
  }
  Complete(transfer->receive_op, absl::OkStatus(), Duration{0});
  sender.Complete(transfer->send_op, absl::OkStatus(), link.latency);
}

void SimConnection::TellArrived(const Transfer& transfer) {
  const auto op = ops_.find(transfer.receive_op);
  TOKURA_CHECK(op != ops_.end());
  // Not told of every piece: nobody may count on it.
  if (op->second.arrived && !op->second.completing && random().Permille(700)) {
    network_.scheduler().Record("arrived", id_, transfer.moved);
    // The callback may close the connection, which must not destroy it under its feet.
    net::Arrived arrived = std::move(op->second.arrived);
    arrived(transfer.moved);
    if (const auto still = ops_.find(transfer.receive_op); still != ops_.end()) {
      still->second.arrived = std::move(arrived);
    }
  }
}

void SimConnection::CopyPiece(Transfer& transfer, size_t count) {
  const auto source = transfer.sender->ops_.find(transfer.send_op);
  const auto destination = ops_.find(transfer.receive_op);
  TOKURA_CHECK(source != transfer.sender->ops_.end() && destination != ops_.end());
  std::byte* out = destination->second.memory.front().range().data + transfer.moved;
  const std::span<std::byte> written(out, count);
  size_t skip = transfer.moved;
  size_t left = count;
  for (const RegionUse& use : source->second.memory) {
    const RegisteredSpan piece = use.range();
    const size_t here = skip < piece.size ? std::min(left, piece.size - skip) : 0;
    std::memcpy(out, piece.data + (here == 0 ? 0 : skip), here);
    skip -= std::min(skip, piece.size);
    out += here;
    left -= here;
  }
  transfer.moved += count;
  FlipSome(transfer.sender->outbound_link().flip_payload_permille, written);
  network_.scheduler().Record("piece", id_, Crc32c(written));
}

void SimConnection::Complete(uint64_t id, absl::Status status, Duration delay) {
  const auto it = ops_.find(id);
  if (it == ops_.end() || it->second.completing) {
    return;
  }
  it->second.completing = true;
  loop().At(network_.scheduler().Now() + delay, [self = shared_from_this(), id,
                                                 status = std::move(status)]() mutable {
    const auto found = self->ops_.find(id);
    Operation op = std::move(found->second);
    self->ops_.erase(found);
    if (op.transfer) {
      op.transfer->dead = true;
    }
    op.memory.clear();
    self->network_.scheduler().Record("done", self->id_, static_cast<uint64_t>(status.code()));
    op.done(std::move(status));
    self->ContinueFlush();
    self->MaybeClosed();
  });
}

void SimConnection::Close(CloseMode mode) {
  TOKURA_CHECK(loop().IsCurrent());
  if (mode == CloseMode::kAbort || state_ == State::kConnecting) {
    BeginClose(absl::CancelledError("aborted on this side"),
               absl::CancelledError("aborted on this side"));
    return;
  }
  if (state_ != State::kOpen) {
    return;
  }
  state_ = State::kFlushing;
  loop().At(network_.scheduler().Now() + network_.options().close_timeout,
            [self = shared_from_this()] {
              self->BeginClose(absl::CancelledError("the close timed out"), absl::OkStatus());
            });
  ContinueFlush();
}

// Everything sent and answered: the last packet says so. Its delivery ends this side.
void SimConnection::ContinueFlush() {
  if (state_ != State::kFlushing || !queue_.empty() || !ops_.empty()) {
    return;
  }
  if (std::exchange(fin_sent_, true)) {
    BeginClose(absl::CancelledError("closed on this side"), absl::OkStatus());
    return;
  }
  Packet fin;
  fin.kind = Packet::Kind::kFin;
  Enqueue(std::move(fin));
}

void SimConnection::BeginClose(absl::Status ops, absl::Status why) {
  if (state_ == State::kClosing || state_ == State::kClosed) {
    return;
  }
  const bool told = fin_sent_ && queue_.empty();
  state_ = State::kClosing;
  why_ = std::move(why);
  network_.scheduler().Record("close", id_, static_cast<uint64_t>(why_.code()));
  queue_.clear();
  unsent_bytes_ = 0;
  std::vector<uint64_t> ids;
  for (const auto& [id, op] : ops_) {
    ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    Complete(id, ops, Soon());
  }
  if (!told) {
    NotifyPeer();
  }
  MaybeClosed();
}

void SimConnection::NotifyPeer() {
  peer_must_learn_ = false;
  if (silent_ || !peer_ || peer_->state_ == State::kClosing || peer_->state_ == State::kClosed) {
    return;
  }
  const LinkConditions& link = outbound_link();
  if (link.cut) {
    peer_must_learn_ = true;
    return;
  }
  peer_->PeerGone(link.latency + random().Between(Duration{0}, link.jitter));
}

void SimConnection::PeerGone(Duration delay) {
  loop().At(network_.scheduler().Now() + delay, [self = shared_from_this()] {
    self->BeginClose(absl::UnavailableError("connection reset by the peer"),
                     absl::UnavailableError("connection reset by the peer"));
  });
}

void SimConnection::MaybeClosed() {
  if (state_ != State::kClosing || !ops_.empty() || std::exchange(reporting_, true)) {
    return;
  }
  loop().At(network_.scheduler().Now(), [self = shared_from_this()] {
    if (!self->ops_.empty()) {
      self->reporting_ = false;  // A payload that was kept has been asked for since.
      return;
    }
    self->state_ = State::kClosed;
    if (!self->peer_must_learn_) {
      self->peer_ = nullptr;
    }
    self->stalled_.clear();
    if (self->handler_ != nullptr) {
      self->handler_->OnClosed(*self->facade_, self->why_);
    }
  });
}

void SimConnection::Abandon() {
  handler_ = nullptr;
  facade_ = nullptr;
}

void SimConnection::AddActivity(NetworkActivity* activity) const {
  activity->connections += state_ == State::kOpen || state_ == State::kFlushing ? 1 : 0;
  activity->queued_messages += queue_.size();
  for (const auto& [id, op] : ops_) {
    if (op.transfer && !op.transfer->dead) {
      ++(op.transfer->receive_op == 0 ? activity->offers : activity->transfers);
    }
  }
}

}  // namespace tokura::sim
