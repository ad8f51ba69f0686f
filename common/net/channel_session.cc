#include "common/net/channel_session.h"

#include <algorithm>
#include <array>
#include <utility>

#include <google/protobuf/message_lite.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace tokura::net {
namespace {

// "1.22" of "1.22.0": what must match between two processes' transport libraries.
std::string_view MajorMinor(std::string_view version) {
  const size_t first = version.find('.');
  const size_t second = first == std::string_view::npos ? first : version.find('.', first + 1);
  return version.substr(0, second);
}

int64_t Millis(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// An absl string piece of a standard one: absl of 2022 may be built with its own type.
absl::string_view Piece(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

std::string DescribeMismatch(const ChannelVersions& here, const ChannelVersions& there) {
  std::vector<std::string> differences;
  if (here.protocol != there.protocol) {
    differences.push_back(
        absl::StrCat("protocol ", here.protocol, " here, ", there.protocol, " there"));
  }
  if (MajorMinor(here.transport) != MajorMinor(there.transport)) {
    differences.push_back(absl::StrCat("transport ", Piece(here.transport), " here, ",
                                       Piece(there.transport), " there"));
  }
  if (here.format != there.format) {
    differences.push_back(absl::StrCat("block format ", Piece(here.format), " here, ",
                                       Piece(there.format), " there"));
  }
  return absl::StrJoin(differences, "; ");
}

std::string DescribeVersions(const ChannelVersions& versions) {
  return absl::StrCat("protocol ", versions.protocol, ", transport ", Piece(versions.transport),
                      ", block format ", Piece(versions.format));
}

absl::Status ParseBody(const FrameHeader& frame, std::span<const std::byte> body,
                       google::protobuf::MessageLite* message) {
  if (!message->ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body of a ", OpName(frame.op), " frame does not parse"));
  }
  return absl::OkStatus();
}

std::span<const std::byte> BodyBytes(const std::string& body) {
  return std::as_bytes(std::span<const char>(body));
}

ChannelSession::ChannelSession(Transport& transport, ChannelTimeouts timeouts, uint64_t incarnation,
                               OnSilence on_silence)
    : executor_(transport.executor()),
      timeouts_(timeouts),
      incarnation_(incarnation),
      on_silence_(std::move(on_silence)),
      last_heard_(executor_.Now()) {}

ChannelSession::~ChannelSession() {
  executor_.CancelTimer(timer_);
}

void ChannelSession::Attach(std::unique_ptr<Connection> connection) {
  connection_ = std::move(connection);
  timer_ = executor_.RunAfter(timeouts_.hello, [this] {
    timer_ = 0;
    on_silence_(absl::UnavailableError(
        absl::StrCat("no hello from the peer within ", Millis(timeouts_.hello), " ms")));
  });
}

void ChannelSession::StartHeartbeats() {
  executor_.CancelTimer(timer_);
  timer_ = executor_.RunAfter(timeouts_.heartbeat, [this] { Tick(); });
}

void ChannelSession::Tick() {
  timer_ = 0;
  const TimePoint now = executor_.Now();
  const TimePoint dead = last_heard_ + timeouts_.dead_after;
  if (now >= dead) {
    on_silence_(absl::UnavailableError(
        absl::StrCat("nothing heard from the peer for ", Millis(now - last_heard_), " ms")));
    return;
  }
  TimePoint next = last_heard_ + timeouts_.heartbeat;
  if (now >= next) {
    FrameHeader ping;
    ping.op = Op::kPing;
    // A ping that cannot be queued is no worse than one that is lost: silence decides.
    Send(ping, std::span<const std::byte>{}).IgnoreError();
    next = std::min(dead, now + timeouts_.heartbeat);
  }
  timer_ = executor_.RunAt(next, [this] { Tick(); });
}

absl::Status ChannelSession::Send(FrameHeader frame, std::span<const std::byte> body) {
  if (closed_) {
    return absl::UnavailableError("the connection is closed");
  }
  if (body.size() > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a ", OpName(frame.op), " body of ", body.size(),
                                                   " bytes exceeds the limit of ",
                                                   kMessageBytesMax));
  }
  frame.incarnation = incarnation_;
  std::array<std::byte, kFrameBytes> header;
  SerializeFrame(frame, body, header);
  return connection_->SendMessage(header, body);
}

absl::Status ChannelSession::Send(FrameHeader frame, const google::protobuf::MessageLite& body) {
  return Send(frame, BodyBytes(body.SerializeAsString()));
}

void ChannelSession::SendPayload(FrameHeader frame, std::span<const RegisteredSpan> pieces,
                                 Done done) {
  if (closed_) {
    executor_.Post([done = std::move(done)]() mutable {
      done(absl::UnavailableError("the connection is closed"));
    });
    return;
  }
  frame.incarnation = incarnation_;
  frame.flags |= kFramePayload;
  for (const RegisteredSpan& piece : pieces) {
    frame.payload_bytes += piece.size;
  }
  std::array<std::byte, kFrameBytes> header;
  SerializeFrame(frame, {}, header);
  connection_->SendPayload(header, pieces, std::move(done));
}

void ChannelSession::Pong(const FrameHeader& ping) {
  FrameHeader pong;
  pong.op = Op::kPong;
  pong.flags = kFrameReply;
  pong.request_id = ping.request_id;
  Send(pong, std::span<const std::byte>{}).IgnoreError();
}

void ChannelSession::Close(CloseMode mode) {
  if (!closed_) {
    connection_->Close(mode);
  }
}

void ChannelSession::OnClosed() {
  TOKURA_CHECK(!closed_);
  closed_ = true;
  executor_.CancelTimer(std::exchange(timer_, 0));
}

}  // namespace tokura::net
