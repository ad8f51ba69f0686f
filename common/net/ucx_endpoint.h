#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/net/transport.h"
#include "common/net/ucx_api.h"
#include "common/net/ucx_event_loop.h"
#include "common/net/ucx_wire.h"

namespace tokura::net {

class UcxConnection;
class UcxEndpoint;
struct UcxOffer;
struct UcxOperation;

// What an endpoint needs from the transport that owns it.
class UcxEndpointHost {
 public:
  virtual ~UcxEndpointHost() = default;
  virtual ucp_worker_h worker() = 0;
  virtual UcxEventLoop& loop() = 0;
  virtual const UcxTransport::Options& options() const = 0;
  // Call `done` with `status` from the loop, in the order of these calls.
  virtual void Complete(Done done, absl::Status status) = 0;
  // Call endpoint.Attend() from the loop, outside any callback of UCX.
  virtual void NeedsAttention(UcxEndpoint& endpoint) = 0;
  // Call endpoint.TellClosed() from the loop after all completions so far, then destroy it.
  virtual void Finished(UcxEndpoint& endpoint) = 0;
  // `endpoint` now has this handle, under which its messages arrive; forget it again.
  virtual void AddHandle(ucp_ep_h handle, UcxEndpoint& endpoint) = 0;
  virtual void RemoveHandle(ucp_ep_h handle) = 0;
  // Count operations under way, over all endpoints.
  virtual void CountOperations(int64_t change) = 0;
  // The endpoint of that id, or null when it is gone.
  virtual UcxEndpoint* Find(uint64_t id) = 0;
};

// One UCX endpoint and everything under way on it, from its creation until the peer is gone and
// every buffer is back. Lives in its transport longer than the Connection that users see, because
// UCX settles accounts late. Owned by the transport's thread.
//
//   kConnecting ──kOpen──► kOpen ──Close(kFlush)──► kFlushing ──drained, kFin, kFinSeen──► kClosing
//        └──────── failure, Close(kAbort), or the close timeout, from each of them ───────────┘
//   kClosing: UCX was told to close by force; when that and every operation has ended: kClosed.
//
// Buffers of operations that end in error are given back only after UCX has closed the endpoint, so
// that a write which is still under way cannot reach memory that is in other use.
class UcxEndpoint {
 public:
  UcxEndpoint(UcxEndpointHost& host, uint64_t id, std::string peer);
  ~UcxEndpoint();
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  uint64_t id() const { return id_; }
  const std::string& peer() const { return peer_; }

  // Start to connect to `address`, or take over an accepted request. On failure the endpoint closes
  // by itself. Connect and FailToStart do nothing once the endpoint has been closed.
  void Connect(const sockaddr* address, socklen_t address_bytes);
  void Accept(ucp_conn_request_h request);
  // Nothing was created and nothing will be: close with `why`.
  void FailToStart(absl::Status why);
  // A null handler: nobody wants to hear of this connection.
  void SetHandler(ConnectionHandler* maybe_handler) { handler_ = maybe_handler; }
  void SetConnection(UcxConnection* maybe_connection) { connection_ = maybe_connection; }
  bool has_handler() const { return handler_ != nullptr; }
  // Tell the client that the connection stands.
  void SendOpen() { SendControl({UcxControlOp::kOpen, 0}); }

  // As in Connection.
  absl::Status SendMessage(std::span<const std::byte> header, std::span<const std::byte> body);
  void SendPayload(std::span<const std::byte> header, std::span<const RegisteredSpan> pieces,
                   Done done);
  void Close(CloseMode mode);

  // As in IncomingPayload::Impl, for an offer of this endpoint.
  void ReceiveOffer(const std::shared_ptr<UcxOffer>& offer, RegisteredSpan destination,
                    Arrived maybe_arrived, Done done);
  void RejectOffer(const std::shared_ptr<UcxOffer>& offer);

  // Called inside UCX's callbacks for active messages of this endpoint.
  ucs_status_t OnMessage(std::span<const std::byte> header, std::span<const std::byte> body);
  ucs_status_t OnPayload(std::span<const std::byte> header, void* descriptor, size_t size);
  void OnControl(std::span<const std::byte> bytes);
  // The peer does not follow the protocol.
  void OnViolation(const char* what);

  // The parts of the state machine that must not run inside UCX's callbacks.
  void Attend();
  // The last call.
  void TellClosed();

  // See UcxLanes.
  void AppendLanes(std::vector<std::string>* lanes) const;

 private:
  enum class State { kConnecting, kOpen, kFlushing, kClosing, kClosed };

  static void ErrorHandler(void* argument, ucp_ep_h handle, ucs_status_t status);
  static void SendDone(void* request, ucs_status_t status, void* argument);
  static void ReceiveDone(void* request, ucs_status_t status, size_t size, void* argument);
  static void CloseDone(void* request, ucs_status_t status, void* argument);

