#include "common/net/ucx_endpoint.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/net/ucx_context.h"

namespace tokura::net {

// One request in UCX's hands, with copies of whatever must live as long as it.
struct UcxOperation {
  enum class Kind { kMessage, kPayload, kReceive };
  UcxEndpoint* endpoint = nullptr;
  Kind kind = Kind::kMessage;
  Done done;                      // payloads and receives
  uint64_t payload_id = 0;        // payloads
  bool rejected = false;          // payloads: the peer said so
  size_t counted_bytes = 0;       // messages: their share of unsent_bytes_
  size_t expected_bytes = 0;      // receives
  std::vector<std::byte> bytes;   // messages: header and body; payloads: id and header
  std::vector<ucp_dt_iov_t> iov;  // payloads of several pieces
};

namespace {

// Rounds of the loop, each with one call of ucp_worker_progress at least; UCX 1.22 needs one.
constexpr int kSettleRounds = 4;

ucp_mem_h HandleOf(const RegisteredSpan& span) {
  TOKURA_CHECK(span.region != nullptr);
  return static_cast<const UcxMemoryRegion*>(span.region)->handle();
}

}  // namespace

UcxEndpoint::UcxEndpoint(UcxEndpointHost& host, uint64_t id, std::string peer)
    : host_(host), id_(id), peer_(std::move(peer)) {}

UcxEndpoint::~UcxEndpoint() {
  TOKURA_CHECK(operations_ == 0);
  TOKURA_CHECK(offers_.empty());
  if (connection_ != nullptr) {
    connection_->Detach();
  }
}

// ---- coming into being ----

void UcxEndpoint::Connect(const sockaddr* address, socklen_t address_bytes) {
  if (state_ != State::kConnecting) {
    return;  // Closed while its name was looked up: nobody would close what is created now.
  }
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
  params.sockaddr.addr = address;
  params.sockaddr.addrlen = address_bytes;
  Create(&params);
}

void UcxEndpoint::Accept(ucp_conn_request_h request) {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  state_ = State::kOpen;
  Create(&params);
}

void UcxEndpoint::Create(ucp_ep_params_t* params) {
  params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params->err_handler.cb = ErrorHandler;
  params->err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(host_.worker(), params, &handle_);
  if (status != UCS_OK) {
    handle_ = nullptr;
    Fail(ConnectFailure(status));
    return;
  }
  host_.AddHandle(handle_, *this);
}

void UcxEndpoint::FailToStart(absl::Status why) {
  if (state_ != State::kConnecting) {
    return;
  }
  Fail(std::move(why));
}

absl::Status UcxEndpoint::ConnectFailure(ucs_status_t status) const {
  const std::string reason =
      absl::StrCat("cannot connect to ", peer_, ": ", ucs_status_string(status));
  const std::string versions =
      absl::StrCat(" (this side speaks ", UcxClientId::Local().ToString(),
                   "; a peer of other versions refuses it: compare with /version on the admin port "
                   "of the node)");
  switch (status) {
    case UCS_ERR_REJECTED:
    case UCS_ERR_INVALID_PARAM:
      return absl::FailedPreconditionError(reason + versions);
    case UCS_ERR_UNREACHABLE:
      return absl::UnavailableError(reason + versions);
    default:
      return absl::UnavailableError(reason);
  }
}

// ---- sending ----

bool UcxEndpoint::TrySendNow(unsigned id, std::span<const std::byte> header,
                             std::span<const std::byte> body, ucs_status_t* status) {
  // Succeeds at once, without a request and a copy, or is refused without effect.
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  param.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t result =
      ucp_am_send_nbx(handle_, id, header.data(), header.size(), body.data(), body.size(), &param);
  TOKURA_CHECK(result == nullptr || UCS_PTR_IS_ERR(result));
  *status = UCS_PTR_STATUS(result);
  return *status != UCS_ERR_NO_RESOURCE;
}

absl::Status UcxEndpoint::SendEager(unsigned id, std::span<const std::byte> header,
                                    std::span<const std::byte> body) {
  ucs_status_t status = UCS_OK;
  if (!TrySendNow(id, header, body, &status)) {
    auto* operation = new UcxOperation;  // End deletes it
    // With what it takes to wait, which for a control message is most of it.
    operation->counted_bytes = sizeof(UcxOperation) + header.size() + body.size();
    operation->bytes.reserve(header.size() + body.size());
    operation->bytes.assign(header.begin(), header.end());
    operation->bytes.insert(operation->bytes.end(), body.begin(), body.end());
    const std::byte* copy = operation->bytes.data();
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                         UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    param.cb.send = SendDone;
    param.user_data = operation;
    Start(*operation);
    const ucs_status_ptr_t request = ucp_am_send_nbx(handle_, id, copy, header.size(),
                                                     copy + header.size(), body.size(), &param);
    status = EndIfOver(*operation, request);
  }
  if (status == UCS_OK) {
    return absl::OkStatus();
  }
  absl::Status failure = UcxStatus(status, absl::StrCat("cannot send to ", peer_));
  if (EndpointLost(status)) {
    failure = absl::UnavailableError(failure.message());
    Fail(failure);
  }
  return failure;
}

absl::Status UcxEndpoint::SendMessage(std::span<const std::byte> header,
                                      std::span<const std::byte> body) {
  TOKURA_CHECK(header.size() <= kHeaderBytesMax && body.size() <= kMessageBytesMax);
  if (handle_ == nullptr || (state_ != State::kConnecting && state_ != State::kOpen)) {
    return absl::UnavailableError(absl::StrCat("the connection to ", peer_, " is not open"));
  }
  if (unsent_bytes_ + header.size() + body.size() > host_.options().unsent_bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(unsent_bytes_, " bytes of messages wait for ", peer_, " already"));
  }
  return SendEager(kUcxMessage, header, body);
}

