#pragma once

// A session between a client and a node above one Connection: HELLO and WELCOME (or REFUSED),
// requests with deadlines, heartbeats, GOODBYE. Transport-agnostic: the same code runs over UCX and
// in the simulation. Everything here belongs to the transport's executor and is called on its
// thread only.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/net/frame.h"
#include "common/net/transport.h"
#include "proto/tokura.pb.h"

namespace google::protobuf {
class MessageLite;
}

namespace tokura::net {

struct ChannelTimeouts {
  Duration hello = std::chrono::milliseconds(1000);  // from connect to WELCOME
  Duration heartbeat =
      std::chrono::milliseconds(250);  // PING after this much silence from the peer
  Duration dead_after =
      std::chrono::milliseconds(1000);  // close after this much silence from the peer
};

// ---- client side ----

class ClientChannel;

class ClientChannelOwner {
 public:
  virtual ~ClientChannelOwner() = default;
  // WELCOME arrived. Return an error to close at once (a fenced incarnation, another node than
  // expected).
  virtual absl::Status OnWelcome(ClientChannel& channel, const proto::Welcome& welcome) = 0;
  // The node drains: outstanding requests may finish, new ones should go elsewhere.
  virtual void OnGoodbye(ClientChannel& channel) = 0;
  // The channel is finished; every request has been completed and every Done called before. Last
  // call; the channel may be destroyed from here on, not inside the call. FAILED_PRECONDITION:
  // refused for version, format or fencing, with a message that names both sides' versions and the
  // node's /version page.
  virtual void OnDown(ClientChannel& channel, absl::Status why) = 0;
};

// What a request gets. Exactly one reply; no payload after it.
class Call {
 public:
  virtual ~Call() = default;
  // A payload frame of this request (GET). Receive it, keep it, or drop it to reject it.
  virtual void OnPayload(const FrameHeader& frame, IncomingPayload payload) = 0;
  // OK with the reply's body; the node's status with its message; DEADLINE_EXCEEDED; UNAVAILABLE
  // when the channel ended.
  virtual void OnReply(absl::Status status, std::span<const std::byte> body) = 0;
};

class ClientChannel {
 public:
  struct Options {
    proto::Hello hello;  // versions and ids of this side; see MakeHello
    ChannelTimeouts timeouts;
  };
  // Starts connecting. `owner` outlives OnDown.
  static std::unique_ptr<ClientChannel> Start(Transport& transport, const Address& peer,
                                              Options options, ClientChannelOwner& owner);
  virtual ~ClientChannel() = default;

  virtual bool ready() const = 0;                     // WELCOME accepted, not closing, no GOODBYE
  virtual const proto::Welcome& welcome() const = 0;  // valid once ready
  virtual TimePoint last_heard() const = 0;

  // Send a request and return its id (never 0). `call` gets exactly one OnReply, never inline, by
  // `deadline` at the latest (from the executor's timer, even if the network never answers). A
  // request that cannot be sent is answered the same way. `call` is shared with the owner who
  // started it, because payloads in flight outlive the reply.
  virtual uint64_t Send(Op op, const google::protobuf::MessageLite& body, TimePoint deadline,
                        std::shared_ptr<Call> call) = 0;

  // Offer a payload that belongs to request `request_id` (PUT). `pieces` are the transport's until
  // `done`, which gets CANCELLED when the request has ended already.
  virtual void SendPayload(uint64_t request_id, Op op, uint32_t index, PartId part,
                           std::span<const RegisteredSpan> pieces, Done done) = 0;

  // Give up on a request: no OnReply will come, later payloads of it are rejected, the node is told
  // (CANCEL).
  virtual void Cancel(uint64_t request_id) = 0;

  virtual void Close(CloseMode mode) = 0;
};

// A HELLO of this software's versions for `transport`.
proto::Hello MakeHello(const Transport& transport, std::string role, std::string name,
                       std::span<const std::byte> instance);

// ---- server side ----

class ServerChannel;

class ServerChannelOwner {
 public:
  virtual ~ServerChannelOwner() = default;
  // Decide on a HELLO whose protocol, transport and format versions already match: fill `welcome`,
  // or return why not (UNAUTHENTICATED, FAILED_PRECONDITION, RESOURCE_EXHAUSTED), which becomes a
  // REFUSED with that message.
  virtual absl::Status OnHello(ServerChannel& channel, const proto::Hello& hello,
                               proto::Welcome* welcome) = 0;
  // A checked frame of a request. `body` is valid during the call. Answer with Reply, now or later,
  // once. CANCEL comes here too but has no answer: the request that it names is still to be
  // answered. Requests beyond the limit, reserved ops and malformed frames never come here.
  virtual void OnRequest(ServerChannel& channel, const FrameHeader& frame,
                         std::span<const std::byte> body) = 0;
  // A payload frame of a request (PUT); may come before the request itself. Payloads of requests
  // answered lately are rejected without coming here.
  virtual void OnPayload(ServerChannel& channel, const FrameHeader& frame,
                         IncomingPayload payload) = 0;
  // Every Done has been called. Last call; the channel may be destroyed from here on, not inside
  // the call.
  virtual void OnClosed(ServerChannel& channel, absl::Status why) = 0;
};

class ServerChannel {
 public:
  struct Options {
    ChannelTimeouts timeouts;
    uint32_t requests_max = 256;  // outstanding; more are answered RESOURCE_EXHAUSTED
    std::string node;
    uint64_t incarnation = 0;
    std::string format_version;
    // The owner's number of this connection, unique in its process; 0: the channel takes one from a
    // counter of the process, which a simulation that repeats a run must not use.
    uint64_t id = 0;
    // Bounds the lines that peers can cause; borrowed, outlives the channel. Null: no bound.
    LogLimiter* maybe_log = nullptr;
  };
  // For use in a Transport's AcceptHandler: returns the connection's handler through `handler()`.
  static std::unique_ptr<ServerChannel> Accept(Transport& transport,
                                               std::unique_ptr<Connection> connection,
                                               Options options, ServerChannelOwner& owner);
  virtual ~ServerChannel() = default;
  virtual ConnectionHandler& handler() = 0;

  virtual uint64_t id() const = 0;  // unique in this process
  virtual Transport& transport() = 0;
  virtual const proto::Hello& hello() const = 0;
  virtual std::string peer() const = 0;

  // Answer `request`. A body is sent only with OK; other statuses carry their message. A second
  // answer, and any answer after the end, is ignored. A client that does not take its answers is
  // closed.
  virtual void Reply(const FrameHeader& request, const absl::Status& status,
                     const google::protobuf::MessageLite* body = nullptr) = 0;
  virtual void SendPayload(const FrameHeader& request, uint32_t index, PartId part,
                           std::span<const RegisteredSpan> pieces, Done done) = 0;
  // Tell the client that this node drains.
  virtual void SendGoodbye(std::string reason) = 0;
  virtual void Close(CloseMode mode) = 0;
};

// "0.REVISION" of the block format, set once by the program before any channel starts (common/net
// does not know kernels).
void SetFormatVersion(std::string version);
const std::string& FormatVersion();
inline constexpr char kSoftwareVersion[] = "0.1.0";

}  // namespace tokura::net
