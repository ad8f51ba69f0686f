#include "client-lib/src/node_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace tokura {
namespace {
constexpr RateEstimator::Options kWireRate = {.initial_bytes_per_second = 200e6,
                                              .floor_bytes_per_second = 10e6,
                                              .sample_bytes_min = uint64_t{64} << 10};
// Most requests are answered, or the first payload arrives, within this.
constexpr Duration kAnswerSoon = std::chrono::microseconds(200);
}  // namespace

// Counts a request as outstanding until it is answered.
class NodeLink::CountedCall final : public net::Call {
 public:
  CountedCall(std::shared_ptr<NodeLink> link, std::shared_ptr<net::Call> call)
      : link_(std::move(link)), generation_(link_->generation_), call_(std::move(call)) {}
  // Once, after the channel has named the request.
  void SetId(uint64_t id) { id_ = id; }
  void OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) override {
    call_->OnPayload(frame, std::move(payload));
  }
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    if (generation_ == link_->generation_) {
      link_->RequestEnded(id_, status.ok() ? Ended::kAnswered : Ended::kOtherwise);
    }
    call_->OnReply(std::move(status), body);
  }

 private:
  std::shared_ptr<NodeLink> link_;  // owners: the core's list and the calls under way
  const uint64_t generation_;
  uint64_t id_ = 0;
  std::shared_ptr<net::Call> call_;
};

NodeLink::NodeLink(net::Transport& transport, ClientMetrics& metrics, Options options, Owner& owner)
    : transport_(transport),
      executor_(transport.executor()),
      metrics_(metrics),
      options_(std::move(options)),
      owner_(owner),
      breaker_(options_.breaker),
      rate_(kWireRate),
      last_error_(absl::UnavailableError("not connected yet")) {
  metrics_.PeerListed(options_.peer, breaker_.state());
}

NodeLink::~NodeLink() {
  metrics_.PeerForgotten(options_.peer, breaker_.state());
}

void NodeLink::Start() {
  // What its owner tells others about changes may have had it stopped before it was started.
  if (!stopping_) {
    Connect();
  }
}

void NodeLink::Stop() {
  if (stopping_) {
    return;
  }
  stopping_ = true;
  executor_.CancelTimer(std::exchange(probe_timer_, 0));
  Lose(absl::CancelledError("the client lets go of this node"));
  if (channel_) {
    channel_->Close(net::CloseMode::kFlush);
    return;
  }
  executor_.Post([self = shared_from_this()] { self->owner_.OnLinkStopped(*self); });
}

void NodeLink::Drop(const absl::Status& why) {
  if (!channel_ || stopping_) {
    return;
  }
  LogTrouble(why);
  Fail();
  last_error_ = why;
  Lose(why);
  channel_->Close(net::CloseMode::kAbort);
}

void NodeLink::MeetAgain() {
  if (channel_) {
    meeting_ = !announced_;  // by the attempt that is under way
    return;
  }
  if (probe_timer_ == 0) {
    return;
  }
  executor_.CancelTimer(std::exchange(probe_timer_, 0));
  meeting_ = true;
  Connect();
}

bool NodeLink::usable() const {
  return announced_ && !draining_ && breaker_.AllowsRequests() && channel_ && channel_->ready();
}

absl::Status NodeLink::trouble() const {
  return usable() ? absl::OkStatus() : last_error_;
}

TimePoint NodeLink::silent_since() const {
  return channel_ && channel_->last_heard() <= waiting_since_ ? waiting_since_ : kNever;
}

void NodeLink::WhenCapacity(Task send) {
  // On a link that is not usable Send answers at once: nobody would ever serve a waiter.
  if (!usable() || (waiting_.empty() && HasCapacity())) {
    send();
    return;
  }
  waiting_.push_back(std::move(send));
}

uint64_t NodeLink::Send(net::Op op, const google::protobuf::MessageLite& body, TimePoint deadline,
                        std::shared_ptr<net::Call> call) {
  if (!usable()) {
    executor_.Post([call = std::move(call), why = absl::UnavailableError(last_error_.message())] {
      call->OnReply(why, {});
    });
    return 0;
  }
  const bool answers_soon = op != net::Op::kPut && op != net::Op::kWatch;
  if (answers_soon && channel_->last_heard() > waiting_since_) {
    waiting_since_ = executor_.Now();
  }
  auto counted = std::make_shared<CountedCall>(shared_from_this(), std::move(call));
  const uint64_t id = channel_->Send(op, body, deadline, counted);
  counted->SetId(id);
  outstanding_.insert(id);
  transport_.Expect(kAnswerSoon);
  return id;
}

void NodeLink::SendPayload(uint64_t request_id, uint32_t index, PartId part,
                           std::span<const net::RegisteredSpan> pieces, net::Done done) {
  if (outstanding_.count(request_id) == 0) {
    executor_.Post([done = std::move(done)]() mutable {
      done(absl::CancelledError("the request of this payload has ended"));
    });
    return;
  }
  channel_->SendPayload(request_id, net::Op::kPut, index, part, pieces, std::move(done));
}

void NodeLink::Cancel(uint64_t request_id) {
  if (outstanding_.count(request_id) > 0) {
    channel_->Cancel(request_id);
    RequestEnded(request_id, Ended::kOtherwise);
  }
}

