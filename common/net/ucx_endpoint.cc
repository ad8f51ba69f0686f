#include "common/net/ucx_endpoint.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/net/ucx_context.h"

namespace tokura::net {

// One or more requests in UCX's hands, with copies of whatever must live as long as they.
struct UcxOperation {
  enum class Kind { kMessage, kPayload, kReceive };
  UcxEndpoint* endpoint = nullptr;
  Kind kind = Kind::kMessage;
  Done done;                     // payloads
  size_t requests = 1;           // that End must hear of
  ucs_status_t status = UCS_OK;  // the first that was none
  uint64_t payload_id = 0;       // payloads
  bool rejected = false;         // payloads: the peer said so
  size_t counted_bytes = 0;      // messages: their share of unsent_bytes_
  std::vector<std::byte> bytes;  // messages: header and body; payloads: header
  // Payloads: what precedes each chunk's bytes, and the gather list of those of several pieces.
  struct Chunk {
    std::vector<std::byte> header;
    std::vector<ucp_dt_iov_t> iov;
  };
  std::deque<Chunk> chunks;
  std::shared_ptr<UcxOffer> offer;  // receives, shared with the endpoint
  size_t chunk = 0;                 // receives: index in it
};

namespace {

// Rounds of the loop, each with one call of ucp_worker_progress at least; UCX 1.22 needs one.
constexpr int kSettleRounds = 4;

// Bytes of one connection that UCX is told to fetch at a time. As many as keep the wire busy; with
// more, what the sender has under way falls out of the processors' caches before it is received.
constexpr size_t kReceiveWindowBytes = size_t{1536} << 10;

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
  operation->bytes.assign(header.begin(), header.end());
  sending_.emplace(operation->payload_id, operation);
  Start(*operation);
  UcxChunk chunk{.payload_id = operation->payload_id};
  for (const RegisteredSpan& piece : pieces) {
    chunk.total += piece.size;
  }
  const size_t chunk_bytes = ChunkBytes(chunk.total);
  ucs_status_t status = UCS_OK;
  do {
    const size_t count = std::min<size_t>(chunk_bytes, chunk.total - chunk.offset);
    const ucs_status_ptr_t request = SendChunk(*operation, pieces, chunk, count);
    if (UCS_PTR_IS_PTR(request)) {
      ++operation->requests;  // SendDone follows
    } else {
      status = UCS_PTR_STATUS(request);
    }
    chunk.offset += count;
  } while (chunk.offset < chunk.total && status == UCS_OK);
  End(*operation, status);
}

ucs_status_ptr_t UcxEndpoint::SendChunk(UcxOperation& operation,
                                        std::span<const RegisteredSpan> pieces,
                                        const UcxChunk& chunk, size_t count) {
  UcxOperation::Chunk& sent = operation.chunks.emplace_back();
  sent.header.resize(kChunkHeaderBytes);
  SerializeChunk(chunk,
                 std::span<std::byte, kChunkHeaderBytes>(sent.header.data(), kChunkHeaderBytes));
  if (chunk.offset == 0) {
    sent.header.insert(sent.header.end(), operation.bytes.begin(), operation.bytes.end());
  }
  const RegisteredSpan* first = nullptr;
  size_t skip = chunk.offset;
  size_t left = count;
  for (const RegisteredSpan& piece : pieces) {
    const size_t here = skip < piece.size ? std::min(left, piece.size - skip) : 0;
    if (here > 0 || (count == 0 && first == nullptr)) {
      first = first == nullptr ? &piece : first;
      sent.iov.push_back({piece.data + skip, here});
    }
    skip -= std::min(skip, piece.size);
    left -= here;
  }
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                       UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.cb.send = SendDone;
  param.user_data = &operation;
  const void* buffer = sent.iov[0].buffer;
  if (sent.iov.size() == 1) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = HandleOf(*first);
  } else {
    // UCX takes one memory handle, so none here: fine over TCP, which only copies. On a transport
    // that needs registered memory UCX registers the pieces of each such send anew.
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = UCP_DATATYPE_IOV;
    buffer = sent.iov.data();
    count = sent.iov.size();
  }
  return ucp_am_send_nbx(handle_, kUcxPayload, sent.header.data(), sent.header.size(), buffer,
                         count, &param);
}

// ---- operations ----

void UcxEndpoint::Start(UcxOperation& operation) {
  operation.endpoint = this;
  ++operations_;
  unsent_bytes_ += operation.counted_bytes;
  host_.CountOperations(1);
}

void UcxEndpoint::End(UcxOperation& operation, ucs_status_t status) {
  // That a chunk was refused says less than that another was lost.
  if (operation.status == UCS_OK || operation.status == UCS_ERR_NO_RESOURCE) {
    operation.status = status == UCS_OK ? operation.status : status;
  }
  if (--operation.requests == 0) {
    Settle(operation);
  }
}

