#include "cli/coordinator_ask.h"

#include <algorithm>
#include <utility>

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
  for (size_t i = 0; i < addresses.size(); ++i) {
    // A silent one leaves the others their share of the time.
    const Duration share =
        (deadline - SystemClock().Now()) / static_cast<int64_t>(addresses.size() - i);
    proto::NodesReply reply;
    auto session =
        PolledSession::Connect(*transport, addresses[i], {.name = "tokura-cli", .patience = share});
    why = session.ok() ? (*session)->Ask(net::Op::kNodes, proto::NodesRequest(), &reply)
                       : session.status();
    if (why.ok()) {
      return reply;
    }
    why = absl::Status(why.code(), absl::StrCat(coordinators[i], ": ", why.message()));
  }
  return why;
}

absl::Status WaitForNodes(const std::string& coordinator, const std::vector<std::string>& nodes,
                          Duration timeout) {
  const TimePoint deadline = SystemClock().Now() + timeout;
  std::string missing;
  do {
    const auto reply = AskForNodes({coordinator}, deadline - SystemClock().Now());
    missing = reply.ok() ? Missing(*reply, nodes) : std::string(reply.status().message());
    if (missing.empty()) {
      return absl::OkStatus();
    }
  } while (SystemClock().Now() + kAskAgainAfter < deadline);
  return absl::DeadlineExceededError(
      absl::StrCat("the coordinator at ", coordinator, " does not have all nodes: ", missing));
}

}  // namespace tokura::cli
