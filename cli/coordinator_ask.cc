#include "cli/coordinator_ask.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/polled_session.h"
#include "common/net/ucx_transport.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

constexpr Duration kAskAgainAfter = std::chrono::milliseconds(50);

// Why `reply` does not yet show that all of `nodes` serve; empty: it does.
std::string Missing(const proto::NodesReply& reply, const std::vector<std::string>& nodes) {
  std::string missing;
  for (const std::string& node : nodes) {
    const auto row =
        std::find_if(reply.rows().begin(), reply.rows().end(),
                     [&node](const proto::NodeRow& r) { return r.member().node() == node; });
    const bool serves =
        row != reply.rows().end() && row->complete() && row->member().state() == proto::Member::UP;
    if (!serves) {
      absl::StrAppend(&missing, missing.empty() ? "" : ", ", node,
                      row == reply.rows().end() ? " is no member" : " is not complete or not up");
    }
  }
  return missing;
}

absl::StatusOr<proto::NodesReply> AskOne(net::UcxTransport& transport, const net::Address& address,
                                         Duration timeout) {
  TOKURA_ASSIGN_OR_RETURN(
      const auto session,
      PolledSession::Connect(transport, address, {.name = "tokura-cli", .patience = timeout}));
  proto::NodesReply reply;
  TOKURA_RETURN_IF_ERROR(session->Ask(net::Op::kNodes, proto::NodesRequest(), &reply));
  return reply;
}

void Wait(net::UcxTransport& transport, Duration time) {
  const TimePoint end = SystemClock().Now() + time;
  for (TimePoint now = SystemClock().Now(); now < end; now = SystemClock().Now()) {
    transport.Poll(end - now);
  }
}

}  // namespace

absl::StatusOr<proto::NodesReply> AskForNodes(const std::vector<std::string>& coordinators,
                                              Duration timeout) {
  std::vector<net::Address> addresses;
  for (const std::string& coordinator : coordinators) {
    TOKURA_ASSIGN_OR_RETURN(net::Address address, net::Address::Parse(coordinator));
    addresses.push_back(std::move(address));
  }
  TOKURA_ASSIGN_OR_RETURN(const auto context, net::UcxContext::Create({}));
  TOKURA_ASSIGN_OR_RETURN(const auto transport, net::UcxTransport::Create(*context, {}));
  const TimePoint deadline = SystemClock().Now() + timeout;
  absl::Status why = absl::InvalidArgumentError("no coordinator was named");
  for (bool again = false;; again = true) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      // A silent one leaves the others their share of the time.
      const Duration share =
          (deadline - SystemClock().Now()) / static_cast<int64_t>(addresses.size() - i);
      if (again && share < kAskAgainAfter) {
        return why;  // Too little for an answer; what an earlier round met says more.
      }
      auto reply = AskOne(*transport, addresses[i], share);
      if (reply.ok()) {
        return reply;
      }
      why = reply.status();
      if (!absl::StrContains(why.message(), coordinators[i])) {
        why = absl::Status(why.code(), absl::StrCat(coordinators[i], ": ", why.message()));
      }
    }
    // Of several, one that starts or was busy may serve a moment later; a single one that is not
    // there is better said at once.
    if (addresses.size() < 2) {
      return why;
    }
    Wait(*transport, kAskAgainAfter);
  }
}

absl::Status WaitForNodes(const std::string& coordinator, const std::vector<std::string>& nodes,
                          Duration timeout) {
  TOKURA_ASSIGN_OR_RETURN(const net::Address address, net::Address::Parse(coordinator));
  TOKURA_ASSIGN_OR_RETURN(const auto context, net::UcxContext::Create({}));
  TOKURA_ASSIGN_OR_RETURN(const auto transport, net::UcxTransport::Create(*context, {}));
  const TimePoint deadline = SystemClock().Now() + timeout;
  std::string missing;
  for (TimePoint now = SystemClock().Now(); now < deadline; now = SystemClock().Now()) {
    const auto reply = AskOne(*transport, address, deadline - now);
    missing = reply.ok() ? Missing(*reply, nodes) : std::string(reply.status().message());
    if (missing.empty()) {
      return absl::OkStatus();
    }
    Wait(*transport, kAskAgainAfter);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the coordinator at ", coordinator, " does not have all nodes: ", missing));
}

}  // namespace tokura::cli
