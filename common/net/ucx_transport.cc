#include "common/net/ucx_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/net/ucx_listener.h"
#include "common/net/ucx_transport_impl.h"
#include "common/status_macros.h"

namespace tokura::net {
namespace {

// Calls of ucp_worker_progress in one round, so that tasks and timers get their turn under load.
// What has ended is told at once: somebody works on it while the wire moves the next.
constexpr int kProgressPerRound = 64;
// How long the destructor lets UCX settle what it aborts, which takes milliseconds.
constexpr Duration kTeardownMax = std::chrono::seconds(5);

std::span<const std::byte> Bytes(const void* data, size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(UcxContext& context,
                                                                   Options options) {
  TOKURA_ASSIGN_OR_RETURN(std::unique_ptr<UcxTransportImpl> transport,
                          UcxTransportImpl::Create(static_cast<UcxContextImpl&>(context),
                                                   std::move(options), UcxClientId::Local()));
  return transport;
}

absl::StatusOr<std::unique_ptr<UcxTransportImpl>> UcxTransportImpl::Create(UcxContextImpl& context,
                                                                           Options options,
                                                                           UcxClientId client_id) {
  std::unique_ptr<UcxTransportImpl> transport(
      new UcxTransportImpl(context, std::move(options), client_id));
  TOKURA_RETURN_IF_ERROR(transport->Start());
  return transport;
}

absl::Status UcxTransportImpl::Start() {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CLIENT_ID |
                      UCP_WORKER_PARAM_FIELD_NAME;
  // One thread at a time: made on one thread, run by another.
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.client_id = client_id_.value;
  params.name = options_.name.c_str();
  ucs_status_t status = ucp_worker_create(context_.handle(), &params, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return UcxStatus(status, "cannot create a UCX worker");
  }
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {
      {kUcxMessage, OnMessage}, {kUcxPayload, OnPayload}, {kUcxControl, OnControl}};
  for (const auto& [id, callback] : handlers) {
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = callback;
    handler.arg = this;
    status = ucp_worker_set_am_recv_handler(worker_, &handler);
    if (status != UCS_OK) {
      return UcxStatus(status, "cannot set a handler for active messages");
    }
  }
  ucp_worker_attr_t attributes = {};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK || attributes.max_am_header < kPayloadHeaderBytesMax) {
    return absl::FailedPreconditionError(absl::StrCat("these transports carry headers of ",
                                                      attributes.max_am_header, " bytes; ",
                                                      kPayloadHeaderBytesMax, " are needed"));
  }
  status = ucp_worker_get_efd(worker_, &worker_fd_);
  if (status != UCS_OK) {
    return UcxStatus(status, "UCX has no wake-up on these transports");
  }
  const UcxEventLoop::Options loop = {options_.wake, options_.spin, options_.posted_max};
  TOKURA_ASSIGN_OR_RETURN(loop_, UcxEventLoop::Create(loop, *this));
  return absl::OkStatus();
}

UcxTransportImpl::~UcxTransportImpl() {
  TOKURA_CHECK(listeners_ == 0);
  resolver_.reset();  // nothing posts to the loop from here on
  if (loop_ != nullptr) {
    loop_->TakeOver();
    loop_->DropTasks();
    for (const auto& [id, endpoint] : endpoints_) {
      endpoint->Close(CloseMode::kAbort);
    }
    const TimePoint give_up = loop_->Now() + kTeardownMax;
    while ((!endpoints_.empty() || !completions_.empty()) && loop_->Now() < give_up) {
      Progress();
    }
    // An operation that UCX never ends would write into memory that its owner takes for free.
    TOKURA_CHECK(endpoints_.empty());
  }
  if (worker_ != nullptr) {
    ucp_worker_destroy(worker_);
  }
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> UcxTransportImpl::Register(
    std::span<std::byte> bytes) {
  return context_.Register(bytes);
}

// ---- connections ----

UcxEndpoint& UcxTransportImpl::NewEndpoint(std::string peer) {
  const uint64_t id = ++last_endpoint_;
  auto endpoint = std::make_unique<UcxEndpoint>(host(), id, std::move(peer));
  return *endpoints_.emplace(id, std::move(endpoint)).first->second;
}

std::unique_ptr<Connection> UcxTransportImpl::Connect(const Address& peer,
                                                      ConnectionHandler& handler) {
  TOKURA_DCHECK(loop_->MayUse());
  UcxEndpoint& endpoint = NewEndpoint(peer.ToString());
  endpoint.SetHandler(&handler);
  auto connection = std::make_unique<UcxConnection>(host(), endpoint);
  if (const absl::StatusOr<SocketAddress> literal = SocketAddress::FromLiteral(peer);
      literal.ok()) {
    endpoint.Connect(literal->get(), literal->size);
    return connection;
  }
  if (resolver_ == nullptr) {
    resolver_ = std::make_unique<UcxResolver>();
  }
  // The transport outlives its resolver, and so this callback; the endpoint may be gone.
  resolver_->Resolve(endpoint.id(), peer,
                     [this, id = endpoint.id()](absl::StatusOr<SocketAddress> found) {
                       loop_->Post([this, id, found = std::move(found)] {
                         UcxEndpoint* maybe_endpoint = Find(id);
                         if (maybe_endpoint == nullptr) {
                           return;
                         }
                         if (found.ok()) {
                           maybe_endpoint->Connect(found->get(), found->size);
                         } else {
                           maybe_endpoint->FailToStart(found.status());
                         }
                       });
                     });
  return connection;
}

absl::StatusOr<std::unique_ptr<Listener>> UcxTransportImpl::Listen(const Address& address,
                                                                   std::vector<Transport*> owners,
                                                                   AcceptHandler accept) {
  TOKURA_DCHECK(loop_->MayUse());
  std::vector<UcxTransportImpl*> ours;
  for (Transport* owner : owners) {
    ours.push_back(static_cast<UcxTransportImpl*>(owner));
  }
  if (ours.empty()) {
    ours.push_back(this);
  }
  TOKURA_ASSIGN_OR_RETURN(std::unique_ptr<UcxListener> listener,
                          UcxListener::Create(*this, address, std::move(ours), std::move(accept)));
  return listener;
}

UcxEndpoint& UcxTransportImpl::AcceptRequest(ucp_conn_request_h request, std::string peer) {
  UcxEndpoint& endpoint = NewEndpoint(std::move(peer));
  endpoint.Accept(request);
  return endpoint;
}

void UcxTransportImpl::OfferConnection(UcxEndpoint& endpoint, const AcceptHandler& accept) {
  ConnectionHandler* maybe_handler =
      accept(*this, std::make_unique<UcxConnection>(host(), endpoint));
  endpoint.SetHandler(maybe_handler);
  if (maybe_handler == nullptr) {
    endpoint.Close(CloseMode::kAbort);
  } else {
    endpoint.SendOpen();
  }
}

UcxEndpoint* UcxTransportImpl::Find(uint64_t id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

void UcxTransportImpl::AddHandle(ucp_ep_h handle, UcxEndpoint& endpoint) {
  by_handle_[handle] = &endpoint;
}

void UcxTransportImpl::Finished(UcxEndpoint& endpoint) {
  completions_.push_back({nullptr, absl::OkStatus(), endpoint.id()});
}

void UcxTransportImpl::Complete(Done done, absl::Status status) {
  completions_.push_back({std::move(done), std::move(status), 0});
}

// ---- progress ----

bool UcxTransportImpl::Progress() {
  bool happened = false;
  for (int i = 0; i < kProgressPerRound && completions_.empty(); ++i) {
    if (ucp_worker_progress(worker_) == 0) {
      break;
    }
    happened = true;
  }
  happened |= RunAttention();
  happened |= RunCompletions();
  return happened;
}

bool UcxTransportImpl::RunAttention() {
  const std::vector<uint64_t> ids = std::exchange(attention_, {});
  for (const uint64_t id : ids) {
    if (UcxEndpoint* maybe_endpoint = Find(id); maybe_endpoint != nullptr) {
      maybe_endpoint->Attend();
    }
  }
  return !ids.empty();
}

bool UcxTransportImpl::RunCompletions() {
  // Those that completions bring about wait for the next round.
  size_t count = completions_.size();
  const bool happened = count > 0;
  for (; count > 0; --count) {
    Completion completion = std::move(completions_.front());
    completions_.pop_front();
    if (completion.closed_endpoint == 0) {
      std::move(completion.done)(std::move(completion.status));
      continue;
    }
    const auto ended = endpoints_.extract(completion.closed_endpoint);
    TOKURA_CHECK(!ended.empty());
    if (resolver_ != nullptr) {
      resolver_->Forget(completion.closed_endpoint);
    }
    ended.mapped()->TellClosed();
  }
  return happened;
}

bool UcxTransportImpl::Arm() {
  if (!completions_.empty() || !attention_.empty()) {
    return false;
  }
  const ucs_status_t status = ucp_worker_arm(worker_);
  if (status != UCS_OK && status != UCS_ERR_BUSY) {
    Log(LogLevel::kWarn, "ucx", "arm_failed", {{"status", ucs_status_string(status)}});
  }
  return status == UCS_OK;
}

// ---- active messages ----

UcxEndpoint* UcxTransportImpl::EndpointOf(const ucp_am_recv_param_t* param) {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) {
    return nullptr;
  }
  const auto found = by_handle_.find(param->reply_ep);
  return found == by_handle_.end() ? nullptr : found->second;
}

ucs_status_t UcxTransportImpl::OnMessage(void* argument, const void* header, size_t header_bytes,
                                         void* data, size_t size,
                                         const ucp_am_recv_param_t* param) {
  UcxEndpoint* maybe_endpoint = static_cast<UcxTransportImpl*>(argument)->EndpointOf(param);
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (maybe_endpoint != nullptr && rendezvous) {
    maybe_endpoint->OnViolation("a message by rendezvous");
  }
  if (maybe_endpoint == nullptr || rendezvous) {
    return rendezvous ? UCS_ERR_CANCELED : UCS_OK;
  }
  return maybe_endpoint->OnMessage(Bytes(header, header_bytes), Bytes(data, size));
}

ucs_status_t UcxTransportImpl::OnPayload(void* argument, const void* header, size_t header_bytes,
                                         void* data, size_t size,
                                         const ucp_am_recv_param_t* param) {
  UcxEndpoint* maybe_endpoint = static_cast<UcxTransportImpl*>(argument)->EndpointOf(param);
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (maybe_endpoint != nullptr && !rendezvous) {
    maybe_endpoint->OnViolation("a payload without rendezvous");
  }
  if (maybe_endpoint == nullptr || !rendezvous) {
    return rendezvous ? UCS_ERR_CANCELED : UCS_OK;
  }
  return maybe_endpoint->OnPayload(Bytes(header, header_bytes), data, size);
}

ucs_status_t UcxTransportImpl::OnControl(void* argument, const void* header, size_t header_bytes,
                                         void* /*data*/, size_t /*size*/,
                                         const ucp_am_recv_param_t* param) {
  UcxEndpoint* maybe_endpoint = static_cast<UcxTransportImpl*>(argument)->EndpointOf(param);
  if (maybe_endpoint != nullptr) {
    maybe_endpoint->OnControl(Bytes(header, header_bytes));
  }
  return (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 ? UCS_ERR_CANCELED : UCS_OK;
}

std::vector<std::string> UcxTransportImpl::Lanes() const {
  std::vector<std::string> lanes;
  for (const auto& [id, endpoint] : endpoints_) {
    endpoint->AppendLanes(&lanes);
  }
  return lanes;
}

}  // namespace tokura::net