void UcxEndpoint::SendControl(UcxControl control) {
  if (handle_ == nullptr || state_ == State::kClosing || state_ == State::kClosed) {
    return;
  }
  // What control messages are about is bounded, but a peer that makes us answer and takes nothing
  // could pile them up: they have as much room again as messages.
  if (unsent_bytes_ + kControlBytes > 2 * host_.options().unsent_bytes_max) {
    Fail(absl::UnavailableError(absl::StrCat(peer_, " does not take control messages")));
    return;
  }
  std::byte bytes[kControlBytes];
  SerializeControl(control, bytes);
  // A failure closes the endpoint, which settles what the control message was about.
  if (absl::Status status = SendEager(kUcxControl, bytes, {}); !status.ok()) {
    Fail(absl::UnavailableError(status.message()));
  }
}

void UcxEndpoint::SendPayload(std::span<const std::byte> header,
                              std::span<const RegisteredSpan> pieces, Done done) {
  TOKURA_CHECK(header.size() <= kHeaderBytesMax);
  TOKURA_CHECK(!pieces.empty() && pieces.size() <= kPayloadPiecesMax);
  if (handle_ == nullptr || (state_ != State::kConnecting && state_ != State::kOpen)) {
    host_.Complete(std::move(done), absl::UnavailableError(
                                        absl::StrCat("the connection to ", peer_, " is not open")));
    return;
  }
  auto* operation = new UcxOperation;  // End deletes it
  operation->kind = UcxOperation::Kind::kPayload;
  operation->done = std::move(done);
  operation->payload_id = ++last_payload_;
  operation->bytes.resize(kPayloadIdBytes + header.size());
  SerializePayloadId(operation->payload_id, std::span<std::byte, kPayloadIdBytes>(
                                                operation->bytes.data(), kPayloadIdBytes));
  std::copy(header.begin(), header.end(), operation->bytes.begin() + kPayloadIdBytes);

  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                       UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.cb.send = SendDone;
  param.user_data = operation;
  const void* buffer = pieces[0].data;
  size_t count = pieces[0].size;
  if (pieces.size() == 1) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = HandleOf(pieces[0]);
  } else {
    // UCX takes one memory handle, so none here: fine over TCP, which only copies. On a transport
    // that needs registered memory UCX registers the pieces of each such send anew.
    operation->iov.reserve(pieces.size());
    for (const RegisteredSpan& piece : pieces) {
      operation->iov.push_back({piece.data, piece.size});
    }
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = UCP_DATATYPE_IOV;
    buffer = operation->iov.data();
    count = operation->iov.size();
  }
  sending_.emplace(operation->payload_id, operation);
  Start(*operation);
  const ucs_status_ptr_t request = ucp_am_send_nbx(handle_, kUcxPayload, operation->bytes.data(),
                                                   operation->bytes.size(), buffer, count, &param);
  EndIfOver(*operation, request);
}

