#include "cache-node/server_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache-node/server_check.h"
#include "cache-node/server_get.h"
#include "cache-node/server_lookup.h"
#include "cache-node/server_loop.h"
#include "cache-node/server_put.h"
#include "cache-node/server_wire.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "kernels/part.h"

namespace tokura::node {
namespace {

constexpr size_t kEarlyPayloadsMax = 64;
constexpr Duration kEarlyPayloadAge = std::chrono::seconds(1);
constexpr size_t kTenantBytesMax = 256;
// Blocks that the requests of one connection may name together, in units of blocks_max.
constexpr size_t kBlocksFactor = 4;
// Payloads that the puts of one connection may be offered together.
constexpr size_t kPartsMax = size_t{1} << 16;

// Whether a request is a ServerRequest; all others are answered at once.
bool TakesTime(net::Op op, std::span<const std::byte> body) {
  if (op == net::Op::kRemove) {
    proto::RemoveRequest message;
    return ParseRequest(body, &message).ok() && !message.suspects().empty();
  }
  return op == net::Op::kGet || op == net::Op::kPut;
}

// Whether a connection that ended with `why` ended by this node's verdict on what the client sent.
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

}  // namespace

ServerConnection::ServerConnection(std::shared_ptr<ServerLoop> loop, uint64_t id)
    : loop_(std::move(loop)), id_(id), slot_(loop_->gate()) {}

ServerConnection::~ServerConnection() {
  loop_->Destroyed();
}

ServerContext& ServerConnection::context() const {
  return loop_->context();
}

Executor& ServerConnection::executor() const {
  return loop_->executor();
}

net::ConnectionHandler* ServerConnection::Open(net::Transport& transport,
                                               std::unique_ptr<net::Connection> connection) {
  const NodeOptions& node = context().options;
  net::ServerChannel::Options options;
  options.timeouts.heartbeat = node.heartbeat;
  options.timeouts.dead_after = node.dead_after;
  options.requests_max = node.requests_max;
  options.node = node.name;
  incarnation_ = context().incarnation.load();
  options.incarnation = incarnation_;
  options.format_version = kernels::FormatVersionString();
  options.id = id_;
  options.maybe_log = &context().client_log;
  channel_ = net::ServerChannel::Accept(transport, std::move(connection), options, *this);
  return &channel_->handler();
}

absl::Status ServerConnection::OnHello(net::ServerChannel&, const proto::Hello& hello,
                                       proto::Welcome* welcome) {
  if (context().draining.load()) {
    return absl::UnavailableError("this node is draining");
  }
  if (hello.tenant().size() > kTenantBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tenant's name has more than ", kTenantBytesMax, " bytes"));
  }
  if (context().connections.load() >= context().options.connections_max) {
    context().metrics.ConnectionEnded(ConnectionEnd::kLimit);
    return absl::ResourceExhaustedError(absl::StrCat(
        "this node serves at most ", context().options.connections_max, " connections"));
  }
  context().connections.fetch_add(1);
  context().metrics.Connected();
  welcomed_ = true;
  tenant_ = hello.tenant();
  welcome->set_admin(context().options.admin.ToString());
  FillLimits(welcome->mutable_limits());
  Log(LogLevel::kDebug, "node", "client_connected",
      {{"connection", id_}, {"client", hello.name()}, {"tenant", tenant_}});
  return absl::OkStatus();
}

void ServerConnection::FillLimits(proto::Limits* limits) const {
  const NodeOptions& node = context().options;
  const auto micros = [](Duration d) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
  };
  limits->set_keys_max(node.keys_max);
  limits->set_blocks_max(node.blocks_max);
  limits->set_part_bytes_max(node.part_bytes_max);
  limits->set_requests_max(node.requests_max);
  limits->set_lease_age_us(micros(node.lease_age));
  limits->set_lease_age_max_us(micros(node.lease_age_max));
  limits->set_heartbeat_interval_us(micros(node.heartbeat));
}

void ServerConnection::OnRequest(net::ServerChannel&, const net::FrameHeader& frame,
                                 std::span<const std::byte> body) {
  if (frame.op == net::Op::kCancel) {
    OnCancel(body);
    return;
  }
  context().metrics.RequestStarted();
  ++unanswered_;
  if (!draining_ && TakesTime(frame.op, body)) {
    StartRequest(frame, body);
    return;
  }
  const TimePoint arrived = executor().Now();
  const absl::Status status =
      draining_ ? absl::UnavailableError("this node is draining") : AnswerNow(frame, body);
  if (!status.ok()) {
    channel_->Reply(frame, status);
  }
  --unanswered_;
  context().metrics.RequestEnded(frame.op, status.code(), executor().Now() - arrived);
}

absl::Status ServerConnection::AnswerNow(const net::FrameHeader& frame,
                                         std::span<const std::byte> body) {
  const Caller caller{tenant_, id_, executor().Now()};
  absl::StatusOr<ReplyBody> reply = AnswerSimple(context(), caller, frame.op, body);
  if (reply.ok()) {
    channel_->Reply(frame, absl::OkStatus(), reply->get());
  }
  return reply.status();
}

