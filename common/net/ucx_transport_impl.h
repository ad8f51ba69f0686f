#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/ucx_context.h"
#include "common/net/ucx_endpoint.h"
#include "common/net/ucx_event_loop.h"
#include "common/net/ucx_resolver.h"
#include "common/net/ucx_transport.h"

namespace tokura::net {

// The only UcxTransport: a worker, its loop and its endpoints. Owned by the loop's thread, but for
// what Transport, Executor and UcxTransport declare otherwise.
//
// Inside UCX's callbacks nothing runs but the delivery of messages and payload offers; completions,
// closing and the ends of connections wait in queues until ucp_worker_progress has returned.
class UcxTransportImpl final : public UcxTransport, private UcxEndpointHost, private LoopSource {
 public:
  // As UcxTransport::Create, with the identity that listeners see (tests pretend another version).
  static absl::StatusOr<std::unique_ptr<UcxTransportImpl>> Create(UcxContextImpl& context,
                                                                  Options options,
                                                                  UcxClientId client_id);
  // Aborts what is left, and completes it, so handlers must still be there for connections that
  // have not ended. All listeners and regions must be gone. By any thread, when Run has returned.
  ~UcxTransportImpl() override;

  Executor& executor() override { return *loop_; }
  const char* name() const override { return "ucx"; }
  std::string version() const override { return UcxLibraryVersion(); }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> bytes) override;
  void Expect(Duration within) override { loop_->Expect(within); }
  std::unique_ptr<Connection> Connect(const Address& peer, ConnectionHandler& handler) override;
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const Address& address,
                                                   std::vector<Transport*> owners,
                                                   AcceptHandler accept) override;
  void Run() override { loop_->Run(); }
  bool Poll(Duration wait) override { return loop_->Poll(wait); }
  void Stop() override { loop_->Stop(); }

  // For listeners: make an endpoint of `request`, then offer it to `accept` as a connection.
  UcxEndpoint& AcceptRequest(ucp_conn_request_h request, std::string peer);
  void OfferConnection(UcxEndpoint& endpoint, const AcceptHandler& accept);
  ucp_worker_h worker() override { return worker_; }
  UcxEventLoop& loop() override { return *loop_; }
  void CountListeners(int change) { listeners_ += change; }
  // What all endpoints go over, "tcp/lo" once per lane, for logs and tests. Empty where UCX is too
  // old to tell.
  std::vector<std::string> Lanes() const;

 private:
  UcxTransportImpl(UcxContextImpl& context, Options options, UcxClientId client_id)
      : context_(context), options_(std::move(options)), client_id_(client_id) {}
  absl::Status Start();

  // LoopSource
  bool Progress() override;
  bool Arm() override;
  int event_fd() const override { return worker_fd_; }
  bool busy() const override { return operations_ > 0; }

  // UcxEndpointHost
  const Options& options() const override { return options_; }
  void Complete(Done done, absl::Status status) override;
  void NeedsAttention(UcxEndpoint& endpoint) override { attention_.push_back(endpoint.id()); }
  void Finished(UcxEndpoint& endpoint) override;
  void AddHandle(ucp_ep_h handle, UcxEndpoint& endpoint) override;
  void RemoveHandle(ucp_ep_h handle) override { by_handle_.erase(handle); }
  void CountOperations(int64_t change) override { operations_ += change; }
  UcxEndpoint* Find(uint64_t id) override;

  static ucs_status_t OnMessage(void* argument, const void* header, size_t header_bytes, void* data,
                                size_t size, const ucp_am_recv_param_t* param);
  static ucs_status_t OnPayload(void* argument, const void* header, size_t header_bytes, void* data,
                                size_t size, const ucp_am_recv_param_t* param);
  static ucs_status_t OnControl(void* argument, const void* header, size_t header_bytes, void* data,
                                size_t size, const ucp_am_recv_param_t* param);
  UcxEndpoint* EndpointOf(const ucp_am_recv_param_t* param);
  UcxEndpoint& NewEndpoint(std::string peer);
  UcxEndpointHost& host() { return *this; }
  bool RunCompletions();
  bool RunAttention();

  UcxContextImpl& context_;
  const Options options_;
  const UcxClientId client_id_;
  ucp_worker_h worker_ = nullptr;
  int worker_fd_ = -1;
  std::unique_ptr<UcxEventLoop> loop_;
  std::unique_ptr<UcxResolver> resolver_;

  struct Completion {
    Done done;
    absl::Status status;
    uint64_t closed_endpoint = 0;  // instead of a done: this endpoint has ended
  };
  std::deque<Completion> completions_;
  std::vector<uint64_t> attention_;
  std::map<uint64_t, std::unique_ptr<UcxEndpoint>> endpoints_;
  std::unordered_map<ucp_ep_h, UcxEndpoint*> by_handle_;  // looked up, never walked
  uint64_t last_endpoint_ = 0;
  int64_t operations_ = 0;
  int listeners_ = 0;
};

}  // namespace tokura::net
