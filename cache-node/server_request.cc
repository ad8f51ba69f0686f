#include "cache-node/server_request.h"

#include "cache-node/server_connection.h"
#include "common/check.h"

namespace tokura::node {
namespace {

TimePoint DeadlineOf(const ServerConnection& connection, const net::FrameHeader& frame) {
  // A request without a deadline is bounded like a lease. So is every one but a PUT: it pins what
  // it reads.
  const Duration bound = connection.context().options.lease_age_max;
  const Duration left = std::chrono::microseconds(frame.deadline_us);
  const bool bounded = left == Duration::zero() || frame.op != net::Op::kPut;
  return connection.executor().Now() +
         (bounded && (left == Duration::zero() || left > bound) ? bound : left);
}

}  // namespace

ServerRequest::ServerRequest(std::shared_ptr<ServerConnection> connection,
                             const net::FrameHeader& frame)
    : connection_(std::move(connection)),
      frame_(frame),
      arrived_(connection_->executor().Now()),
      deadline_(DeadlineOf(*connection_, frame)),
      last_progress_(arrived_) {}

ServerRequest::~ServerRequest() = default;

TimePoint ServerRequest::Now() const {
  return connection_->executor().Now();
}

void ServerRequest::Start() {
  timer_ = connection_->executor().RunAt(deadline_, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->timer_ = 0;
      self->End(absl::DeadlineExceededError("the request's deadline has passed"));
    }
  });
  Begin();
}

void ServerRequest::End(const absl::Status& why) {
  if (!answered_) {
    GiveUp(why);
    TOKURA_CHECK(answered_);
  }
}

void ServerRequest::Answer(const absl::Status& result, const google::protobuf::MessageLite* body) {
  TOKURA_CHECK(!answered_);
  answered_ = true;
  answered_at_ = Now();
  connection_->executor().CancelTimer(std::exchange(timer_, 0));
  connection_->Answer(*this, result, body);
  if (under_way_ == 0) {
    connection_->Forget(*this);
  }
}

void ServerRequest::Progress() {
  last_progress_ = Now();
  connection_->Progress(last_progress_);
}

void ServerRequest::TransferStarted() {
  if (under_way_++ == 0) {
    last_progress_ = Now();
  }
}

void ServerRequest::TransferEnded(uint64_t bytes) {
  TOKURA_CHECK(under_way_ > 0);
  --under_way_;
  connection_->slot().Finish(bytes);
  if (under_way_ == 0 && answered_) {
    connection_->Forget(*this);
  }
}

}  // namespace tokura::node
