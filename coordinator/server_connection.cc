#include "coordinator/server_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "coordinator/server_client_requests.h"
#include "coordinator/server_loop.h"
#include "coordinator/server_node_requests.h"

namespace tokura::coordinator {
namespace {

constexpr size_t kTenantBytesMax = 256;

// Whether a connection that ended with `why` ended by this coordinator's verdict on what the peer
// sent.
bool IsVerdict(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnauthenticated:
      return true;
    default:
      return false;
  }
}

bool IsNodeOp(net::Op op) {
  return op == net::Op::kRegister || op == net::Op::kReport || op == net::Op::kInventory;
}

}  // namespace

ServerConnection::ServerConnection(std::shared_ptr<ServerLoop> loop, uint64_t id)
    : loop_(std::move(loop)), id_(id) {}

ServerConnection::~ServerConnection() {
  loop_->Destroyed();
}

ServerContext& ServerConnection::context() const {
  return loop_->context();
}

net::ConnectionHandler* ServerConnection::Open(net::Transport& transport,
                                               std::unique_ptr<net::Connection> connection) {
  const CoordinatorOptions& own = context().options;
  net::ServerChannel::Options options;
  options.timeouts.heartbeat = own.heartbeat;
  options.timeouts.dead_after = own.dead_after;
  options.requests_max = own.requests_max;
  options.node = own.name;
  options.incarnation = context().incarnation;
  options.format_version = net::FormatVersion();
  options.id = id_;
  options.maybe_log = &context().peer_log;
  channel_ = net::ServerChannel::Accept(transport, std::move(connection), options, *this);
  return &channel_->handler();
}

absl::Status ServerConnection::OnHello(net::ServerChannel&, const proto::Hello& hello,
                                       proto::Welcome* welcome) {
  ServerContext& server = context();
  if (server.draining.load()) {
    return absl::UnavailableError("this coordinator is draining");
  }
  TOKURA_ASSIGN_OR_RETURN(role_, ReadRole(hello.role()));
  if (hello.tenant().size() > kTenantBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tenant's name has more than ", kTenantBytesMax, " bytes"));
  }
  if (server.connections >= server.options.connections_max) {
    server.metrics.ConnectionEnded(ConnectionEnd::kLimit);
    return absl::ResourceExhaustedError(absl::StrCat(
        "this coordinator serves at most ", server.options.connections_max, " connections"));
  }
  ++server.connections;
  server.metrics.Connected();
  welcomed_ = true;
  welcome->set_admin(server.options.admin.ToString());
  proto::Limits* limits = welcome->mutable_limits();
  limits->set_keys_max(server.options.keys_max);
  limits->set_requests_max(server.options.requests_max);
  limits->set_heartbeat_interval_us(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(server.options.heartbeat).count()));
  Log(LogLevel::kDebug, "coordinator", "peer_connected",
      {{"connection", id_}, {"role", hello.role()}, {"peer", hello.name()}});
  return absl::OkStatus();
}

void ServerConnection::OnRequest(net::ServerChannel&, const net::FrameHeader& frame,
                                 std::span<const std::byte> body) {
  if (frame.op == net::Op::kCancel) {
    OnCancel(body);
    return;
  }
  ServerContext& server = context();
  const TimePoint arrived = loop_->executor().Now();
  server.metrics.RequestStarted();
  if (frame.op == net::Op::kInventory && !node_.empty() && !draining_) {
    HoldInventory(frame, body, arrived);
  } else {
    AnswerNow(frame, body, arrived);
  }
}

void ServerConnection::HoldInventory(const net::FrameHeader& frame, std::span<const std::byte> body,
                                     TimePoint arrived) {
  AnswerInventory();  // An earlier one: batches are taken in order.
  batch_ = Batch{frame, {body.begin(), body.end()}, arrived};
  if (!std::exchange(queued_, true)) {
    loop_->QueueInventory(id_);
  }
}

void ServerConnection::TakeInventoryTurn() {
  queued_ = false;
  AnswerInventory();
}

void ServerConnection::AnswerInventory() {
  if (batch_.has_value()) {
    const Batch batch = *std::exchange(batch_, std::nullopt);
    AnswerNow(batch.frame, batch.body, batch.arrived);
  }
}

