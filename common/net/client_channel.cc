#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/net/channel.h"
#include "common/net/channel_session.h"
#include "common/status_macros.h"

namespace tokura::net {
namespace {

constexpr uint16_t kStatusCodeMax = static_cast<uint16_t>(absl::StatusCode::kUnauthenticated);

// What FrameHeader::deadline_us says of a deadline: microseconds left, at least 1; 0 = none.
uint32_t DeadlineMicros(TimePoint deadline, TimePoint now) {
  if (deadline == kNever) {
    return 0;
  }
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - now).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(left, 1, UINT32_MAX));
}

// Bounds what nodes that break the protocol on every connection can write into an engine's log.
LogLimiter& ViolationLog() {
  static LogLimiter limiter(SystemClock(), {});
  return limiter;
}

class ClientChannelImpl final : public ClientChannel, public ConnectionHandler {
 public:
  ClientChannelImpl(Transport& transport, const Address& peer, Options options,
                    ClientChannelOwner& owner)
      : owner_(owner),
        hello_(std::move(options.hello)),
        peer_(peer.ToString()),
        session_(transport, options.timeouts, /*incarnation=*/0,
                 [this](absl::Status why) { End(std::move(why)); }) {
    session_.Attach(transport.Connect(peer, *this));
  }

  bool ready() const override { return state_ == State::kReady && !goodbye_; }
  const proto::Welcome& welcome() const override { return welcome_; }
  TimePoint last_heard() const override { return session_.last_heard(); }

  uint64_t Send(Op op, const google::protobuf::MessageLite& body, TimePoint deadline,
                std::shared_ptr<Call> call) override;
  void SendPayload(uint64_t request_id, Op op, uint32_t index, PartId part,
                   std::span<const RegisteredSpan> pieces, Done done) override;
  void Cancel(uint64_t request_id) override;
  void Close(CloseMode mode) override;

  void OnConnected(Connection& connection) override;
  void OnMessage(Connection& connection, std::span<const std::byte> header,
                 std::span<const std::byte> body) override;
  void OnPayload(Connection& connection, std::span<const std::byte> header,
                 IncomingPayload payload) override;
  void OnClosed(Connection& connection, absl::Status why) override;

 private:
  enum class State { kConnecting, kReady, kClosing, kDown };
  struct Request {
    Op op;
    std::shared_ptr<Call> call;  // shared with whoever sent the request
    TimerId timer = 0;
    bool sent = false;
  };

  absl::Status Transmit(uint64_t id, Op op, const google::protobuf::MessageLite& body,
                        TimePoint deadline);
  // Complete a request unless it has been already.
  void Finish(uint64_t id, const absl::Status& status, std::span<const std::byte> body);
  void FinishAll(const absl::Status& status);
  // Parse a frame and decide whether it counts; an empty result has been dealt with.
  std::optional<FrameHeader> Admit(std::span<const std::byte> header,
                                   std::span<const std::byte> body);
  absl::Status Dispatch(const FrameHeader& frame, std::span<const std::byte> body);
  absl::Status OnWelcome(const FrameHeader& frame, std::span<const std::byte> body);
  absl::Status OnRefused(const FrameHeader& frame, std::span<const std::byte> body);
  absl::Status OnReply(const FrameHeader& frame, std::span<const std::byte> body);
  // FAILED_PRECONDITION with both sides and where to look.
  absl::Status Incompatible(std::string_view what, std::string_view node) const;
  bool welcomed() const { return welcome_.protocol_version() != 0; }
  ChannelVersions versions() const {
    return {hello_.protocol_version(), hello_.transport_version(), hello_.format_version()};
  }
  // The peer broke the protocol: log and end.
  void Violation(absl::Status why);
  // Close at once; OnDown will say `why`.
  void End(absl::Status why);
  void ReportDown();

  ClientChannelOwner& owner_;
  const proto::Hello hello_;
  const std::string peer_;
  ChannelSession session_;
  proto::Welcome welcome_;
  State state_ = State::kConnecting;
  bool goodbye_ = false;
  absl::Status why_;                      // set by the first End
  uint64_t last_id_ = 0;                  // ids of requests and cancels
  std::map<uint64_t, Request> requests_;  // ordered: the end completes them oldest first
  // Tasks that outlive a call hold a weak reference and find out whether the channel still exists.
  std::shared_ptr<ClientChannelImpl*> self_ = std::make_shared<ClientChannelImpl*>(this);
};