// ---- operations ----

void UcxEndpoint::Start(UcxOperation& operation) {
  operation.endpoint = this;
  ++operations_;
  unsent_bytes_ += operation.counted_bytes;
  host_.CountOperations(1);
}

void UcxEndpoint::End(UcxOperation& operation, ucs_status_t status) {
  const std::unique_ptr<UcxOperation> owned(&operation);
  --operations_;
  unsent_bytes_ -= operation.counted_bytes;
  host_.CountOperations(-1);
  if (operation.kind == UcxOperation::Kind::kPayload) {
    sending_.erase(operation.payload_id);
    if (status == UCS_OK && operation.rejected) {
      status = UCS_ERR_NO_RESOURCE;
    }
  }
  if (status == UCS_OK) {
    if (operation.done) {
      host_.Complete(std::move(operation.done), absl::OkStatus());
    }
  } else if (operation.kind == UcxOperation::Kind::kPayload && status == UCS_ERR_NO_RESOURCE) {
    host_.Complete(std::move(operation.done),
                   absl::ResourceExhaustedError(absl::StrCat(peer_, " rejected the payload")));
  } else {
    if (operation.done) {
      held_.push_back(std::move(operation.done));
    }
    // One lost operation leaves both sides with different ideas of the connection.
    absl::Status why = UcxStatus(status, absl::StrCat("lost the connection to ", peer_));
    Fail(absl::UnavailableError(why.message()));
  }
  if (state_ != State::kOpen && state_ != State::kConnecting && operations_ == 0) {
    host_.NeedsAttention(*this);
  }
}

ucs_status_t UcxEndpoint::EndIfOver(UcxOperation& operation, ucs_status_ptr_t request) {
  // UCP_OP_ATTR_FLAG_NO_IMM_CMPL would make this case disappear, but with it UCX 1.22 takes a
  // gather list for contiguous bytes.
  if (UCS_PTR_IS_PTR(request)) {
    return UCS_OK;  // SendDone follows
  }
  const ucs_status_t status = UCS_PTR_STATUS(request);
  End(operation, status);
  return status;
}

void UcxEndpoint::SendDone(void* request, ucs_status_t status, void* argument) {
  ucp_request_free(request);
  auto* operation = static_cast<UcxOperation*>(argument);
  operation->endpoint->End(*operation, status);
}

void UcxEndpoint::ReceiveDone(void* request, ucs_status_t status, size_t size, void* argument) {
  ucp_request_free(request);
  auto* operation = static_cast<UcxOperation*>(argument);
  if (status == UCS_OK && size != operation->expected_bytes) {
    status = UCS_ERR_MESSAGE_TRUNCATED;
  }
  operation->endpoint->End(*operation, status);
}

// ---- receiving ----

ucs_status_t UcxEndpoint::OnMessage(std::span<const std::byte> header,
                                    std::span<const std::byte> body) {
  if (state_ == State::kClosing || state_ == State::kClosed || handler_ == nullptr) {
    return UCS_OK;
  }
  if (header.size() > kHeaderBytesMax || body.size() > kMessageBytesMax) {
    OnViolation("a message beyond the limits");
    return UCS_OK;
  }
  handler_->OnMessage(*connection_, header, body);
  return UCS_OK;
}