  void Create(ucp_ep_params_t* params);
  bool TrySendNow(unsigned id, std::span<const std::byte> header, std::span<const std::byte> body,
                  ucs_status_t* status);
  absl::Status SendEager(unsigned id, std::span<const std::byte> header,
                         std::span<const std::byte> body);
  void SendControl(UcxControl control);
  // Offer `count` bytes of `pieces` from chunk.offset on. Returns what UCX returned.
  ucs_status_ptr_t SendChunk(UcxOperation& operation, std::span<const RegisteredSpan> pieces,
                             const UcxChunk& chunk, size_t count);
  ucs_status_t OnFirstChunk(const UcxChunk& chunk, std::span<const std::byte> header,
                            void* descriptor, size_t size);
  ucs_status_t OnLaterChunk(const UcxChunk& chunk, void* descriptor, size_t size);
  // Fetch chunks that were accepted, as far as the window reaches.
  void PumpReceives();
  void ReceiveChunk(const std::shared_ptr<UcxOffer>& offer, size_t index);
  void OnChunk(const std::shared_ptr<UcxOffer>& offer, size_t index);
  void OnRejectSeen(uint64_t payload_id);
  // Let UCX forget what it keeps of an offer.
  void Release(UcxOffer& offer);

  void Start(UcxOperation& operation);
  // One of the operation's requests has ended, or is not needed any more.
  void End(UcxOperation& operation, ucs_status_t status);
  void Settle(UcxOperation& operation);
  // End `operation` when `request`, what UCX returned for it, says that it is over already. Returns
  // its status, OK when it is under way.
  ucs_status_t EndIfOver(UcxOperation& operation, ucs_status_ptr_t request);
  void HandleControl(UcxControl control);
  // The endpoint is of no more use: close it by force and report `why`.
  void Fail(absl::Status why);
  absl::Status ConnectFailure(ucs_status_t status) const;
  void StartClose();
  void Finish();

  UcxEndpointHost& host_;
  const uint64_t id_;
  const std::string peer_;
  ConnectionHandler* handler_ = nullptr;  // borrowed
  UcxConnection* connection_ = nullptr;   // borrowed; null once destroyed
  ucp_ep_h handle_ = nullptr;
  State state_ = State::kConnecting;
  absl::Status why_;
  bool close_started_ = false;
  bool close_done_ = false;
  int settle_rounds_ = 0;
  bool fin_sent_ = false;
  bool peer_fin_ = false;
  TimerId flush_timer_ = 0;

  uint64_t operations_ = 0;  // under way in UCX
  uint64_t unsent_bytes_ = 0;
  uint64_t last_payload_ = 0;
  // By payload id. Looked up, never walked.
  std::unordered_map<uint64_t, UcxOperation*> sending_;
  // Offers that are not settled, by the sender's payload id; each is also held by the
  // IncomingPayload that was given out, or by its receives.
  std::map<uint64_t, std::shared_ptr<UcxOffer>> offers_;
  uint64_t last_offer_ = 0;
  std::deque<std::shared_ptr<UcxOffer>> receiving_;  // accepted, with chunks still to fetch
  size_t receiving_bytes_ = 0;                       // that UCX was told to fetch
  std::vector<Done> held_;
};

// A payload that the peer offers. Shared by the endpoint (which settles it), the IncomingPayload
// given to the user (who may keep it longer than the connection), and the receives under way.
struct UcxOffer {
  UcxEndpointHost* host = nullptr;
  UcxEndpoint* maybe_endpoint = nullptr;  // null once settled
  uint64_t payload_id = 0;
  size_t size = 0;
  bool in_callback = true;  // its first chunk is being announced
  enum class Answer { kNone, kReceive, kReject } answer = Answer::kNone;
  bool rejected_at_once = false;  // inside the callback: UCX tells the sender, chunk by chunk

  // In order. A descriptor is UCX's, and valid until it is received or released.
  struct Chunk {
    void* maybe_descriptor;
    size_t offset;
    size_t size;
    bool arrived = false;
  };
  std::vector<Chunk> chunks;
  size_t announced = 0;  // bytes of all chunks that were offered

  // Once accepted.
  RegisteredSpan destination;
  Arrived maybe_arrived;
  Done done;
  size_t next_chunk = 0;    // to fetch
  size_t chunks_whole = 0;  // leading ones that have arrived
};

class UcxPayload final : public IncomingPayload::Impl {
 public:
  explicit UcxPayload(std::shared_ptr<UcxOffer> offer) : offer_(std::move(offer)) {}
  size_t size() const override { return offer_->size; }
  void Receive(RegisteredSpan destination, Arrived maybe_arrived, Done done) override;
  void Reject() override;

 private:
  const std::shared_ptr<UcxOffer> offer_;
};

// What users hold. Stays valid, and refuses everything, when its endpoint has gone.
class UcxConnection final : public Connection {
 public:
  UcxConnection(UcxEndpointHost& host, UcxEndpoint& endpoint);
  ~UcxConnection() override;
  absl::Status SendMessage(std::span<const std::byte> header,
                           std::span<const std::byte> body) override;
  void SendPayload(std::span<const std::byte> header, std::span<const RegisteredSpan> pieces,
                   Done done) override;
  void Close(CloseMode mode) override;
  std::string peer() const override { return peer_; }

  void Detach() { endpoint_ = nullptr; }

 private:
  UcxEndpointHost& host_;
  UcxEndpoint* endpoint_;  // null once closed
  const std::string peer_;
};

}  // namespace tokura::net
