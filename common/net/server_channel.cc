#include <atomic>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/net/channel.h"
#include "common/net/channel_session.h"
#include "common/status_macros.h"

namespace tokura::net {
namespace {

// Answered requests whose late payloads are still told apart from early ones.
constexpr size_t kAnsweredMax = 1024;
constexpr size_t kErrorMessageBytesMax = 4096;
// What a HELLO may say of its sender. Fields that are compared with ours may be as long as a
// message: a mismatch is told readably.
constexpr size_t kHelloNameBytesMax = 256;
constexpr size_t kHelloInstanceBytesMax = 64;

uint64_t NextChannelId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Cut a text to the limit without splitting a UTF-8 character, which protobuf would refuse.
std::string Shorten(std::string text) {
  if (text.size() > kErrorMessageBytesMax) {
    size_t end = kErrorMessageBytesMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
      --end;
    }
    text.resize(end);
  }
  return text;
}

// Requests of every server: what one does not serve, its owner refuses.
bool IsRequest(Op op) {
  switch (op) {
    case Op::kLookup:
    case Op::kAcquire:
    case Op::kRenew:
    case Op::kRelease:
    case Op::kGet:
    case Op::kPut:
    case Op::kRemove:
    case Op::kStat:
    case Op::kLocate:
    case Op::kPlan:
    case Op::kWatch:
    case Op::kNodes:
    case Op::kRegister:
    case Op::kReport:
    case Op::kInventory:
      return true;
    default:
      return false;
  }
}

class ServerChannelImpl final : public ServerChannel, public ConnectionHandler {
 public:
  ServerChannelImpl(Transport& transport, std::unique_ptr<Connection> connection, Options options,
                    ServerChannelOwner& owner)
      : owner_(owner),
        transport_(transport),
        options_(std::move(options)),
        id_(options_.id != 0 ? options_.id : NextChannelId()),
        session_(transport, options_.timeouts, options_.incarnation,
                 [this](absl::Status why) { End(std::move(why)); }) {
    session_.Attach(std::move(connection));
  }

  ConnectionHandler& handler() override { return *this; }
  uint64_t id() const override { return id_; }
  Transport& transport() override { return transport_; }
  const proto::Hello& hello() const override { return hello_; }
  std::string peer() const override { return session_.peer(); }

  void Reply(const FrameHeader& request, const absl::Status& status,
             const google::protobuf::MessageLite* body) override;
  void SendPayload(const FrameHeader& request, uint32_t index, PartId part,
                   std::span<const RegisteredSpan> pieces, Done done) override;
  void SendGoodbye(std::string reason) override;
  void Close(CloseMode mode) override { session_.Close(mode); }

  void OnConnected(Connection&) override {}  // An accepted connection begins connected.
  void OnMessage(Connection& connection, std::span<const std::byte> header,
                 std::span<const std::byte> body) override;
  void OnPayload(Connection& connection, std::span<const std::byte> header,
                 IncomingPayload payload) override;
  void OnClosed(Connection& connection, absl::Status why) override;

 private:
  enum class State { kGreeting, kReady, kEnded };

  absl::Status Dispatch(const FrameHeader& frame, std::span<const std::byte> body);
  absl::Status OnHello(const FrameHeader& frame, std::span<const std::byte> body);
  absl::Status OnRequest(const FrameHeader& frame, std::span<const std::byte> body);
  // Whether this node is the one that the client looks for, with versions it can use.
  absl::Status CheckHello() const;
  void Welcome(proto::Welcome welcome);
  void Refuse(const absl::Status& why);
  void Answer(const FrameHeader& request, const absl::Status& status,
              const google::protobuf::MessageLite* body);
  void RememberAnswered(uint64_t request_id);
  // A WARN about the peer, within the bounds of the options' limiter.
  void Warn(std::string_view event, std::initializer_list<LogField> fields);
  ChannelVersions versions() const {
    return {kProtocolVersion, transport_version_, options_.format_version};
  }
  // The peer broke the protocol: log and end.
  void Violation(absl::Status why);
  // Close at once; OnClosed will say `why`.
  void End(absl::Status why);