ucs_status_t UcxEndpoint::OnPayload(std::span<const std::byte> header, void* descriptor,
                                    size_t size) {
  if (state_ == State::kClosing || state_ == State::kClosed || handler_ == nullptr) {
    return UCS_ERR_CANCELED;
  }
  if (header.size() < kPayloadIdBytes || header.size() > kPayloadHeaderBytesMax) {
    OnViolation("a payload whose header has a wrong size");
    return UCS_ERR_CANCELED;
  }
  const std::optional<uint64_t> payload_id = ParsePayloadId(header.first<kPayloadIdBytes>());
  if (!payload_id) {
    OnViolation("a payload whose id has a wrong checksum");
    return UCS_ERR_CANCELED;
  }
  auto offer = std::make_shared<UcxOffer>();
  offer->host = &host_;
  offer->maybe_endpoint = this;
  offer->number = ++last_offer_;
  offer->payload_id = *payload_id;
  offer->descriptor = descriptor;
  offer->size = size;
  offers_.emplace(offer->number, offer);
  handler_->OnPayload(*connection_, header.subspan(kPayloadIdBytes),
                      IncomingPayload(std::make_unique<UcxPayload>(offer)));
  offer->in_callback = false;
  if (offer->answer == UcxOffer::Answer::kReject) {
    // The status travels back and ends the sender's request; UCX drops the descriptor.
    offer->maybe_endpoint = nullptr;
    offers_.erase(offer->number);
    return UCS_ERR_NO_RESOURCE;
  }
  return UCS_INPROGRESS;
}

void UcxEndpoint::ReceiveOffer(UcxOffer& offer, RegisteredSpan destination, Done done) {
  TOKURA_CHECK(destination.size >= offer.size);
  if (state_ == State::kClosing || state_ == State::kClosed) {
    Hold(std::move(done));
    return;
  }
  auto* operation = new UcxOperation;  // End deletes it
  operation->kind = UcxOperation::Kind::kReceive;
  operation->done = std::move(done);
  operation->expected_bytes = offer.size;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.memh = HandleOf(destination);
  param.cb.recv_am = ReceiveDone;
  param.user_data = operation;
  void* descriptor = offer.descriptor;
  const size_t size = offer.size;
  offer.answer = UcxOffer::Answer::kReceive;
  offer.maybe_endpoint = nullptr;
  offers_.erase(offer.number);
  Start(*operation);
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(host_.worker(), descriptor, destination.data, size, &param);
  if (UCS_PTR_IS_ERR(request)) {
    End(*operation, UCS_PTR_STATUS(request));
  }
}

void UcxEndpoint::RejectOffer(const std::shared_ptr<UcxOffer>& offer) {
  offer->answer = UcxOffer::Answer::kReject;
  if (offer->in_callback || state_ == State::kClosing || state_ == State::kClosed) {
    return;  // the end of the callback, or of the connection, settles it
  }
  rejecting_[offer->payload_id] = offer->number;
  SendControl({UcxControlOp::kReject, offer->payload_id});
}

void UcxEndpoint::OnControl(std::span<const std::byte> bytes) {
  if (state_ == State::kClosing || state_ == State::kClosed) {
    return;
  }
  const std::optional<UcxControl> control = ParseControl(bytes);
  if (!control) {
    OnViolation("a control message that is unknown or damaged");
    return;
  }
  HandleControl(*control);
}

void UcxEndpoint::HandleControl(UcxControl control) {
  switch (control.op) {
    case UcxControlOp::kOpen:
      if (state_ == State::kConnecting) {
        state_ = State::kOpen;
        handler_->OnConnected(*connection_);
      }
      break;
    case UcxControlOp::kReject:
      if (const auto found = sending_.find(control.argument); found != sending_.end()) {
        found->second->rejected = true;
      }
      SendControl({UcxControlOp::kRejectSeen, control.argument});
      break;
    case UcxControlOp::kRejectSeen:
      if (const auto found = rejecting_.find(control.argument); found != rejecting_.end()) {
        const auto offer = offers_.find(found->second);
        rejecting_.erase(found);
        TOKURA_CHECK(offer != offers_.end());
        offer->second->maybe_endpoint = nullptr;
        ucp_am_data_release(host_.worker(), offer->second->descriptor);
        offers_.erase(offer);
      }
      break;
    case UcxControlOp::kFin:
      peer_fin_ = true;
      SendControl({UcxControlOp::kFinSeen, 0});
      break;
    case UcxControlOp::kFinSeen:
      if (state_ == State::kFlushing && fin_sent_) {
        state_ = State::kClosing;
        why_ = absl::OkStatus();
        host_.NeedsAttention(*this);
      }
      break;
  }
}