void ServerConnection::AnswerNow(const net::FrameHeader& frame, std::span<const std::byte> body,
                                 TimePoint arrived) {
  ServerContext& server = context();
  absl::StatusOr<ReplyBody> reply = ReplyBody();
  if (draining_) {
    reply = absl::UnavailableError("this coordinator is draining");
  } else if (frame.op == net::Op::kWatch) {
    const absl::Status waits = StartWatch(frame, body);
    if (waits.ok()) {
      return;  // AnswerWatch ends it.
    }
    reply = waits;
  } else {
    reply = Answer({role_, id_, loop_->executor().Now()}, frame.op, body);
  }
  if (reply.ok()) {
    channel_->Reply(frame, absl::OkStatus(), reply->get());
  } else {
    channel_->Reply(frame, reply.status());
  }
  server.metrics.RequestEnded(frame.op, reply.status().code(), loop_->executor().Now() - arrived);
}

absl::StatusOr<ReplyBody> ServerConnection::Answer(const Caller& caller, net::Op op,
                                                   std::span<const std::byte> body) {
  if (!IsNodeOp(op)) {
    return AnswerClient(context(), caller, op, body);
  }
  loop_->WakeMaintenance();
  return AnswerNode(context(), caller, op, body, &node_);
}

absl::Status ServerConnection::StartWatch(const net::FrameHeader& frame,
                                          std::span<const std::byte> body) {
  ServerContext& server = context();
  proto::WatchRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  // Clients too: one that outlives every node and coordinator must not be left with a state that
  // nothing is ever above.
  if (role_ == Role::kCoordinator || request.known_epoch() <= kClaimMax) {
    server.view->NameEpoch(request.known_epoch());
  }
  const Watch watch{
      id_, frame, loop_->executor().Now(), {request.known_epoch(), request.known_policy_version()}};
  const StateVersion current{server.state.epoch(), server.state.policy_version()};
  if (WatchList::IsNews(current, watch.known)) {
    AnswerWatch(watch, absl::OkStatus());
    return absl::OkStatus();
  }
  const absl::Status waits = server.watches->Add(watch);
  if (!waits.ok()) {
    server.metrics.WatchRejected();
  }
  return waits;
}

void ServerConnection::AnswerWatch(const Watch& watch, const absl::Status& why) {
  ServerContext& server = context();
  absl::Status result = why;
  if (result.ok() && server.state.epoch() == 0) {
    result = absl::UnavailableError("this coordinator has no cluster state yet");
  }
  channel_->Reply(watch.frame, result, result.ok() ? &server.state : nullptr);
  server.metrics.RequestEnded(net::Op::kWatch, result.code(),
                              loop_->executor().Now() - watch.arrived);
}

void ServerConnection::OnCancel(std::span<const std::byte> body) {
  proto::CancelRequest request;
  if (ParseRequest(body, &request).ok()) {
    context().watches->Cancel(id_, request.request_id());
  }
}

void ServerConnection::OnPayload(net::ServerChannel&, const net::FrameHeader&,
                                 net::IncomingPayload) {
  // No operation of a coordinator takes payloads; dropping one rejects it.
}

void ServerConnection::OnClosed(net::ServerChannel&, absl::Status why) {
  const std::shared_ptr<ServerConnection> self = shared_from_this();
  ServerContext& server = context();
  closed_ = true;
  batch_.reset();
  server.watches->ConnectionClosed(id_);
  if (welcomed_) {
    --server.connections;
    server.metrics.Disconnected(why);
  }
  if (!node_.empty() && !server.draining.load()) {
    NodeConnectionClosed(server, node_, id_);
    loop_->WakeMaintenance();
  }
  if (IsVerdict(why)) {
    server.metrics.ConnectionEnded(welcomed_ ? ConnectionEnd::kViolation : ConnectionEnd::kRefused);
  } else if (welcomed_ && absl::IsResourceExhausted(why)) {
    // It does not take its answers. Without a welcome that is the limit, which OnHello counts.
    server.metrics.ConnectionEnded(ConnectionEnd::kViolation);
  }
  Log(LogLevel::kDebug, "coordinator", "peer_disconnected",
      {{"connection", id_}, {"reason", why.ok() ? "closed" : why.message()}});
  // The channel must not be destroyed inside this call.
  loop_->executor().Post([self] { self->loop_->Forget(self->id_); });
}

void ServerConnection::Drain() {
  if (draining_ || closed_) {
    return;
  }
  draining_ = true;
  channel_->SendGoodbye("the coordinator is draining");
  channel_->Close(net::CloseMode::kFlush);
}

void ServerConnection::Abort() {
  if (!closed_) {
    channel_->Close(net::CloseMode::kAbort);
  }
}

}  // namespace tokura::coordinator