  ServerChannelOwner& owner_;
  Transport& transport_;
  const Options options_;
  const uint64_t id_;
  const std::string transport_version_ = transport_.version();
  ChannelSession session_;
  proto::Hello hello_;
  State state_ = State::kGreeting;
  absl::Status why_;                     // set by the first End
  std::set<uint64_t> outstanding_;       // requests that the owner has still to answer
  std::set<uint64_t> answered_;          // the latest answered ones, at most kAnsweredMax
  std::deque<uint64_t> answered_order_;  // the same, oldest first
};

void ServerChannelImpl::OnMessage(Connection&, std::span<const std::byte> header,
                                  std::span<const std::byte> body) {
  if (state_ == State::kEnded) {
    return;
  }
  const absl::StatusOr<FrameHeader> frame = ParseFrame(header, body);
  if (!frame.ok()) {
    if (frame.status().code() == absl::StatusCode::kFailedPrecondition &&
        state_ == State::kGreeting) {
      Refuse(frame.status());
    } else {
      Violation(frame.status());
    }
    return;
  }
  session_.Heard();
  if (absl::Status status = Dispatch(*frame, body); !status.ok()) {
    Violation(std::move(status));
  }
}

absl::Status ServerChannelImpl::Dispatch(const FrameHeader& frame,
                                         std::span<const std::byte> body) {
  if (state_ == State::kGreeting && frame.op != Op::kHello) {
    return absl::InvalidArgumentError(
        absl::StrCat("op ", OpName(frame.op), " (", static_cast<int>(frame.op), ") before HELLO"));
  }
  switch (frame.op) {
    case Op::kHello:
      return OnHello(frame, body);
    case Op::kPing:
      session_.Pong(frame);
      return absl::OkStatus();
    case Op::kPong:
    case Op::kGoodbye:
      return absl::OkStatus();
    case Op::kCancel:
      owner_.OnRequest(*this, frame, body);
      return absl::OkStatus();
    default:
      return OnRequest(frame, body);
  }
}

absl::Status ServerChannelImpl::OnHello(const FrameHeader& frame, std::span<const std::byte> body) {
  if (state_ != State::kGreeting) {
    return absl::InvalidArgumentError("a second HELLO");
  }
  TOKURA_RETURN_IF_ERROR(ParseBody(frame, body, &hello_));
  proto::Welcome welcome;
  absl::Status status = CheckHello();
  if (status.ok()) {
    status = owner_.OnHello(*this, hello_, &welcome);
  }
  if (state_ != State::kGreeting) {
    return absl::OkStatus();  // The owner closed the channel meanwhile.
  }
  if (status.ok()) {
    Welcome(std::move(welcome));
  } else {
    Refuse(status);
  }
  return absl::OkStatus();
}

absl::Status ServerChannelImpl::CheckHello() const {
  if (hello_.name().size() > kHelloNameBytesMax || hello_.role().size() > kHelloNameBytesMax ||
      hello_.instance().size() > kHelloInstanceBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the client's name or role has more than ", kHelloNameBytesMax,
                     " bytes, or its instance more than ", kHelloInstanceBytesMax));
  }
  const ChannelVersions theirs{hello_.protocol_version(), hello_.transport_version(),
                               hello_.format_version()};
  const std::string mismatch = DescribeMismatch(versions(), theirs);
  if (!mismatch.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("versions differ (here: the node, there: the client): ", mismatch));
  }
  if (hello_.transport() != transport_.name()) {
    return absl::FailedPreconditionError(absl::StrCat("the client speaks transport '",
                                                      hello_.transport(), "', the node '",
                                                      transport_.name(), "'"));
  }
  if (!hello_.expected_node().empty() && hello_.expected_node() != options_.node) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the client looks for node '", hello_.expected_node(), "', this is '", options_.node, "'"));
  }
  if (hello_.fenced_below() > options_.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("fenced: this is incarnation ", options_.incarnation, " of node '",
                     options_.node, "', the client knows ", hello_.fenced_below()));
  }
  return absl::OkStatus();
}

