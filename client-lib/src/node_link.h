#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "client-lib/src/client_metrics.h"
#include "client-lib/src/deadline.h"
#include "client-lib/src/ring.h"
#include "common/net/breaker.h"
#include "common/net/channel.h"

namespace tokura {

// The connection to one address, of a node or a coordinator (both are "node" below): connects in
// the background and keeps doing so, with backoff and half-open probes, so that no request ever
// waits for a connection. Owned by the transport's
// executor. Held by shared_ptr; owners: the core's list and the link's own posted tasks.
class NodeLink final : public net::ClientChannelOwner,
                       public std::enable_shared_from_this<NodeLink> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // A node introduced itself. An error closes the connection: a fenced incarnation.
    virtual absl::Status AdmitNode(NodeLink& link, const proto::Welcome& welcome) = 0;
    // The highest incarnation seen of a node name; 0 when unknown.
    virtual uint64_t FencedBelow(const std::string& node) const = 0;
    // Requests may be sent from now on.
    virtual void OnLinkUp(NodeLink& link) = 0;
    // The node drains: the link is not usable any more, waiters of WhenCapacity are gone, and
    // requests under way may finish.
    virtual void OnLinkDraining(NodeLink& link, const absl::Status& why) = 0;
    // Every request on the link is lost, and what it still delivers must not be used. Called once
    // for each OnLinkUp, before anything else can be sent on it.
    virtual void OnLinkLost(NodeLink& link, const absl::Status& why) = 0;
    // After Stop: the channel is gone and every buffer is back. The last call.
    virtual void OnLinkStopped(NodeLink& link) = 0;
    // The node is not being met any more, because the attempt failed; the next one follows by
    // itself.
    virtual void OnLinkFailed(NodeLink& link) = 0;
  };
  struct Options {
    net::Address address;
    net::ClientChannel::Options channel;
    net::Breaker::Options breaker;
    PeerKind peer = PeerKind::kNode;
    uint64_t window_bytes = uint64_t{2} << 20;  // of the ring, in each direction
  };

  NodeLink(net::Transport& transport, ClientMetrics& metrics, Options options, Owner& owner);
  ~NodeLink() override;

  void Start();
  // Close for good; outstanding requests are lost.
  void Stop();
  // Give up on the connection because of `why` (no progress, superseded by a higher incarnation):
  // the breaker opens, requests are lost at once, and a probe will follow.
  void Drop(const absl::Status& why);

  // A new life of the node is said to be at the address: meet it now, not after the backoff.
  void MeetAgain();

  // Whether a request may be sent now.
  bool usable() const;
  // Whether the node has introduced itself, and the connection has not been lost since.
  bool up() const { return up_; }
  // Whether the first attempt to connect, or the first since MeetAgain, has neither succeeded nor
  // failed yet: nobody can say whether the node is there. connect_timeout bounds it.
  bool meeting() const { return meeting_; }
  const net::Address& address() const { return options_.address; }
  // Name and incarnation of the node that answered last; empty and 0 before.
  const std::string& node() const { return node_; }
  uint64_t incarnation() const { return incarnation_; }
  const proto::Limits& limits() const { return limits_; }
  net::Breaker::State breaker() const { return breaker_.state(); }
  // Why the link is not usable; OK when it is.
  absl::Status trouble() const;
  // Since when requests have been sent without any sign of life from the node; kNever when there
  // has been one. Puts do not count, because a node may be silent until it has all their parts, nor
  // does WATCH, whose answer may come much later.
  TimePoint silent_since() const;
  RateEstimator& rate() { return rate_; }
  // Shares of the ring for payloads to and from the node over the present connection. A new one has
  // new ones, whatever becomes of the slots of the old.
  const RingWindowRef& send_window() const { return send_window_; }
  const RingWindowRef& receive_window() const { return receive_window_; }
  const RateEstimator& rate() const { return rate_; }

  // Run `send` now, or when the node's limit of outstanding requests allows; destroyed unrun when
  // the link drains or is lost first (OnLinkDraining and OnLinkLost tell). `send` calls Send at
  // most once.
  void WhenCapacity(Task send);
  // As ClientChannel. When the link is not usable: 0, and `call` is answered UNAVAILABLE.
  uint64_t Send(net::Op op, const google::protobuf::MessageLite& body, TimePoint deadline,
                std::shared_ptr<net::Call> call);
  // As ClientChannel. `request_id` is one of this connection's; the payload of any other request is
  // CANCELLED.
  void SendPayload(uint64_t request_id, uint32_t index, PartId part,
                   std::span<const net::RegisteredSpan> pieces, net::Done done);
  // As ClientChannel; a request that has been answered is left alone.
  void Cancel(uint64_t request_id);

  // net::ClientChannelOwner
  absl::Status OnWelcome(net::ClientChannel& channel, const proto::Welcome& welcome) override;
  void OnGoodbye(net::ClientChannel& channel) override;
  void OnDown(net::ClientChannel& channel, absl::Status why) override;

 private:
  class CountedCall;
  bool is_node() const { return options_.peer == PeerKind::kNode; }
  void Connect();
  void ScheduleProbe();
  void Fail();
  void OnConnected();
  void Lose(const absl::Status& why);
  enum class Ended { kAnswered, kOtherwise };
  // An outstanding request is over; ids of requests that were are ignored.
  void RequestEnded(uint64_t request_id, Ended how);
  void CloseIfDrained();
  bool HasCapacity() const;
  void LogTrouble(const absl::Status& why);

  net::Transport& transport_;
  Executor& executor_;
  ClientMetrics& metrics_;
  const Options options_;
  Owner& owner_;
  net::Breaker breaker_;
  RateEstimator rate_;
  RingWindowRef send_window_;
  RingWindowRef receive_window_;
  std::unique_ptr<net::ClientChannel> channel_;
  std::string node_;
  uint64_t incarnation_ = 0;
  std::string expected_node_;  // what HELLO asks for: the node that answered here last
  proto::Limits limits_;
  absl::Status last_error_;
  std::string logged_trouble_;
  bool up_ = false;         // the node introduced itself
  bool announced_ = false;  // between OnLinkUp and OnLinkLost
  bool meeting_ = true;
  bool draining_ = false;  // the node said GOODBYE
  bool stopping_ = false;
  uint64_t generation_ = 0;         // of the channel; calls of an older one do not count
  std::set<uint64_t> outstanding_;  // request ids
  std::deque<Task> waiting_;        // for capacity; bounded by operations_max of the core
  TimePoint waiting_since_ =
      TimePoint::min();  // the first request sent after the last sign of life
  TimerId probe_timer_ = 0;
};

}  // namespace tokura
