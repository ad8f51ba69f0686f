#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/channel.h"
#include "common/net/ucx_transport.h"
#include "common/time.h"

namespace tokura::cli {

// A session with one server on a transport that the calling thread polls. Owned by that thread.
class PolledSession final : public net::ClientChannelOwner {
 public:
  struct Options {
    std::string role = "client";  // or "node"
    std::string name;
    // Neither connecting nor any silence of this thread, which polls only now and then, is taken
    // for the end of a peer before this.
    Duration patience = std::chrono::seconds(60);
  };
  // Connect and poll until the server has said welcome. `transport` outlives the session. The
  // server's own status when it refuses; UNAVAILABLE: nobody is there.
  static absl::StatusOr<std::unique_ptr<PolledSession>> Connect(net::UcxTransport& transport,
                                                                const net::Address& server,
                                                                const Options& options);
  // Closes; what has not been answered gets UNAVAILABLE or CANCELLED before this returns.
  ~PolledSession() override;
  PolledSession(const PolledSession&) = delete;
  PolledSession& operator=(const PolledSession&) = delete;

  // What a request gets, once, while the transport is polled; the body is valid during the call.
  using Answer = absl::AnyInvocable<void(absl::Status, std::span<const std::byte>)>;
  void Send(net::Op op, const google::protobuf::MessageLite& body, Answer answer);
  // Send and poll until it is answered. INTERNAL: the answer is no `reply`.
  absl::Status Ask(net::Op op, const google::protobuf::MessageLite& body,
                   google::protobuf::MessageLite* reply);

  net::UcxTransport& transport() { return transport_; }

  absl::Status OnWelcome(net::ClientChannel&, const proto::Welcome&) override {
    return absl::OkStatus();
  }
  void OnGoodbye(net::ClientChannel&) override {}
  void OnDown(net::ClientChannel&, absl::Status why) override;

 private:
  struct AnswerCall;

  PolledSession(net::UcxTransport& transport, Duration patience)
      : transport_(transport), patience_(patience) {}

  net::UcxTransport& transport_;
  const Duration patience_;
  std::unique_ptr<net::ClientChannel> channel_;
  bool down_ = false;
  absl::Status why_;
};

}  // namespace tokura::cli
