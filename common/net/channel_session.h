#pragma once

// What both ends of a channel share: frames out, silence measured, versions compared. Internal to
// client_channel.cc and server_channel.cc.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "common/net/channel.h"

namespace tokura::net {

// The versions that two processes must share to exchange blocks.
struct ChannelVersions {
  uint32_t protocol = kProtocolVersion;
  std::string_view transport;  // library's version; major.minor counts
  std::string_view format;
};

// Which of the versions differ: "protocol 2 here, 1 there; format …". Empty when the two can work
// together.
std::string DescribeMismatch(const ChannelVersions& here, const ChannelVersions& there);
// "protocol 3, transport 1.22.0, format 0.3", for messages that name one side.
std::string DescribeVersions(const ChannelVersions& versions);

// Parse a message that the channel itself consumes. INVALID_ARGUMENT names the op.
absl::Status ParseBody(const FrameHeader& frame, std::span<const std::byte> body,
                       google::protobuf::MessageLite* message);

// The bytes of a serialised message, borrowed from the string.
std::span<const std::byte> BodyBytes(const std::string& body);

// One end of a session: owns the connection, sends frames, watches for silence. Owned by the
// transport's executor; every timer it makes is cancelled by OnClosed or its destruction.
class ChannelSession {
 public:
  // `on_silence` is told why when the peer was not heard for too long (or never said hello).
  using OnSilence = absl::AnyInvocable<void(absl::Status)>;
  ChannelSession(Transport& transport, ChannelTimeouts timeouts, uint64_t incarnation,
                 OnSilence on_silence);
  ~ChannelSession();

  // Take over the connection and wait for the peer's hello. Once.
  void Attach(std::unique_ptr<Connection> connection);
  // The peer's HELLO or WELCOME was accepted: from here on silence is answered by PING, then close.
  void StartHeartbeats();
  // A valid frame arrived.
  void Heard() { last_heard_ = executor_.Now(); }
  TimePoint last_heard() const { return last_heard_; }

  // Send a frame with our incarnation. As Connection::SendMessage, and INVALID_ARGUMENT for a body
  // that no message can carry.
  absl::Status Send(FrameHeader frame, std::span<const std::byte> body);
  absl::Status Send(FrameHeader frame, const google::protobuf::MessageLite& body);
  // Offer a payload whose size fills the frame's payload_bytes. After the end `done` gets
  // UNAVAILABLE.
  void SendPayload(FrameHeader frame, std::span<const RegisteredSpan> pieces, Done done);
  // Answer a PING.
  void Pong(const FrameHeader& ping);

  void Close(CloseMode mode);
  // The connection's OnClosed: nothing is sent and no timer runs from here on.
  void OnClosed();
  bool closed() const { return closed_; }

  Executor& executor() { return executor_; }
  std::string peer() const { return connection_->peer(); }

 private:
  void Tick();

  Executor& executor_;
  const ChannelTimeouts timeouts_;
  const uint64_t incarnation_;
  OnSilence on_silence_;
  std::unique_ptr<Connection> connection_;
  TimePoint last_heard_;
  TimerId timer_ = 0;
  bool closed_ = false;
};

}  // namespace tokura::net
