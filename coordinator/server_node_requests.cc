#include "coordinator/server_node_requests.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tokura::coordinator {
namespace {

// Keys of each kind in one answer to REPORT: two such lists fit one message.
constexpr uint32_t kNotesPerReplyMax = 16384;

absl::Status RegisterFirst() {
  return absl::NotFoundError("the node is not registered on this connection: register first");
}

// Make room in the index for the life that the view has granted.
absl::StatusOr<NodeSlot> Admit(ServerContext& context, const proto::RegisterRequest& request,
                               uint64_t granted) {
  if (context.bugs.accept_lower_incarnation) {
    const NodeLife* known = context.inventory->Find(request.node());
    if (known != nullptr && known->incarnation > granted) {
      context.inventory->Forget(request.node());
    }
  }
  absl::StatusOr<NodeSlot> slot = context.inventory->Admit(request.node(), granted);
  if (absl::IsFailedPrecondition(slot.status())) {
    // Who is a zombie, the view has said. A life that has registered here and with no holder yet
    // may have died meanwhile: it is forgotten with its connection, or the holder prefers it.
    return absl::UnavailableError(absl::StrCat("a higher incarnation than ", granted,
                                               " of this node was registered here; ask again"));
  }
  return slot;
}

absl::StatusOr<ReplyBody> Register(ServerContext& context, const Caller& caller,
                                   std::span<const std::byte> body, std::string* name) {
  proto::RegisterRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  if (!name->empty() && *name != request.node()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node '", *name, "' has registered on this connection already"));
  }
  TOKURA_ASSIGN_OR_RETURN(const uint64_t granted, context.view->Register(request));
  TOKURA_RETURN_IF_ERROR(Admit(context, request, granted).status());
  const NodeTable::Node* known = context.nodes.Find(request.node());
  const bool again = known != nullptr && known->incarnation == granted;
  context.nodes.Register(request.node(), *context.inventory->Find(request.node()),
                         caller.connection, caller.now);
  *name = request.node();
  ReviewNodes(context);
  LogLimited(context.peer_log, LogLevel::kInfo, "coordinator",
             again ? "node_returned" : "node_registered",
             {{"node", *name},
              {"incarnation", granted},
              {"asked", request.incarnation()},
              {"address", request.address()},
              {"connection", caller.connection}});
  auto reply = std::make_unique<proto::RegisterReply>();
  reply->set_incarnation(granted);
  reply->set_epoch(context.state.epoch());
  reply->set_holder(context.view->holder());
  reply->set_report_interval_us(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(context.options.report_interval)
          .count()));
  return reply;
}

absl::StatusOr<ReplyBody> Report(ServerContext& context, const Caller& caller,
                                 std::span<const std::byte> body, const std::string& name) {
  proto::ReportRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  if (name.empty()) {
    return RegisterFirst();
  }
  // The view first: to a life that has a successor it says so.
  TOKURA_ASSIGN_OR_RETURN(const uint64_t refuse_below, context.view->Report(name, request));
  NodeTable::Node* node = context.nodes.Find(name, caller.connection);
  if (node == nullptr || node->incarnation != request.incarnation()) {
    return RegisterFirst();
  }
  context.nodes.Reported(*node, request, caller.now);
  auto reply = std::make_unique<proto::ReportReply>();
  reply->set_epoch(context.state.epoch());
  reply->set_refuse_below_epoch(refuse_below);
  const NodeLife* life = context.inventory->Find(name);
  reply->set_send_snapshot(life != nullptr && life->wants_snapshot);
  const size_t max = std::min(request.batches_max(), kNotesPerReplyMax);
  if (max > 0 && node->touches.size() > 0) {
    proto::TouchBatch* touches = reply->add_touches();
    touches->set_incarnation(node->touches.incarnation());
    touches->set_keys(node->touches.Take(max));
    context.metrics.TouchesEnded(NoteResult::kSent, touches->keys().size() / BlockKey::kBytes);
  }
  if (max > 0 && node->orphans.size() > 0) {
    proto::OrphanBatch* orphans = reply->add_orphans();
    orphans->set_incarnation(node->orphans.incarnation());
    orphans->set_keys(node->orphans.Take(max));
    context.metrics.OrphansEnded(NoteResult::kSent, orphans->keys().size() / BlockKey::kBytes);
  }
  return reply;
}

absl::StatusOr<ReplyBody> TakeInventory(ServerContext& context, const Caller& caller,
                                        std::span<const std::byte> body, const std::string& name) {
  proto::InventoryBatch batch;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &batch));
  if (context.nodes.Find(name, caller.connection) == nullptr) {
    return RegisterFirst();
  }
  if (batch.node() != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("node is '", batch.node(), "' on a connection of '", name, "'"));
  }
  TOKURA_ASSIGN_OR_RETURN(proto::InventoryReply taken, context.inventory->Apply(batch));
  return std::make_unique<proto::InventoryReply>(std::move(taken));
}

}  // namespace

absl::StatusOr<ReplyBody> AnswerNode(ServerContext& context, const Caller& caller, net::Op op,
                                     std::span<const std::byte> body, std::string* name) {
  if (caller.role != Role::kNode) {
    return absl::InvalidArgumentError(
        absl::StrCat("op ", net::OpName(op), " is for connections of role node"));
  }
  switch (op) {
    case net::Op::kRegister:
      return Register(context, caller, body, name);
    case net::Op::kReport:
      return Report(context, caller, body, *name);
    case net::Op::kInventory:
      return TakeInventory(context, caller, body, *name);
    default:
      return absl::UnimplementedError(
          absl::StrCat("op ", net::OpName(op), " is not served by a coordinator"));
  }
}

void NodeConnectionClosed(ServerContext& context, const std::string& name, uint64_t connection) {
  NodeTable::Node* node = context.nodes.Find(name, connection);
  if (node == nullptr) {
    return;  // It had come back on another one before.
  }
  node->connection = 0;
  LogLimited(context.peer_log, LogLevel::kInfo, "coordinator", "node_connection_lost",
             {{"node", name}, {"incarnation", node->incarnation}});
  context.view->ConnectionLost(name, node->incarnation);
  ReviewNodes(context);
}

void ReviewNodes(ServerContext& context) {
  std::set<std::pair<std::string_view, uint64_t>> members;
  for (const proto::Member& member : context.state.members()) {
    members.emplace(member.node(), member.incarnation());
  }
  const auto gone = [&members](const std::string& name, const NodeTable::Node& node) {
    return members.count({name, node.incarnation}) == 0;
  };
  for (const std::string& name : context.nodes.Erase(gone)) {
    context.inventory->Forget(name);
    LogLimited(context.peer_log, LogLevel::kInfo, "coordinator", "node_forgotten",
               {{"node", name}});
  }
  context.nodes.Judge(context.state, *context.inventory);
}

}  // namespace tokura::coordinator