uint64_t ClientChannelImpl::Send(Op op, const google::protobuf::MessageLite& body,
                                 TimePoint deadline, std::shared_ptr<Call> call) {
  const uint64_t id = ++last_id_;
  Request& request = requests_[id];
  request.op = op;
  request.call = std::move(call);
  absl::Status status = Transmit(id, op, body, deadline);
  if (!status.ok()) {
    session_.executor().Post([weak = std::weak_ptr(self_), id, status = std::move(status)] {
      if (const auto self = weak.lock()) {
        (*self)->Finish(id, status, {});
      }
    });
    return id;
  }
  request.sent = true;
  if (deadline != kNever) {
    request.timer = session_.executor().RunAt(deadline, [this, id] {
      Finish(id, absl::DeadlineExceededError(absl::StrCat("no answer from ", peer_, " in time")),
             {});
    });
  }
  return id;
}

absl::Status ClientChannelImpl::Transmit(uint64_t id, Op op,
                                         const google::protobuf::MessageLite& body,
                                         TimePoint deadline) {
  if (state_ != State::kReady) {
    return absl::UnavailableError(absl::StrCat("not connected to ", peer_));
  }
  const TimePoint now = session_.executor().Now();
  if (deadline <= now) {
    return absl::DeadlineExceededError("the deadline had passed before the request was sent");
  }
  FrameHeader frame;
  frame.op = op;
  frame.request_id = id;
  frame.deadline_us = DeadlineMicros(deadline, now);
  return session_.Send(frame, body);
}

void ClientChannelImpl::SendPayload(uint64_t request_id, Op op, uint32_t index, PartId part,
                                    std::span<const RegisteredSpan> pieces, Done done) {
  if (state_ != State::kReady || requests_.count(request_id) == 0) {
    // Nobody waits for it any more, or the node has not said WELCOME: it must not reach the wire.
    session_.executor().Post([done = std::move(done)]() mutable {
      done(absl::CancelledError("the request of this payload has ended"));
    });
    return;
  }
  FrameHeader frame;
  frame.op = op;
  frame.request_id = request_id;
  frame.index = index;
  frame.group = part.group;
  frame.shard = part.shard;
  session_.SendPayload(frame, pieces, std::move(done));
}

void ClientChannelImpl::Cancel(uint64_t request_id) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) {
    return;
  }
  session_.executor().CancelTimer(it->second.timer);
  const bool sent = it->second.sent;
  requests_.erase(it);
  if (!sent || state_ != State::kReady) {
    return;
  }
  FrameHeader frame;
  frame.op = Op::kCancel;
  frame.request_id = ++last_id_;
  proto::CancelRequest body;
  body.set_request_id(request_id);
  // If the cancel cannot be sent the node finishes the work for nobody; its results are rejected.
  session_.Send(frame, body).IgnoreError();
}

void ClientChannelImpl::Close(CloseMode mode) {
  if (state_ == State::kDown) {
    return;
  }
  state_ = State::kClosing;
  session_.Close(mode);
}

void ClientChannelImpl::OnConnected(Connection&) {
  if (state_ != State::kConnecting) {
    return;
  }
  FrameHeader frame;
  frame.op = Op::kHello;
  if (absl::Status status = session_.Send(frame, hello_); !status.ok()) {
    End(std::move(status));
  }
}

std::optional<FrameHeader> ClientChannelImpl::Admit(std::span<const std::byte> header,
                                                    std::span<const std::byte> body) {
  if (!why_.ok()) {
    return std::nullopt;  // Ended; what was still under way does not count.
  }
  absl::StatusOr<FrameHeader> frame = ParseFrame(header, body);
  if (!frame.ok()) {
    const bool versions = frame.status().code() == absl::StatusCode::kFailedPrecondition;
    Violation(versions ? Incompatible(std::string(frame.status().message()), "") : frame.status());
    return std::nullopt;
  }
  if (welcomed() && frame->incarnation != welcome_.incarnation()) {
    Log(LogLevel::kDebug, "net", "frame_of_another_incarnation",
        {{"peer", peer_}, {"op", OpName(frame->op)}, {"incarnation", frame->incarnation}});
    return std::nullopt;
  }
  session_.Heard();
  return *frame;
}