void UcxEndpoint::OnViolation(const char* what) {
  Fail(absl::UnavailableError(absl::StrCat(peer_, " broke the transport's protocol: ", what)));
}

// ---- closing ----

void UcxEndpoint::ErrorHandler(void* argument, ucp_ep_h /*handle*/, ucs_status_t status) {
  auto* self = static_cast<UcxEndpoint*>(argument);
  if (self->state_ == State::kConnecting) {
    self->Fail(self->ConnectFailure(status));
  } else if (self->peer_fin_) {
    self->Fail(absl::UnavailableError(absl::StrCat(self->peer_, " closed the connection")));
  } else {
    self->Fail(absl::UnavailableError(
        absl::StrCat("lost the connection to ", self->peer_, ": ", ucs_status_string(status))));
  }
}

void UcxEndpoint::Fail(absl::Status why) {
  if (state_ == State::kClosing || state_ == State::kClosed) {
    return;
  }
  // When both sides close at the same time, the peer's end is the answer to ours.
  const bool orderly = state_ == State::kFlushing && fin_sent_ && peer_fin_;
  state_ = State::kClosing;
  why_ = orderly ? absl::OkStatus() : std::move(why);
  host_.NeedsAttention(*this);
}

void UcxEndpoint::Close(CloseMode mode) {
  if (mode == CloseMode::kAbort) {
    if (state_ == State::kClosing || state_ == State::kClosed) {
      return;
    }
    state_ = State::kClosing;
    why_ = absl::CancelledError(absl::StrCat("the connection to ", peer_, " was aborted"));
    host_.NeedsAttention(*this);
    return;
  }
  if (state_ != State::kConnecting && state_ != State::kOpen) {
    return;
  }
  state_ = State::kFlushing;
  UcxEventLoop& loop = host_.loop();
  flush_timer_ = loop.RunAt(loop.Now() + host_.options().close_timeout, [&host = host_, id = id_] {
    if (UcxEndpoint* self = host.Find(id); self != nullptr) {
      self->flush_timer_ = 0;
      self->Close(CloseMode::kAbort);
    }
  });
  host_.NeedsAttention(*this);
}

void UcxEndpoint::Attend() {
  if (state_ == State::kFlushing && handle_ == nullptr) {
    state_ = State::kClosing;  // its name is not known yet: nothing was sent
    why_ = absl::OkStatus();
  }
  if (state_ == State::kFlushing && operations_ == 0 && !fin_sent_) {
    fin_sent_ = true;
    SendControl({UcxControlOp::kFin, 0});
  }
  if (state_ != State::kClosing) {
    return;
  }
  if (!close_started_) {
    StartClose();
  }
  if (!close_done_ || operations_ > 0) {
    return;
  }
  // UCX reports the close some calls of ucp_worker_progress before it has closed the sockets, over
  // which the peer may still write into the buffers of what was aborted.
  if (settle_rounds_ < kSettleRounds) {
    ++settle_rounds_;
    host_.NeedsAttention(*this);
    return;
  }
  Finish();
}