void ServerConnection::StartRequest(const net::FrameHeader& frame,
                                    std::span<const std::byte> body) {
  if (requests_.count(frame.request_id) != 0) {
    // Answered, so that the channel may have forgotten it, with transfers still under way.
    channel_->Reply(frame, absl::InvalidArgumentError("the request id is in use"));
    --unanswered_;
    context().metrics.RequestEnded(frame.op, absl::StatusCode::kInvalidArgument, Duration::zero());
    Abort(ConnectionEnd::kViolation, "a request id was used twice");
    return;
  }
  std::shared_ptr<ServerRequest> request;
  absl::Status status = MakeRequest(frame, body, &request);
  if (status.ok() && (blocks_ + request->blocks() > kBlocksFactor * context().options.blocks_max ||
                      parts_ + request->parts() > kPartsMax)) {
    context().metrics.Rejected(FullQueue::kBlocks);
    status = absl::ResourceExhaustedError("too many blocks or parts under way on this connection");
  }
  if (!status.ok()) {
    channel_->Reply(frame, status);
    --unanswered_;
    context().metrics.RequestEnded(frame.op, status.code(), Duration::zero());
    return;
  }
  blocks_ += request->blocks();
  parts_ += request->parts();
  TOKURA_CHECK(requests_.emplace(frame.request_id, request).second);
  request->Start();
  std::vector<EarlyPayload> early = std::move(early_);
  early_.clear();
  for (EarlyPayload& entry : early) {
    if (entry.frame.request_id == frame.request_id) {
      request->OnPayload(entry.frame, std::move(entry.payload));
    } else {
      early_.push_back(std::move(entry));
    }
  }
}

absl::Status ServerConnection::MakeRequest(const net::FrameHeader& frame,
                                           std::span<const std::byte> body,
                                           std::shared_ptr<ServerRequest>* request) {
  const uint32_t blocks_max = context().options.blocks_max;
  if (frame.op == net::Op::kGet) {
    proto::GetRequest message;
    TOKURA_RETURN_IF_ERROR(ParseRequest(body, &message));
    TOKURA_ASSIGN_OR_RETURN(GetRequest::Query query, GetRequest::Read(message, blocks_max));
    *request = std::make_shared<GetRequest>(shared_from_this(), frame, std::move(query));
  } else if (frame.op == net::Op::kRemove) {
    proto::RemoveRequest message;
    TOKURA_RETURN_IF_ERROR(ParseRequest(body, &message));
    TOKURA_ASSIGN_OR_RETURN(CheckRequest::Query query, CheckRequest::Read(message, blocks_max));
    *request = std::make_shared<CheckRequest>(shared_from_this(), frame, std::move(query));
  } else {
    proto::PutRequest message;
    TOKURA_RETURN_IF_ERROR(ParseRequest(body, &message));
    TOKURA_RETURN_IF_ERROR(CheckPlacement(message.placement_epoch()));
    TOKURA_ASSIGN_OR_RETURN(PutRequest::Announcement put, PutRequest::Read(message, blocks_max));
    *request = std::make_shared<PutRequest>(shared_from_this(), frame, std::move(put));
  }
  return absl::OkStatus();
}

absl::Status ServerConnection::CheckPlacement(uint64_t epoch) const {
  if (context().bugs.accept_old_placement) {
    return absl::OkStatus();
  }
  if (epoch == 0) {
    return context().leaving.load() ? absl::UnavailableError("this node is draining")
                                    : absl::OkStatus();
  }
  const uint64_t least = context().refuse_below_epoch.load();
  if (epoch >= least) {
    return absl::OkStatus();
  }
  context().cluster_metrics.PlacementRefused();
  return absl::FailedPreconditionError(absl::StrCat("placed by epoch ", epoch,
                                                    ", but this node takes puts from epoch ", least,
                                                    " on only: plan again"));
}

void ServerConnection::OnPayload(net::ServerChannel&, const net::FrameHeader& frame,
                                 net::IncomingPayload payload) {
  auto it = requests_.find(frame.request_id);
  if (it != requests_.end()) {
    const std::shared_ptr<ServerRequest> request = it->second;
    request->OnPayload(frame, std::move(payload));
    return;
  }
  if (early_.size() >= kEarlyPayloadsMax) {
    context().metrics.Rejected(FullQueue::kOffers);
    return;
  }
  early_.push_back({frame, std::move(payload), executor().Now()});
}

void ServerConnection::OnCancel(std::span<const std::byte> body) {
  context().metrics.RequestStarted();
  proto::CancelRequest message;
  const absl::Status status = ParseRequest(body, &message);
  auto it = requests_.find(message.request_id());
  if (status.ok() && it != requests_.end()) {
    const std::shared_ptr<ServerRequest> request = it->second;
    request->End(absl::CancelledError("the client cancelled the request"));
  }
  context().metrics.RequestEnded(net::Op::kCancel, status.code(), Duration::zero());
}