absl::Status NodeLink::OnWelcome(net::ClientChannel&, const proto::Welcome& welcome) {
  if (absl::Status admitted = owner_.AdmitNode(*this, welcome); !admitted.ok()) {
    return admitted;
  }
  if (stopping_) {
    return absl::CancelledError("the client lets go of this node");
  }
  node_ = welcome.node();
  expected_node_ = node_;
  incarnation_ = welcome.incarnation();
  limits_ = welcome.limits();
  logged_trouble_.clear();
  last_error_ = absl::UnavailableError(absl::StrCat("the connection to node ", node_, " ends"));
  OnConnected();
  up_ = true;
  Log(LogLevel::kInfo, "client", is_node() ? "node_connected" : "coordinator_connected",
      {{"node", node_}, {"address", address().ToString()}, {"incarnation", incarnation_}});
  // The channel becomes ready after this call returns.
  executor_.Post([self = shared_from_this(), generation = generation_] {
    const bool lasts = generation == self->generation_ && self->up_ && !self->draining_;
    if (lasts && self->channel_->ready()) {
      self->announced_ = true;
      self->meeting_ = false;
      self->owner_.OnLinkUp(*self);
    }
  });
  return absl::OkStatus();
}

void NodeLink::OnGoodbye(net::ClientChannel&) {
  draining_ = true;
  last_error_ = absl::UnavailableError(absl::StrCat("node ", node_, " drains"));
  Fail();
  waiting_.clear();
  if (announced_) {
    owner_.OnLinkDraining(*this, last_error_);
  }
  CloseIfDrained();
}

void NodeLink::OnDown(net::ClientChannel&, absl::Status why) {
  const bool was_up = up_;
  if (why.code() == absl::StatusCode::kFailedPrecondition && !was_up) {
    // The address may belong to another node by now: ask for whoever answers, next time.
    expected_node_.clear();
    metrics_.refused->Increment();
  }
  if (!stopping_) {
    if (breaker_.state() != net::Breaker::State::kOpen) {
      last_error_ = why.ok() ? absl::UnavailableError("the connection was closed") : why;
      if (!draining_) {
        LogTrouble(why);
      }
      Fail();
    }
    Lose(why);
  }
  draining_ = false;
  ++generation_;
  outstanding_.clear();
  // The channel may not be destroyed inside its own call. Stop, called from here on, tells of the
  // end itself, after this task.
  const bool stopped = stopping_;
  executor_.Post([self = shared_from_this(), channel = std::move(channel_), stopped] {
    if (stopped) {
      self->owner_.OnLinkStopped(*self);
    }
  });
  if (!stopped) {
    ScheduleProbe();
    if (std::exchange(meeting_, false)) {
      owner_.OnLinkFailed(*this);
    }
  }
}

void NodeLink::Connect() {
  if (breaker_.state() == net::Breaker::State::kOpen) {
    breaker_.OnProbeStarted();
    metrics_.BreakerMoved(options_.peer, net::Breaker::State::kOpen, breaker_.state());
  }
  send_window_ = std::make_shared<RingWindow>(options_.window_bytes);
  receive_window_ = std::make_shared<RingWindow>(options_.window_bytes);
  net::ClientChannel::Options channel = options_.channel;
  channel.hello.set_expected_node(expected_node_);
  channel.hello.set_fenced_below(expected_node_.empty() ? 0 : owner_.FencedBelow(expected_node_));
  channel_ = net::ClientChannel::Start(transport_, options_.address, std::move(channel), *this);
}

void NodeLink::ScheduleProbe() {
  probe_timer_ = executor_.RunAt(breaker_.next_probe(), [weak = weak_from_this()] {
    if (const std::shared_ptr<NodeLink> self = weak.lock(); self && !self->stopping_) {
      self->probe_timer_ = 0;
      self->Connect();
    }
  });
}

void NodeLink::Fail() {
  const net::Breaker::State before = breaker_.state();
  if (before != net::Breaker::State::kOpen) {
    breaker_.OnFailure(executor_.Now());
    metrics_.BreakerMoved(options_.peer, before, breaker_.state());
  }
}

void NodeLink::OnConnected() {
  const net::Breaker::State before = breaker_.state();
  breaker_.OnProbeAnswered();
  metrics_.BreakerMoved(options_.peer, before, breaker_.state());
}

void NodeLink::Lose(const absl::Status& why) {
  waiting_.clear();
  up_ = false;
  if (std::exchange(announced_, false)) {
    metrics_.links_lost->Increment();
    owner_.OnLinkLost(*this, why);
  }
}

void NodeLink::RequestEnded(uint64_t request_id, Ended how) {
  if (outstanding_.erase(request_id) == 0) {
    return;
  }
  if (how == Ended::kAnswered && breaker_.AllowsRequests()) {
    breaker_.OnSuccess();
  }
  // Those who wait on a link that is not usable any more hear of it by OnLinkLost.
  while (usable() && !waiting_.empty() && HasCapacity()) {
    Task send = std::move(waiting_.front());
    waiting_.pop_front();
    send();
  }
  CloseIfDrained();
}

void NodeLink::CloseIfDrained() {
  if (draining_ && outstanding_.empty() && channel_) {
    channel_->Close(net::CloseMode::kFlush);
  }
}

bool NodeLink::HasCapacity() const {
  return limits_.requests_max() == 0 || outstanding_.size() < limits_.requests_max();
}

void NodeLink::LogTrouble(const absl::Status& why) {
  // Once per cause: probes repeat, and a dead node must not fill the log.
  std::string trouble(why.message());
  if (trouble == logged_trouble_) {
    return;
  }
  const char* const lost = is_node() ? "node_lost" : "coordinator_lost";
  const char* const unreachable = is_node() ? "node_unreachable" : "coordinator_unreachable";
  Log(LogLevel::kWarn, "client", up_ ? lost : unreachable,
      {{"node", node_}, {"address", address().ToString()}, {"why", trouble}});
  logged_trouble_ = std::move(trouble);
}

}  // namespace tokura
