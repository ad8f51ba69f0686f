#include "client-lib/src/suspects.h"

#include <memory>
#include <utility>

#include "proto/tokura.pb.h"

namespace tokura {
namespace {

SuspectResult ResultOf(const absl::Status& status, std::span<const std::byte> body) {
  proto::RemoveReply reply;
  if (!status.ok() || !reply.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
      reply.statuses().size() != 1) {
    return SuspectResult::kUnanswered;
  }
  switch (static_cast<absl::StatusCode>(reply.statuses()[0])) {
    case absl::StatusCode::kOk:
      return SuspectResult::kRemoved;
    case absl::StatusCode::kFailedPrecondition:
      return SuspectResult::kSound;
    case absl::StatusCode::kNotFound:
      return SuspectResult::kGone;
    default:
      return SuspectResult::kUnanswered;
  }
}

}  // namespace

class Suspects::CheckCall final : public net::Call {
 public:
  CheckCall(Suspects& suspects, Suspect suspect)
      : suspects_(suspects), suspect_(std::move(suspect)) {}
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    suspects_.metrics_.SuspectEnded(ResultOf(status, body));
    suspects_.under_way_.erase(suspect_);
  }

 private:
  Suspects& suspects_;
  const Suspect suspect_;
};

void Suspects::Report(NodeLink& link, const Fingerprint& fingerprint, const BlockKey& key,
                      TimePoint deadline) {
  Suspect suspect(link.node(), link.incarnation(), fingerprint, key);
  if (under_way_.count(suspect) != 0) {
    return;
  }
  if (!link.usable() || under_way_.size() >= kUnderWayMax) {
    metrics_.SuspectEnded(SuspectResult::kUnanswered);
    return;
  }
  under_way_.insert(suspect);
  proto::RemoveRequest body;
  body.set_fingerprint(fingerprint.bytes.data(), Fingerprint::kBytes);
  body.set_suspects(key.bytes.data(), BlockKey::kBytes);
  link.Send(net::Op::kRemove, body, deadline,
            std::make_shared<CheckCall>(*this, std::move(suspect)));
}

}  // namespace tokura
