#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cache-node/node_metrics.h"
#include "cache-node/server_context.h"
#include "cache-node/server_request.h"
#include "cache-node/server_transfers.h"
#include "common/ids.h"
#include "common/net/channel.h"

namespace tokura::node {

class ServerLoop;

// One client's connection: HELLO, its requests, and the leases that go with it. Owned by its I/O
// thread. Shared by the loop (until the channel has closed) and by requests with transfers under
// way.
class ServerConnection final : public net::ServerChannelOwner,
                               public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(std::shared_ptr<ServerLoop> loop, uint64_t id);
  ~ServerConnection() override;

  // Take over an accepted connection. Once, first.
  net::ConnectionHandler* Open(net::Transport& transport,
                               std::unique_ptr<net::Connection> connection);

  absl::Status OnHello(net::ServerChannel& channel, const proto::Hello& hello,
                       proto::Welcome* welcome) override;
  void OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                 std::span<const std::byte> body) override;
  void OnPayload(net::ServerChannel& channel, const net::FrameHeader& frame,
                 net::IncomingPayload payload) override;
  void OnClosed(net::ServerChannel& channel, absl::Status why) override;

  uint64_t id() const { return id_; }
  // What its frames carry.
  uint64_t incarnation() const { return incarnation_; }
  ServerContext& context() const;
  Executor& executor() const;
  TransferGate::Slot& slot() { return slot_; }
  net::ServerChannel& channel() { return *channel_; }
  const std::string& tenant() const { return tenant_; }
  bool closed() const { return closed_; }

  // From the I/O thread's tick: close when transfers make no progress, forget early payloads.
  void Tick(TimePoint now);
  // A lease is past its age: requests of this connection that use it end; the connection is closed
  // when their transfers do not end soon after.
  void ExpireLease(const LeaseToken& lease, TimePoint now);
  // Close at once, so that the transport completes everything that is under way.
  void Abort(ConnectionEnd why, const char* what);
  // Close at once: this node goes on under another incarnation, or not at all.
  void EndLife();
  // Say GOODBYE; close as soon as nothing is outstanding. New requests are refused from here on.
  void Drain();
  // Let go of all requests, for a node that is destroyed without a drain.
  void Abandon();

  // For ServerRequest: the answer to `request`, `result` for the metrics.
  void Answer(const ServerRequest& request, const absl::Status& result,
              const google::protobuf::MessageLite* body);
  // For ServerRequest: bytes of a transfer moved.
  void Progress(TimePoint now) { last_progress_ = now; }
  // For PutRequest: bytes of a part have arrived. The store hears of it with the next tick: its
  // lock is not for every chunk.
  void Arrived(TimePoint now) { arrived_ = now; }
  // For ServerRequest: answered, and no transfer under way: nothing needs it here any more.
  void Forget(const ServerRequest& request);

 private:
  struct EarlyPayload {
    net::FrameHeader frame;
    net::IncomingPayload payload;
    TimePoint arrived;
  };

  // Answers a request that needs no transfer.
  absl::Status AnswerNow(const net::FrameHeader& frame, std::span<const std::byte> body);
  void OnCancel(std::span<const std::byte> body);
  // Starts a request that takes time, or answers why not.
  void StartRequest(const net::FrameHeader& frame, std::span<const std::byte> body);
  absl::Status MakeRequest(const net::FrameHeader& frame, std::span<const std::byte> body,
                           std::shared_ptr<ServerRequest>* request);
  // UNAVAILABLE, FAILED_PRECONDITION: this node does not take puts that were placed so.
  absl::Status CheckPlacement(uint64_t epoch) const;
  void FillLimits(proto::Limits* limits) const;
  void CloseIfDrained();

  const std::shared_ptr<ServerLoop> loop_;
  const uint64_t id_;
  uint64_t incarnation_ = 0;
  TransferGate::Slot slot_;
  std::unique_ptr<net::ServerChannel> channel_;
  std::string tenant_;
  std::map<uint64_t, std::shared_ptr<ServerRequest>> requests_;  // by request id
  size_t blocks_ = 0;                                            // that requests_ name
  size_t unanswered_ = 0;
  // Payloads whose request has not been seen, in order of arrival; bounded.
  size_t parts_ = 0;  // that the requests of the table may be offered
  std::vector<EarlyPayload> early_;
  bool welcomed_ = false;
  bool draining_ = false;
  bool aborted_ = false;
  bool closed_ = false;
  TimePoint last_progress_ = TimePoint::min();  // of any of its transfers
  TimePoint arrived_ = TimePoint::min();        // bytes of a put, since the last tick; min: none
};

}  // namespace tokura::node
