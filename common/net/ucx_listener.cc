#include "common/net/ucx_listener.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/net/ucx_transport_impl.h"
#include "common/status_macros.h"

namespace tokura::net {
namespace {

// Anybody can knock at the port.
constexpr Duration kRefusalLogInterval = std::chrono::seconds(1);

Address ToAddress(const sockaddr_storage& storage) {
  SocketAddress address;
  address.storage = storage;
  return address.ToAddress();
}

}  // namespace

uint64_t UcxConnectionRequests::Add(ucp_conn_request_h request, std::string peer) {
  MutexLock lock(mutex_);
  requests_.emplace(++last_, Request{request, std::move(peer)});
  return last_;
}

void UcxConnectionRequests::Accept(uint64_t number, UcxTransportImpl& owner) {
  UcxEndpoint* endpoint = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = requests_.find(number);
    if (found == requests_.end()) {
      return;
    }
    endpoint = &owner.AcceptRequest(found->second.handle, std::move(found->second.peer));
    requests_.erase(found);
  }
  owner.OfferConnection(*endpoint, accept_);
}

void UcxConnectionRequests::Reject(uint64_t number, ucp_listener_h listener) {
  MutexLock lock(mutex_);
  if (const auto found = requests_.find(number); found != requests_.end()) {
    ucp_listener_reject(listener, found->second.handle);
    requests_.erase(found);
  }
}

void UcxConnectionRequests::RejectAll(ucp_listener_h listener) {
  MutexLock lock(mutex_);
  for (const auto& [number, request] : requests_) {
    ucp_listener_reject(listener, request.handle);
  }
  requests_.clear();
}

size_t UcxConnectionRequests::waiting() {
  MutexLock lock(mutex_);
  return requests_.size();
}

UcxListener::UcxListener(UcxTransportImpl& transport, std::vector<UcxTransportImpl*> owners,
                         Transport::AcceptHandler accept)
    : transport_(transport),
      owners_(std::move(owners)),
      requests_(std::make_shared<UcxConnectionRequests>(std::move(accept))) {
  transport_.CountListeners(1);
}

absl::StatusOr<std::unique_ptr<UcxListener>> UcxListener::Create(
    UcxTransportImpl& transport, const Address& address, std::vector<UcxTransportImpl*> owners,
    Transport::AcceptHandler accept) {
  TOKURA_ASSIGN_OR_RETURN(const SocketAddress where, SocketAddress::Resolve(address));
  std::unique_ptr<UcxListener> listener(
      new UcxListener(transport, std::move(owners), std::move(accept)));
  ucp_listener_params_t params = {};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = where.get();
  params.sockaddr.addrlen = where.size;
  params.conn_handler.cb = OnRequest;
  params.conn_handler.arg = listener.get();
  ucs_status_t status = ucp_listener_create(transport.worker(), &params, &listener->handle_);
  if (status != UCS_OK) {
    listener->handle_ = nullptr;
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address.ToString(), ": ",
                                               ucs_status_string(status),
                                               "; is the port in use, is the address local?"));
  }
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(listener->handle_, &attributes);
  if (status != UCS_OK) {
    return absl::UnavailableError(
        absl::StrCat("cannot tell the port of a listener: ", ucs_status_string(status)));
  }
  listener->address_ = ToAddress(attributes.sockaddr);
  return listener;
}

UcxListener::~UcxListener() {
  if (handle_ != nullptr) {
    requests_->RejectAll(handle_);
    ucp_listener_destroy(handle_);
  }
  transport_.CountListeners(-1);
}

void UcxListener::OnRequest(ucp_conn_request_h request, void* argument) {
  auto* self = static_cast<UcxListener*>(argument);
  ucp_conn_request_attr_t attributes = {};
  attributes.field_mask =
      UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR | UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
  std::string peer = "unknown";
  if (ucp_conn_request_query(request, &attributes) == UCS_OK) {
    peer = ToAddress(attributes.client_address).ToString();
  }
  if (!self->Admit(attributes, peer)) {
    ucp_listener_reject(self->handle_, request);
    return;
  }
  UcxTransportImpl* owner = self->owners_[self->next_owner_++ % self->owners_.size()];
  const uint64_t number = self->requests_->Add(request, std::move(peer));
  const bool posted = owner->loop().TryPost(
      [requests = self->requests_, number, owner] { requests->Accept(number, *owner); });
  if (!posted) {
    self->requests_->Reject(number, self->handle_);
  }
}

bool UcxListener::Admit(const ucp_conn_request_attr_t& attributes, const std::string& peer) {
  const UcxClientId theirs{attributes.client_id};
  if (theirs.Matches(UcxClientId::Local())) {
    return true;
  }
  ++refusals_unlogged_;
  const TimePoint now = transport_.loop().Now();
  if (now >= next_refusal_log_) {
    next_refusal_log_ = now + kRefusalLogInterval;
    Log(LogLevel::kWarn, "ucx", "connection_refused",
        {{"peer", peer},
         {"theirs", theirs.ToString()},
         {"ours", UcxClientId::Local().ToString()},
         {"refused_since_last_line", std::exchange(refusals_unlogged_, 0)}});
  }
  return false;
}

}  // namespace tokura::net
