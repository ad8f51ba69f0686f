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

// One after the other, until one answers; a silent one leaves the others their share of the time.
// `addresses` are of `names`, of which there is one at least.
absl::StatusOr<proto::NodesReply> AskEach(net::UcxTransport& transport,
                                          const std::vector<std::string>& names,
                                          const std::vector<net::Address>& addresses,
                                          TimePoint deadline) {
  absl::StatusOr<proto::NodesReply> reply;
  for (size_t i = 0; i < addresses.size() && !reply.ok(); ++i) {
    const auto left = static_cast<int64_t>(addresses.size() - i);
    reply = AskOne(transport, addresses[i], (deadline - SystemClock().Now()) / left);
    if (!reply.ok() && !absl::StrContains(reply.status().message(), names[i])) {
      reply = absl::Status(reply.status().code(),
                           absl::StrCat(names[i], ": ", reply.status().message()));
    }
  }
  return reply;
}

}  // namespace

absl::StatusOr<proto::NodesReply> AskForNodes(const std::vector<std::string>& coordinators,
                                              Duration timeout) {
  if (coordinators.empty()) {
    return absl::InvalidArgumentError("no coordinator was named");
  }
  std::vector<net::Address> addresses;
  for (const std::string& coordinator : coordinators) {
    TOKURA_ASSIGN_OR_RETURN(net::Address address, net::Address::Parse(coordinator));
    addresses.push_back(std::move(address));
  }
  TOKURA_ASSIGN_OR_RETURN(const auto context, net::UcxContext::Create({}));
  TOKURA_ASSIGN_OR_RETURN(const auto transport, net::UcxTransport::Create(*context, {}));
  const TimePoint deadline = SystemClock().Now() + timeout;
  // A round that has less tells nothing: what an earlier one met says more.
  const Duration round = kAskAgainAfter * static_cast<int64_t>(addresses.size());
  auto reply = AskEach(*transport, coordinators, addresses, deadline);
  // Of several, one that starts or was busy may serve a moment later; a single one that is not
  // there is better said at once.
  while (!reply.ok() && addresses.size() > 1 &&
         deadline - SystemClock().Now() > kAskAgainAfter + round) {
    Wait(*transport, kAskAgainAfter);
    reply = AskEach(*transport, coordinators, addresses, deadline);
  }
  return reply;
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