void ServerConnection::Answer(const ServerRequest& request, const absl::Status& result,
                              const google::protobuf::MessageLite* body) {
  --unanswered_;
  context().metrics.RequestEnded(request.frame().op, result.code(),
                                 executor().Now() - request.arrived());
  if (!closed_) {
    // The statuses of what was done are in the body, also when the request ended early.
    channel_->Reply(request.frame(), absl::OkStatus(), body);
  }
}

void ServerConnection::Forget(const ServerRequest& request) {
  auto it = requests_.find(request.frame().request_id);
  if (it != requests_.end() && it->second.get() == &request) {
    blocks_ -= request.blocks();
    parts_ -= request.parts();
    requests_.erase(it);
  }
  CloseIfDrained();
}

void ServerConnection::OnClosed(net::ServerChannel&, absl::Status why) {
  closed_ = true;
  const std::shared_ptr<ServerConnection> self = shared_from_this();
  early_.clear();
  slot_.Clear();
  const auto requests = std::move(requests_);
  requests_.clear();
  for (const auto& [id, request] : requests) {
    request->End(absl::UnavailableError("the connection is closed"));
  }
  context().leases.ReleaseOwner(id_);
  if (welcomed_) {
    context().connections.fetch_sub(1);
    context().metrics.Disconnected(why);
  }
  if (IsVerdict(why)) {
    context().metrics.ConnectionEnded(welcomed_ ? ConnectionEnd::kViolation
                                                : ConnectionEnd::kRefused);
  } else if (welcomed_ && absl::IsResourceExhausted(why)) {
    // It does not take its answers. Without a welcome that is the limit, which OnHello counts.
    context().metrics.ConnectionEnded(ConnectionEnd::kViolation);
  }
  Log(LogLevel::kDebug, "node", "client_disconnected",
      {{"connection", id_}, {"reason", why.ok() ? "closed" : why.message()}});
  // The channel must not be destroyed inside this call.
  executor().Post([self] { self->loop_->Forget(self->id_); });
}

void ServerConnection::Abort(ConnectionEnd why, const char* what) {
  if (closed_ || aborted_) {
    return;
  }
  aborted_ = true;
  context().metrics.ConnectionEnded(why);
  LogLimited(context().client_log, LogLevel::kWarn, "node", "connection_aborted",
             {{"connection", id_}, {"peer", channel_->peer()}, {"reason", what}});
  channel_->Close(net::CloseMode::kAbort);
}

void ServerConnection::Tick(TimePoint now) {
  std::erase_if(early_, [now](const EarlyPayload& entry) {
    return now - entry.arrived > kEarlyPayloadAge;  // Destroying the payload rejects it.
  });
  if (arrived_ != TimePoint::min()) {
    context().store->MarkProgress(id_, std::exchange(arrived_, TimePoint::min()));
  }
  const NodeOptions& options = context().options;
  for (const auto& [id, request] : requests_) {
    if (request->transfers_under_way() == 0) {
      continue;
    }
    // Transfers of one connection move one after the other: those that wait are not stuck, but no
    // peer may leave one waiting for ever.
    const TimePoint moved = std::max(request->last_progress(), last_progress_);
    if (now - moved > options.lease_age || now - request->last_progress() > options.lease_age_max) {
      Abort(ConnectionEnd::kStuck, "transfers made no progress");
      return;
    }
  }
}

void ServerConnection::ExpireLease(const LeaseToken& lease, TimePoint now) {
  const Duration grace = context().options.lease_age / 4;
  std::vector<std::shared_ptr<ServerRequest>> users;
  for (const auto& [id, request] : requests_) {
    if (request->Uses(lease)) {
      users.push_back(request);
    }
  }
  for (const std::shared_ptr<ServerRequest>& request : users) {
    if (!request->answered()) {
      request->End(absl::AbortedError("the lease has expired"));
    } else if (now - request->answered_at() > grace) {
      Abort(ConnectionEnd::kStuck, "transfers outlive their lease");
      return;
    }
  }
}

void ServerConnection::EndLife() {
  if (!closed_ && !aborted_) {
    aborted_ = true;
    context().metrics.ConnectionEnded(ConnectionEnd::kNewLife);
    channel_->Close(net::CloseMode::kAbort);
  }
}

void ServerConnection::Drain() {
  draining_ = true;
  channel_->SendGoodbye("the node is draining");
  CloseIfDrained();
}

void ServerConnection::Abandon() {
  early_.clear();
  slot_.Clear();
  requests_.clear();
}

void ServerConnection::CloseIfDrained() {
  if (draining_ && !closed_ && requests_.empty() && unanswered_ == 0) {
    channel_->Close(net::CloseMode::kFlush);
  }
}

}  // namespace tokura::node
