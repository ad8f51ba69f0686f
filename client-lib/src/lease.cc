#include "client-lib/src/lease.h"

#include "proto/tokura.pb.h"

namespace tokura {
namespace {

// A request whose answer nobody waits for.
class IgnoredCall final : public net::Call {
 public:
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status, std::span<const std::byte>) override {}
};

void Tell(CoreContext& core, const Match& held, net::Op op,
          const google::protobuf::MessageLite& body) {
  NodeLink* maybe_link = core.directory.Find(held.node, held.incarnation);
  if (held.lease.empty() || maybe_link == nullptr) {
    return;
  }
  maybe_link->Send(op, body, After(core.executor.Now(), core.options.progress_timeout),
                   std::make_shared<IgnoredCall>());
}

}  // namespace

void RenewLease(CoreContext& core, const Match& held) {
  proto::RenewRequest body;
  body.set_leases(held.lease.bytes.data(), LeaseToken::kBytes);
  Tell(core, held, net::Op::kRenew, body);
}

void ReleaseLease(CoreContext& core, const Match& held) {
  proto::ReleaseRequest body;
  body.set_leases(held.lease.bytes.data(), LeaseToken::kBytes);
  Tell(core, held, net::Op::kRelease, body);
}

}  // namespace tokura