void ServerChannelImpl::Welcome(proto::Welcome welcome) {
  welcome.set_node(options_.node);
  welcome.set_incarnation(options_.incarnation);
  welcome.set_protocol_version(kProtocolVersion);
  welcome.set_transport_version(transport_version_);
  welcome.set_format_version(options_.format_version);
  welcome.set_software_version(kSoftwareVersion);
  welcome.set_connection(id_);
  state_ = State::kReady;
  session_.StartHeartbeats();
  FrameHeader frame;
  frame.op = Op::kWelcome;
  if (absl::Status status = session_.Send(frame, welcome); !status.ok()) {
    End(std::move(status));
  }
}

void ServerChannelImpl::Refuse(const absl::Status& why) {
  const ChannelVersions theirs{hello_.protocol_version(), hello_.transport_version(),
                               hello_.format_version()};
  Warn("client_refused",
       {{"peer", session_.peer()},
        {"client", hello_.name()},
        {"reason", why.message()},
        {"client_versions", theirs.protocol == 0 ? "unknown" : DescribeVersions(theirs)},
        {"node_versions", DescribeVersions(versions())}});
  proto::Refused refused;
  refused.set_code(static_cast<uint32_t>(why.code()));
  refused.set_reason(Shorten(std::string(why.message())));
  refused.set_protocol_version(kProtocolVersion);
  refused.set_transport_version(transport_version_);
  refused.set_format_version(options_.format_version);
  refused.set_node(options_.node);
  refused.set_incarnation(options_.incarnation);
  FrameHeader frame;
  frame.op = Op::kRefused;
  // When even this cannot be sent the client sees its connection closed.
  session_.Send(frame, refused).IgnoreError();
  state_ = State::kEnded;
  why_ = why;
  session_.Close(CloseMode::kFlush);
}

absl::Status ServerChannelImpl::OnRequest(const FrameHeader& frame,
                                          std::span<const std::byte> body) {
  if (!IsRequest(frame.op) || frame.flags != 0 || frame.request_id == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unexpected frame from the client: op ", OpName(frame.op), " (", static_cast<int>(frame.op),
        "), flags ", frame.flags, ", request ", frame.request_id));
  }
  if (outstanding_.count(frame.request_id) != 0 || answered_.count(frame.request_id) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("request id ", frame.request_id, " used twice"));
  }
  if (outstanding_.size() >= options_.requests_max) {
    RememberAnswered(frame.request_id);
    Answer(frame,
           absl::ResourceExhaustedError(absl::StrCat("more than ", options_.requests_max,
                                                     " requests outstanding on this connection")),
           nullptr);
  } else {
    outstanding_.insert(frame.request_id);
    owner_.OnRequest(*this, frame, body);
  }
  return absl::OkStatus();
}

void ServerChannelImpl::OnPayload(Connection&, std::span<const std::byte> header,
                                  IncomingPayload payload) {
  if (state_ == State::kEnded) {
    return;
  }
  const absl::StatusOr<FrameHeader> frame = ParseFrame(header, {});
  if (!frame.ok()) {
    Violation(frame.status());
    return;
  }
  const bool sound = state_ == State::kReady && frame->op == Op::kPut &&
                     frame->flags == kFramePayload && frame->request_id != 0 &&
                     frame->group <= UINT8_MAX && frame->shard <= UINT8_MAX &&
                     frame->payload_bytes == payload.size();
  if (!sound) {
    Violation(absl::InvalidArgumentError(
        absl::StrCat("unexpected payload from the client: op ", OpName(frame->op), ", flags ",
                     frame->flags, ", request ", frame->request_id, ", part ", frame->group, "/",
                     frame->shard, ", declares ", frame->payload_bytes, " bytes and offers ",
                     payload.size(), state_ == State::kGreeting ? ", before HELLO" : "")));
    return;
  }
  session_.Heard();
  if (answered_.count(frame->request_id) == 0) {
    owner_.OnPayload(*this, *frame, std::move(payload));
  }
}

