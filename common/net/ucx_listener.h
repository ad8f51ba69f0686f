#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/net/transport.h"
#include "common/net/ucx_api.h"

namespace tokura::net {

class UcxTransportImpl;

// Connection requests between the listener's thread, where they arrive, and their owners' threads,
// where each becomes an endpoint. Shared by the listener (which rejects what is left when it goes)
// and by the tasks that it posted to the owners. Thread-safe.
class UcxConnectionRequests {
 public:
  explicit UcxConnectionRequests(Transport::AcceptHandler accept) : accept_(std::move(accept)) {}

  // The number of the added request.
  uint64_t Add(ucp_conn_request_h request, std::string peer);
  // Turn a request into a connection of `owner`, on whose thread this is called; nothing when it
  // was rejected meanwhile.
  void Accept(uint64_t number, UcxTransportImpl& owner);
  void Reject(uint64_t number, ucp_listener_h listener);
  // From here on nothing is left, and Accept does nothing.
  void RejectAll(ucp_listener_h listener);
  size_t waiting();

 private:
  struct Request {
    ucp_conn_request_h handle;
    std::string peer;
  };
  const Transport::AcceptHandler accept_;
  // Held while UCX makes an endpoint of a request, because the listener that the request came from
  // must not go away meanwhile. Before the loops' and UCX's own locks.
  Mutex mutex_;
  std::map<uint64_t, Request> requests_ TOKURA_GUARDED_BY(mutex_);
  uint64_t last_ TOKURA_GUARDED_BY(mutex_) = 0;
};

// Owned by the thread of the transport that made it.
class UcxListener final : public Listener {
 public:
  // See Transport::Listen; `owners` is not empty.
  static absl::StatusOr<std::unique_ptr<UcxListener>> Create(UcxTransportImpl& transport,
                                                             const Address& address,
                                                             std::vector<UcxTransportImpl*> owners,
                                                             Transport::AcceptHandler accept);
  ~UcxListener() override;
  UcxListener(const UcxListener&) = delete;
  UcxListener& operator=(const UcxListener&) = delete;

  Address address() const override { return address_; }
  // Requests that their owners have not taken up yet.
  size_t waiting() const { return requests_->waiting(); }

 private:
  UcxListener(UcxTransportImpl& transport, std::vector<UcxTransportImpl*> owners,
              Transport::AcceptHandler accept);
  static void OnRequest(ucp_conn_request_h request, void* argument);
  // Whether the peer runs the same versions; logs when it does not.
  bool Admit(const ucp_conn_request_attr_t& attributes, const std::string& peer);

  UcxTransportImpl& transport_;
  const std::vector<UcxTransportImpl*> owners_;
  size_t next_owner_ = 0;
  const std::shared_ptr<UcxConnectionRequests> requests_;
  ucp_listener_h handle_ = nullptr;
  Address address_;
  TimePoint next_refusal_log_{};
  uint64_t refusals_unlogged_ = 0;
};

}  // namespace tokura::net