void ClientChannelImpl::OnMessage(Connection&, std::span<const std::byte> header,
                                  std::span<const std::byte> body) {
  const std::optional<FrameHeader> frame = Admit(header, body);
  if (!frame) {
    return;
  }
  if (absl::Status status = Dispatch(*frame, body); !status.ok()) {
    Violation(std::move(status));
  }
}

absl::Status ClientChannelImpl::Dispatch(const FrameHeader& frame,
                                         std::span<const std::byte> body) {
  switch (frame.op) {
    case Op::kPing:
      session_.Pong(frame);
      return absl::OkStatus();
    case Op::kPong:
      return absl::OkStatus();
    case Op::kWelcome:
      return OnWelcome(frame, body);
    case Op::kRefused:
      return OnRefused(frame, body);
    case Op::kGoodbye: {
      proto::Goodbye goodbye;
      TOKURA_RETURN_IF_ERROR(ParseBody(frame, body, &goodbye));
      if (!std::exchange(goodbye_, true) && state_ == State::kReady) {
        owner_.OnGoodbye(*this);
      }
      return absl::OkStatus();
    }
    default:
      if (!welcomed() || frame.flags != kFrameReply) {
        return absl::InvalidArgumentError(
            absl::StrCat("unexpected frame from the node: op ", OpName(frame.op), " (",
                         static_cast<int>(frame.op), "), flags ", frame.flags));
      }
      return OnReply(frame, body);
  }
}

absl::Status ClientChannelImpl::OnWelcome(const FrameHeader& frame,
                                          std::span<const std::byte> body) {
  if (state_ == State::kClosing) {
    return absl::OkStatus();
  }
  if (state_ != State::kConnecting) {
    return absl::InvalidArgumentError("a second WELCOME");
  }
  proto::Welcome welcome;
  TOKURA_RETURN_IF_ERROR(ParseBody(frame, body, &welcome));
  const std::string mismatch = DescribeMismatch(
      versions(),
      {welcome.protocol_version(), welcome.transport_version(), welcome.format_version()});
  if (!mismatch.empty()) {
    return Incompatible(mismatch, welcome.node());
  }
  if (welcome.incarnation() != frame.incarnation) {
    return absl::InvalidArgumentError("WELCOME and its frame name different incarnations");
  }
  if (!hello_.expected_node().empty() && hello_.expected_node() != welcome.node()) {
    return absl::FailedPreconditionError(absl::StrCat("expected node '", hello_.expected_node(),
                                                      "' at ", peer_, " but found '",
                                                      welcome.node(), "'"));
  }
  welcome_ = std::move(welcome);
  state_ = State::kReady;
  session_.StartHeartbeats();
  if (absl::Status status = owner_.OnWelcome(*this, welcome_); !status.ok()) {
    End(std::move(status));
  }
  return absl::OkStatus();
}

absl::Status ClientChannelImpl::OnRefused(const FrameHeader& frame,
                                          std::span<const std::byte> body) {
  if (state_ == State::kReady) {
    return absl::InvalidArgumentError("REFUSED after WELCOME");
  }
  proto::Refused refused;
  TOKURA_RETURN_IF_ERROR(ParseBody(frame, body, &refused));
  const auto code = refused.code() >= 1 && refused.code() <= kStatusCodeMax
                        ? static_cast<absl::StatusCode>(refused.code())
                        : absl::StatusCode::kFailedPrecondition;
  if (code == absl::StatusCode::kFailedPrecondition) {
    const ChannelVersions theirs{refused.protocol_version(), refused.transport_version(),
                                 refused.format_version()};
    End(Incompatible(
        absl::StrCat(refused.reason(), " (the node has ", DescribeVersions(theirs), ")"),
        refused.node()));
  } else {
    End(absl::Status(code, absl::StrCat("refused by ", peer_, ": ", refused.reason())));
  }
  return absl::OkStatus();
}

