#pragma once

// The transport interface: messages and payloads between two processes. Two implementations: UCX
// active messages (common/net/ucx_transport.h) and the deterministic one of tests/sim. Nothing
// above this interface knows which it runs on.
//
// Ownership and completion, the rules everything else stands on:
//  * A transport and everything made by it belong to one Executor; all calls and all callbacks
//  happen on its thread,
//    unless a declaration says otherwise. Callbacks take microseconds and never block.
//  * A buffer handed to SendPayload or to IncomingPayload::Receive belongs to the transport until
//  its Done is called,
//    whatever happens in between: deadline, error, close. Until then nobody reuses, frees or unpins
//    it. Every Done is called exactly once, never inline.
//  * Every Done of a connection comes before its OnClosed; after OnClosed the handler is never
//  called again.
//  * Closing (either side, any reason) completes every pending Done, so a stuck transfer is ended
//  by Close(kAbort).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"

namespace tokura::net {

struct Address {
  std::string host;  // an IP literal or a name that resolves to one
  uint16_t port = 0;

  // "host:port" or "[v6]:port". INVALID_ARGUMENT says what is wrong with `text`.
  static absl::StatusOr<Address> Parse(std::string_view text);
  std::string ToString() const;
  friend auto operator<=>(const Address&, const Address&) = default;
};

inline constexpr size_t kHeaderBytesMax = 256;        // of one message's or payload's header
inline constexpr size_t kMessageBytesMax = 1u << 20;  // of one message's body
inline constexpr size_t kPayloadPiecesMax = 64;       // of one payload's gather list

// Memory that the transport may send from and receive into. Deregisters when destroyed, which must
// come after every operation on it has completed and before its transports are destroyed. Usable by
// every transport of the same process.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

// A range of a region. Borrows: the region outlives every operation on the range.
struct RegisteredSpan {
  const MemoryRegion* region = nullptr;
  std::byte* data = nullptr;
  size_t size = 0;

  RegisteredSpan Sub(size_t offset, size_t count) const { return {region, data + offset, count}; }
  std::span<std::byte> bytes() const { return {data, size}; }
};

// OK; UNAVAILABLE (peer lost or connection closed), CANCELLED (aborted on this side),
// RESOURCE_EXHAUSTED (the receiver rejected the payload), INTERNAL (the transport's own fault). On
// error the contents of a receive buffer are undefined.
using Done = absl::AnyInvocable<void(absl::Status)>;

// The first `bytes` bytes of a payload have arrived and will not change while its receive buffer is
// the transport's: they may be read before Done. What lies behind them may not. Called from the
// executor, never inline, with growing counts below the payload's size, any number of times (none
// included), and not after Done.
using Arrived = absl::AnyInvocable<void(size_t bytes)>;

// A payload that a peer offers, not yet transferred: the sender's bytes stay where they are until
// Receive or Reject. Move-only; destroying it unanswered rejects it. May be kept (admission
// control); OnClosed of its connection makes later Receive fail with UNAVAILABLE. Owner thread
// only.
class IncomingPayload {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual size_t size() const = 0;
    virtual void Receive(RegisteredSpan destination, Arrived maybe_arrived, Done done) = 0;
    virtual void Reject() = 0;
  };