void ServerChannelImpl::OnClosed(Connection&, absl::Status why) {
  session_.OnClosed();
  state_ = State::kEnded;
  outstanding_.clear();
  owner_.OnClosed(*this, why_.ok() ? std::move(why) : why_);
}

void ServerChannelImpl::Reply(const FrameHeader& request, const absl::Status& status,
                              const google::protobuf::MessageLite* body) {
  if (outstanding_.erase(request.request_id) == 0) {
    return;
  }
  RememberAnswered(request.request_id);
  Answer(request, status, body);
}

void ServerChannelImpl::Answer(const FrameHeader& request, const absl::Status& status,
                               const google::protobuf::MessageLite* body) {
  FrameHeader frame;
  frame.op = request.op;
  frame.flags = kFrameReply;
  frame.request_id = request.request_id;
  frame.status = static_cast<uint16_t>(status.code());
  absl::Status sent;
  if (!status.ok()) {
    proto::ErrorReply error;
    error.set_message(Shorten(std::string(status.message())));
    sent = session_.Send(frame, error);
  } else if (body != nullptr) {
    sent = session_.Send(frame, *body);
  } else {
    sent = session_.Send(frame, std::span<const std::byte>{});
  }
  if (sent.code() == absl::StatusCode::kInvalidArgument) {
    Answer(request, absl::InternalError(sent.message()), nullptr);
  } else if (sent.code() == absl::StatusCode::kResourceExhausted) {
    // Answers are bounded: a client that asks and does not listen loses its connection.
    Violation(absl::ResourceExhaustedError(
        absl::StrCat("the client does not take its answers: ", sent.message())));
  }
}

void ServerChannelImpl::RememberAnswered(uint64_t request_id) {
  answered_.insert(request_id);
  answered_order_.push_back(request_id);
  if (answered_order_.size() > kAnsweredMax) {
    answered_.erase(answered_order_.front());
    answered_order_.pop_front();
  }
}

void ServerChannelImpl::SendPayload(const FrameHeader& request, uint32_t index, PartId part,
                                    std::span<const RegisteredSpan> pieces, Done done) {
  FrameHeader frame;
  frame.op = request.op;
  frame.flags = kFrameReply;
  frame.request_id = request.request_id;
  frame.index = index;
  frame.group = part.group;
  frame.shard = part.shard;
  session_.SendPayload(frame, pieces, std::move(done));
}

void ServerChannelImpl::SendGoodbye(std::string reason) {
  if (state_ != State::kReady) {
    return;
  }
  proto::Goodbye goodbye;
  goodbye.set_reason(Shorten(std::move(reason)));
  FrameHeader frame;
  frame.op = Op::kGoodbye;
  // A client that misses it learns the same from the close that follows.
  session_.Send(frame, goodbye).IgnoreError();
}

void ServerChannelImpl::Violation(absl::Status why) {
  Warn("client_broke_protocol",
       {{"peer", session_.peer()}, {"client", hello_.name()}, {"reason", why.message()}});
  End(std::move(why));
}

void ServerChannelImpl::Warn(std::string_view event, std::initializer_list<LogField> fields) {
  if (options_.maybe_log != nullptr) {
    LogLimited(*options_.maybe_log, LogLevel::kWarn, "net", event, fields);
  } else {
    Log(LogLevel::kWarn, "net", event, fields);
  }
}

void ServerChannelImpl::End(absl::Status why) {
  state_ = State::kEnded;
  if (why_.ok()) {
    why_ = std::move(why);
  }
  session_.Close(CloseMode::kAbort);
}

}  // namespace

std::unique_ptr<ServerChannel> ServerChannel::Accept(Transport& transport,
                                                     std::unique_ptr<Connection> connection,
                                                     Options options, ServerChannelOwner& owner) {
  return std::make_unique<ServerChannelImpl>(transport, std::move(connection), std::move(options),
                                             owner);
}

}  // namespace tokura::net