absl::Status ClientChannelImpl::OnReply(const FrameHeader& frame, std::span<const std::byte> body) {
  const auto it = requests_.find(frame.request_id);
  if (it == requests_.end()) {
    return absl::OkStatus();  // Of a request that was cancelled or whose deadline passed.
  }
  if (it->second.op != frame.op || frame.status > kStatusCodeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", OpName(it->second.op), " was answered by op ", OpName(frame.op), " (",
                     static_cast<int>(frame.op), ") with status ", frame.status));
  }
  if (frame.status == 0) {
    Finish(frame.request_id, absl::OkStatus(), body);
    return absl::OkStatus();
  }
  proto::ErrorReply error;
  TOKURA_RETURN_IF_ERROR(ParseBody(frame, body, &error));
  Finish(frame.request_id,
         absl::Status(static_cast<absl::StatusCode>(frame.status), error.message()), {});
  return absl::OkStatus();
}

void ClientChannelImpl::OnPayload(Connection&, std::span<const std::byte> header,
                                  IncomingPayload payload) {
  const std::optional<FrameHeader> frame = Admit(header, {});
  if (!frame) {
    return;
  }
  const bool sound = welcomed() && frame->flags == (kFrameReply | kFramePayload) &&
                     frame->group <= UINT8_MAX && frame->shard <= UINT8_MAX &&
                     frame->payload_bytes == payload.size();
  if (!sound) {
    Violation(absl::InvalidArgumentError(
        absl::StrCat("unexpected payload from the node: op ", OpName(frame->op), ", flags ",
                     frame->flags, ", part ", frame->group, "/", frame->shard, ", declares ",
                     frame->payload_bytes, " bytes and offers ", payload.size())));
    return;
  }
  const auto it = requests_.find(frame->request_id);
  if (it == requests_.end()) {
    return;  // Too late: going out of scope rejects it.
  }
  const std::shared_ptr<Call> call = it->second.call;
  call->OnPayload(*frame, std::move(payload));
}

void ClientChannelImpl::OnClosed(Connection&, absl::Status why) {
  session_.OnClosed();
  state_ = State::kDown;
  if (why_.ok()) {
    why_ = why.code() == absl::StatusCode::kFailedPrecondition
               ? Incompatible(std::string(why.message()), "")
               : std::move(why);
  }
  FinishAll(absl::UnavailableError(absl::StrCat(
      "the connection to ", peer_, " ended: ", why_.ok() ? "closed" : why_.message())));
  ReportDown();
}

// Answers may have sent new requests, which are answered by tasks posted before this one.
void ClientChannelImpl::ReportDown() {
  session_.executor().Post([weak = std::weak_ptr(self_)] {
    const auto self = weak.lock();
    if (!self) {
      return;
    }
    ClientChannelImpl& channel = **self;
    if (channel.requests_.empty()) {
      channel.owner_.OnDown(channel, channel.why_);
    } else {
      channel.ReportDown();
    }
  });
}

void ClientChannelImpl::Finish(uint64_t id, const absl::Status& status,
                               std::span<const std::byte> body) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) {
    return;
  }
  session_.executor().CancelTimer(it->second.timer);
  const std::shared_ptr<Call> call = std::move(it->second.call);
  requests_.erase(it);
  call->OnReply(status, body);
}

void ClientChannelImpl::FinishAll(const absl::Status& status) {
  std::vector<uint64_t> ids;
  for (const auto& [id, request] : requests_) {
    ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    Finish(id, status, {});
  }
}

absl::Status ClientChannelImpl::Incompatible(std::string_view what, std::string_view node) const {
  const std::string named = node.empty() ? "" : absl::StrCat(" '", std::string(node), "'");
  return absl::FailedPreconditionError(
      absl::StrCat("node", named, " at ", peer_, " cannot be used: ", std::string(what),
                   "; this client has ", DescribeVersions(versions()),
                   "; the node's own versions are on the /version page of its admin address"));
}

void ClientChannelImpl::Violation(absl::Status why) {
  LogLimited(ViolationLog(), LogLevel::kWarn, "net", "node_broke_protocol",
             {{"peer", peer_}, {"reason", why.message()}});
  End(std::move(why));
}

void ClientChannelImpl::End(absl::Status why) {
  if (why_.ok()) {
    why_ = std::move(why);
  }
  Close(CloseMode::kAbort);
}

}  // namespace

std::unique_ptr<ClientChannel> ClientChannel::Start(Transport& transport, const Address& peer,
                                                    Options options, ClientChannelOwner& owner) {
  return std::make_unique<ClientChannelImpl>(transport, peer, std::move(options), owner);
}

}  // namespace tokura::net