void UcxEndpoint::Settle(UcxOperation& operation) {
  const std::unique_ptr<UcxOperation> owned(&operation);
  ucs_status_t status = operation.status;
  --operations_;
  unsent_bytes_ -= operation.counted_bytes;
  host_.CountOperations(-1);
  if (operation.kind == UcxOperation::Kind::kPayload) {
    sending_.erase(operation.payload_id);
    if (status == UCS_OK && operation.rejected) {
      status = UCS_ERR_NO_RESOURCE;
    }
  } else if (operation.kind == UcxOperation::Kind::kReceive) {
    receiving_bytes_ -= operation.offer->chunks[operation.chunk].size;
  }
  if (status == UCS_OK) {
    if (operation.kind == UcxOperation::Kind::kReceive) {
      OnChunk(operation.offer, operation.chunk);
    } else if (operation.done) {
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
  if (status == UCS_OK && size != operation->offer->chunks[operation->chunk].size) {
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
  if (header.size() < kChunkHeaderBytes || header.size() > kPayloadHeaderBytesMax) {
    OnViolation("a payload whose header has a wrong size");
    return UCS_ERR_CANCELED;
  }
  const std::optional<UcxChunk> chunk = ParseChunk(header.first<kChunkHeaderBytes>());
  if (!chunk) {
    OnViolation("a payload whose place has a wrong checksum");
    return UCS_ERR_CANCELED;
  }
  const std::span<const std::byte> rest = header.subspan(kChunkHeaderBytes);
  const bool last = chunk->offset <= chunk->total && chunk->total - chunk->offset == size;
  if (!last && (chunk->offset > chunk->total || size > chunk->total - chunk->offset ||
                size < kChunkBytesMin)) {
    OnViolation("a part of a payload that has no place in it, or too few bytes");
    return UCS_ERR_CANCELED;
  }
  if (chunk->offset == 0) {
    return OnFirstChunk(*chunk, rest, descriptor, size);
  }
  if (!rest.empty()) {
    OnViolation("a second header of a payload");
    return UCS_ERR_CANCELED;
  }
  return OnLaterChunk(*chunk, descriptor, size);
}

ucs_status_t UcxEndpoint::OnFirstChunk(const UcxChunk& chunk, std::span<const std::byte> header,
                                       void* descriptor, size_t size) {
  if (chunk.payload_id <= last_offer_) {
    OnViolation("a payload whose number is not new");
    return UCS_ERR_CANCELED;
  }
  last_offer_ = chunk.payload_id;
  if (offers_.size() >= host_.options().offers_max) {
    OnViolation("more payloads at once than the limit");
    return UCS_ERR_CANCELED;
  }
  auto offer = std::make_shared<UcxOffer>();
  offer->host = &host_;
  offer->maybe_endpoint = this;
  offer->payload_id = chunk.payload_id;
  offer->size = chunk.total;
  offer->chunks.push_back({descriptor, 0, size});
  offer->announced = size;
  offers_.emplace(offer->payload_id, offer);
  handler_->OnPayload(*connection_, header, IncomingPayload(std::make_unique<UcxPayload>(offer)));
  offer->in_callback = false;
  if (offer->answer == UcxOffer::Answer::kReject) {
    // The status travels back and ends the sender's request; UCX drops the descriptor.
    offer->rejected_at_once = true;
    offer->chunks.clear();
    if (offer->announced == offer->size) {
      offers_.erase(offer->payload_id);
    }
    return UCS_ERR_NO_RESOURCE;
  }
  return UCS_INPROGRESS;
}

ucs_status_t UcxEndpoint::OnLaterChunk(const UcxChunk& chunk, void* descriptor, size_t size) {
  const auto found = offers_.find(chunk.payload_id);
  if (found == offers_.end() || chunk.offset != found->second->announced ||
      chunk.total != found->second->size) {
    OnViolation("a part of a payload that does not follow another");
    return UCS_ERR_CANCELED;
  }
  const std::shared_ptr<UcxOffer> offer = found->second;
  offer->announced += size;
  if (offer->rejected_at_once) {
    if (offer->announced == offer->size) {
      offers_.erase(found);
    }
    return UCS_ERR_NO_RESOURCE;
  }
  offer->chunks.push_back({descriptor, chunk.offset, size});
  if (offer->answer == UcxOffer::Answer::kReceive) {
    PumpReceives();
  }
  return UCS_INPROGRESS;
}

void UcxEndpoint::ReceiveOffer(const std::shared_ptr<UcxOffer>& offer, RegisteredSpan destination,
                               Arrived maybe_arrived, Done done) {
  TOKURA_CHECK(destination.size >= offer->size);
  offer->answer = UcxOffer::Answer::kReceive;
  offer->destination = destination;
  offer->maybe_arrived = std::move(maybe_arrived);
  offer->done = std::move(done);
  if (state_ != State::kClosing) {  // whose end settles it otherwise
    receiving_.push_back(offer);
    PumpReceives();
  }
}

void UcxEndpoint::PumpReceives() {
  while (!receiving_.empty() && receiving_bytes_ < kReceiveWindowBytes &&
         state_ != State::kClosing && state_ != State::kClosed) {
    const std::shared_ptr<UcxOffer> offer = receiving_.front();
    if (offer->next_chunk == offer->chunks.size()) {
      return;  // the next one is announced soon: all of a payload's are sent together
    }
    const size_t index = offer->next_chunk++;
    if (offer->chunks[index].offset + offer->chunks[index].size == offer->size) {
      receiving_.pop_front();
    }
    ReceiveChunk(offer, index);
  }
}

void UcxEndpoint::ReceiveChunk(const std::shared_ptr<UcxOffer>& offer, size_t index) {
  UcxOffer::Chunk& chunk = offer->chunks[index];
  auto* operation = new UcxOperation;  // End deletes it
  operation->kind = UcxOperation::Kind::kReceive;
  operation->offer = offer;
  operation->chunk = index;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.memh = HandleOf(offer->destination);
  param.cb.recv_am = ReceiveDone;
  param.user_data = operation;
  receiving_bytes_ += chunk.size;
  Start(*operation);
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(host_.worker(), std::exchange(chunk.maybe_descriptor, nullptr),
                           offer->destination.data + chunk.offset, chunk.size, &param);
  if (UCS_PTR_IS_ERR(request)) {
    End(*operation, UCS_PTR_STATUS(request));
  }
}

void UcxEndpoint::OnChunk(const std::shared_ptr<UcxOffer>& offer, size_t index) {
  offer->chunks[index].arrived = true;
  const size_t before = offer->chunks_whole;
  while (offer->chunks_whole < offer->chunks.size() && offer->chunks[offer->chunks_whole].arrived) {
    ++offer->chunks_whole;
  }
  PumpReceives();
  if (offer->chunks_whole == before) {
    return;
  }
  const UcxOffer::Chunk& last = offer->chunks[offer->chunks_whole - 1];
  const size_t arrived = last.offset + last.size;
  if (arrived == offer->size) {
    offer->maybe_endpoint = nullptr;
    offers_.erase(offer->payload_id);
    host_.Complete(std::move(offer->done), absl::OkStatus());
  } else if (offer->maybe_arrived) {
    host_.Complete([offer, arrived](const absl::Status&) { offer->maybe_arrived(arrived); },
                   absl::OkStatus());
  }
}

void UcxEndpoint::RejectOffer(const std::shared_ptr<UcxOffer>& offer) {
  offer->answer = UcxOffer::Answer::kReject;
  if (offer->in_callback || state_ == State::kClosing || state_ == State::kClosed) {
    return;  // the end of the callback, or of the connection, settles it
  }
  SendControl({UcxControlOp::kReject, offer->payload_id});
}

void UcxEndpoint::OnRejectSeen(uint64_t payload_id) {
  const auto found = offers_.find(payload_id);
  if (found == offers_.end() || found->second->answer != UcxOffer::Answer::kReject ||
      found->second->announced != found->second->size) {
    OnViolation("the answer to a refusal that was not sent");
    return;
  }
  const std::shared_ptr<UcxOffer> offer = found->second;
  offers_.erase(found);
  Release(*offer);
}

void UcxEndpoint::Release(UcxOffer& offer) {
  offer.maybe_endpoint = nullptr;
  for (UcxOffer::Chunk& chunk : offer.chunks) {
    if (chunk.maybe_descriptor != nullptr) {
      ucp_am_data_release(host_.worker(), std::exchange(chunk.maybe_descriptor, nullptr));
    }
  }
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
      OnRejectSeen(control.argument);
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
  const absl::Status status =
      absl::IsCancelled(why_)
          ? why_
          : absl::UnavailableError(why_.ok() ? "the connection was closed" : why_.message());
  // The endpoint is gone, so UCX cannot tell the sender that its payload arrived.
  for (const auto& [id, offer] : std::exchange(offers_, {})) {
    Release(*offer);
    if (offer->answer == UcxOffer::Answer::kReceive) {
      host_.Complete(std::move(offer->done), status);
    }
  }
  receiving_.clear();
  for (Done& done : std::exchange(held_, {})) {
    host_.Complete(std::move(done), status);
  }
  host_.Finished(*this);
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

void UcxPayload::Receive(RegisteredSpan destination, Arrived maybe_arrived, Done done) {
  if (offer_->maybe_endpoint == nullptr) {
    offer_->host->Complete(std::move(done),
                           absl::UnavailableError("the connection of the payload has ended"));
    return;
  }
  offer_->maybe_endpoint->ReceiveOffer(offer_, destination, std::move(maybe_arrived),
                                       std::move(done));
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
