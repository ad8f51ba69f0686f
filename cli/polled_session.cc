#include "cli/polled_session.h"

#include <array>
#include <optional>
#include <utility>

#include "common/random.h"
#include "common/status_macros.h"
#include "google/protobuf/message_lite.h"
#include "kernels/part.h"

namespace tokura::cli {
namespace {

constexpr Duration kPollStep = std::chrono::milliseconds(100);

}  // namespace

struct PolledSession::AnswerCall final : net::Call {
  explicit AnswerCall(Answer to) : answer(std::move(to)) {}
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    answer(std::move(status), body);
  }
  Answer answer;
};

absl::StatusOr<std::unique_ptr<PolledSession>> PolledSession::Connect(net::UcxTransport& transport,
                                                                      const net::Address& server,
                                                                      const Options& options) {
  std::array<std::byte, 16> instance{};
  SystemRandom().Fill(instance);
  net::ClientChannel::Options channel;
  channel.hello = net::MakeHello(transport, options.role, options.name, instance);
  channel.hello.set_format_version(kernels::FormatVersionString());
  channel.timeouts.hello = options.patience;
  channel.timeouts.dead_after = options.patience;
  std::unique_ptr<PolledSession> session(new PolledSession(transport, options.patience));
  session->channel_ = net::ClientChannel::Start(transport, server, std::move(channel), *session);
  while (!session->channel_->ready() && !session->down_) {
    transport.Poll(kPollStep);
  }
  TOKURA_RETURN_IF_ERROR(session->why_);
  return session;
}

PolledSession::~PolledSession() {
  channel_->Close(net::CloseMode::kAbort);
  while (!down_) {
    transport_.Poll(kPollStep);
  }
}

void PolledSession::Send(net::Op op, const google::protobuf::MessageLite& body, Answer answer) {
  // Shared with the channel until it is answered.
  channel_->Send(op, body, transport_.executor().Now() + patience_,
                 std::make_shared<AnswerCall>(std::move(answer)));
}

absl::Status PolledSession::Ask(net::Op op, const google::protobuf::MessageLite& body,
                                google::protobuf::MessageLite* reply) {
  std::optional<absl::Status> result;
  Send(op, body, [&result, reply](absl::Status status, std::span<const std::byte> bytes) {
    if (status.ok() && !reply->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      status = absl::InternalError("the answer cannot be read");
    }
    result = std::move(status);
  });
  while (!result.has_value()) {
    transport_.Poll(kPollStep);
  }
  return *std::move(result);
}

void PolledSession::OnDown(net::ClientChannel&, absl::Status why) {
  down_ = true;
  why_ = why.ok() ? absl::UnavailableError("the connection has closed") : std::move(why);
}

}  // namespace tokura::cli
