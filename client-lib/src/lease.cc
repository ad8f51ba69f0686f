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

template <typename Request>
void Tell(CoreContext& core, const Match::Holder& holder, net::Op op) {
  NodeLink* maybe_link = core.directory.Find(holder.node, holder.incarnation);
  if (holder.lease.empty() || maybe_link == nullptr) {
    return;
  }
  Request body;
  body.set_leases(holder.lease.bytes.data(), LeaseToken::kBytes);
  maybe_link->Send(op, body, After(core.executor.Now(), core.options.progress_timeout),
                   std::make_shared<IgnoredCall>());
}

}  // namespace

void RenewLease(CoreContext& core, const Match& held) {
  for (const Match::Holder& holder : held.holders) {
    Tell<proto::RenewRequest>(core, holder, net::Op::kRenew);
  }
}

void ReleaseLease(CoreContext& core, const Match& held) {
  for (const Match::Holder& holder : held.holders) {
    ReleaseLease(core, holder);
  }
}

void ReleaseLease(CoreContext& core, const Match::Holder& holder) {
  Tell<proto::ReleaseRequest>(core, holder, net::Op::kRelease);
}

}  // namespace tokura