void UcxEndpoint::StartClose() {
  close_started_ = true;
  if (flush_timer_ != 0) {
    host_.loop().CancelTimer(std::exchange(flush_timer_, 0));
  }
  if (handle_ == nullptr) {
    close_done_ = true;
    return;
  }
  host_.RemoveHandle(handle_);
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = CloseDone;
  param.user_data = this;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(std::exchange(handle_, nullptr), &param);
  if (UCS_PTR_IS_PTR(request)) {
    host_.CountOperations(1);
    return;  // CloseDone follows
  }
  if (UCS_PTR_IS_ERR(request)) {
    Log(LogLevel::kWarn, "ucx", "close_failed",
        {{"peer", peer_}, {"status", ucs_status_string(UCS_PTR_STATUS(request))}});
  }
  close_done_ = true;
}

void UcxEndpoint::CloseDone(void* request, ucs_status_t /*status*/, void* argument) {
  ucp_request_free(request);
  auto* self = static_cast<UcxEndpoint*>(argument);
  self->host_.CountOperations(-1);
  self->close_done_ = true;
  self->host_.NeedsAttention(*self);
}

void UcxEndpoint::Finish() {
  state_ = State::kClosed;
  ReleaseOffers();
  const absl::Status status =
      absl::IsCancelled(why_)
          ? why_
          : absl::UnavailableError(why_.ok() ? "the connection was closed" : why_.message());
  for (Done& done : held_) {
    host_.Complete(std::move(done), status);
  }
  held_.clear();
  host_.Finished(*this);
}

void UcxEndpoint::ReleaseOffers() {
  // The endpoint is gone, so UCX cannot tell the sender that its payload arrived.
  for (const auto& [number, offer] : offers_) {
    offer->maybe_endpoint = nullptr;
    ucp_am_data_release(host_.worker(), offer->descriptor);
  }
  offers_.clear();
  rejecting_.clear();
}

void UcxEndpoint::TellClosed() {
  if (handler_ != nullptr && connection_ != nullptr) {
    UcxConnection& connection = *connection_;
    connection.Detach();
    connection_ = nullptr;
    std::exchange(handler_, nullptr)->OnClosed(connection, why_);
  }
}

void UcxEndpoint::AppendLanes(std::vector<std::string>* lanes) const {
  if (handle_ != nullptr) {
    const std::vector<std::string> own = UcxLanes(handle_);
    lanes->insert(lanes->end(), own.begin(), own.end());
  }
}

// ---- what users hold ----

void UcxPayload::Receive(RegisteredSpan destination, Done done) {
  if (offer_->maybe_endpoint == nullptr) {
    offer_->host->Complete(std::move(done),
                           absl::UnavailableError("the connection of the payload has ended"));
    return;
  }
  offer_->maybe_endpoint->ReceiveOffer(*offer_, destination, std::move(done));
}

void UcxPayload::Reject() {
  if (offer_->maybe_endpoint != nullptr) {
    offer_->maybe_endpoint->RejectOffer(offer_);
  }
}

UcxConnection::UcxConnection(UcxEndpointHost& host, UcxEndpoint& endpoint)
    : host_(host), endpoint_(&endpoint), peer_(endpoint.peer()) {
  endpoint.SetConnection(this);
}

UcxConnection::~UcxConnection() {
  if (endpoint_ != nullptr) {
    // Only a connection that its acceptor refuses goes before its OnClosed.
    TOKURA_CHECK(!endpoint_->has_handler());
    endpoint_->SetConnection(nullptr);
    endpoint_->Close(CloseMode::kAbort);
  }
}

absl::Status UcxConnection::SendMessage(std::span<const std::byte> header,
                                        std::span<const std::byte> body) {
  if (endpoint_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("the connection to ", peer_, " is closed"));
  }
  return endpoint_->SendMessage(header, body);
}

void UcxConnection::SendPayload(std::span<const std::byte> header,
                                std::span<const RegisteredSpan> pieces, Done done) {
  if (endpoint_ == nullptr) {
    host_.Complete(std::move(done),
                   absl::UnavailableError(absl::StrCat("the connection to ", peer_, " is closed")));
    return;
  }
  endpoint_->SendPayload(header, pieces, std::move(done));
}

void UcxConnection::Close(CloseMode mode) {
  if (endpoint_ != nullptr) {
    endpoint_->Close(mode);
  }
}

}  // namespace tokura::net