  IncomingPayload() = default;
  explicit IncomingPayload(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
  IncomingPayload(IncomingPayload&&) = default;
  IncomingPayload& operator=(IncomingPayload&& other);
  ~IncomingPayload();

  bool valid() const { return impl_ != nullptr; }
  size_t size() const { return impl_->size(); }
  // Transfer all bytes into `destination` (size() bytes or more). Invalidates *this.
  void Receive(RegisteredSpan destination, Done done);
  // The same, and tell what has arrived so far.
  void Receive(RegisteredSpan destination, Arrived arrived, Done done);
  // Refuse: the sender's Done gets RESOURCE_EXHAUSTED. Invalidates *this.
  void Reject();

 private:
  std::unique_ptr<Impl> impl_;
};

class Connection;

// What the owner of a connection implements. Outlives the connection's OnClosed.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  // The transport's own connect succeeded (client side, before anything else). Says nothing about
  // who answers.
  virtual void OnConnected(Connection& connection) = 0;
  // `header` and `body` are valid during the call only.
  virtual void OnMessage(Connection& connection, std::span<const std::byte> header,
                         std::span<const std::byte> body) = 0;
  // `header` is valid during the call only. Messages and payload offers of one connection arrive in
  // the order sent.
  virtual void OnPayload(Connection& connection, std::span<const std::byte> header,
                         IncomingPayload payload) = 0;
  // The last call. OK after an orderly close by this side; CANCELLED after Close(kAbort);
  // UNAVAILABLE: the peer closed, died or could not be reached; FAILED_PRECONDITION: refused before
  // the connection existed (wrong version). The connection may be destroyed from here on, not
  // inside the call.
  virtual void OnClosed(Connection& connection, absl::Status why) = 0;
};

enum class CloseMode { kFlush, kAbort };

// One connection. Owner thread only. Destroyed only after OnClosed.
class Connection {
 public:
  virtual ~Connection() = default;

  // Send a message; header (≤ kHeaderBytesMax) and body (≤ kMessageBytesMax) are copied or sent
  // before the call returns. RESOURCE_EXHAUSTED: too many bytes wait for this peer, try later;
  // UNAVAILABLE: closed or closing.
  virtual absl::Status SendMessage(std::span<const std::byte> header,
                                   std::span<const std::byte> body) = 0;

  // Offer a payload made of `pieces` in order (1…kPayloadPiecesMax). The header is copied. `done`
  // tells when the pieces may be reused: OK once the receiver has all bytes.
  virtual void SendPayload(std::span<const std::byte> header,
                           std::span<const RegisteredSpan> pieces, Done done) = 0;

  // kFlush: let what was sent go out (bounded by the transport's close timeout), then close.
  // kAbort: close now; pending operations complete with CANCELLED. Idempotent; kAbort may follow
  // kFlush.
  virtual void Close(CloseMode mode) = 0;

  // For logs: the peer as the transport names it.
  virtual std::string peer() const = 0;
};

class Transport;

// Accepts until destroyed. `address` has the real port.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual Address address() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Executor& executor() = 0;
  virtual const char* name() const = 0;  // "ucx", "sim"
  virtual std::string version()
      const = 0;  // of the library; peers of another major.minor are refused

  // Register `bytes` (host memory owned by the caller, page-aligned for best results). Any thread.
  // RESOURCE_EXHAUSTED: a limit of the system (the message names it); INVALID_ARGUMENT: empty.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> bytes) = 0;

  // Connect to `peer`. Never blocks and never fails inline: the outcome is OnConnected or OnClosed.
  virtual std::unique_ptr<Connection> Connect(const Address& peer, ConnectionHandler& handler) = 0;

  // Called on the thread of `owner`, one of the transports given to Listen. Returns the
  // connection's handler, or null to refuse. Takes over `connection` in both cases.
  using AcceptHandler =
      std::function<ConnectionHandler*(Transport& owner, std::unique_ptr<Connection> connection)>;

  // Listen on `address` (port 0: a free one) and hand new connections to `owners` in turn (empty:
  // to this transport). `owners` are transports of the same kind and process. UNAVAILABLE: address
  // in use or not local.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const Address& address,
                                                           std::vector<Transport*> owners,
                                                           AcceptHandler accept) = 0;

  // A peer is expected to send something `within` that time: a loop that waits had better not fall
  // asleep before, because waking it takes tens of microseconds. A hint, bounded by kExpectMax. On
  // the executor.
  virtual void Expect(Duration /*within*/) {}
  static constexpr Duration kExpectMax = std::chrono::microseconds(500);
};

}  // namespace tokura::net
