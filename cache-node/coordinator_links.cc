#include "cache-node/coordinator_links.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"

namespace tokura::node {

CoordinatorLinks::CoordinatorLinks(std::shared_ptr<ServerContext> context,
                                   net::Transport& transport, RandomSource& random, Owner& owner)
    : context_(std::move(context)), transport_(transport), random_(random), owner_(owner) {}

CoordinatorLinks::~CoordinatorLinks() = default;

void CoordinatorLinks::Start(const net::Address& listening) {
  const NodeOptions& options = context_->options;
  if (options.coordinators.empty()) {
    return;
  }
  advertised_ = options.advertise;
  if (advertised_.host.empty()) {
    advertised_.host = listening.host;
  }
  if (advertised_.port == 0) {
    advertised_.port = listening.port;
  }
  random_.Fill(instance_);
  for (size_t i = 0; i < options.coordinators.size(); ++i) {
    links_.push_back(std::make_shared<CoordinatorLink>(context_, transport_, random_, *this));
  }
  running_ = links_.size();
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i]->Start(options.coordinators[i], instance_);
  }
}

proto::RegisterRequest CoordinatorLinks::Introduction() const {
  const NodeOptions& options = context_->options;
  proto::RegisterRequest request;
  request.set_node(options.name);
  request.set_incarnation(context_->incarnation.load());
  request.set_instance(instance_.data(), instance_.size());
  request.set_starting(!admitted_);
  request.set_address(advertised_.ToString());
  request.set_admin(options.admin.ToString());
  request.set_capacity_bytes(options.host_bytes);
  request.set_highest_epoch(highest_epoch_);
  if (admitted_) {
    const Duration age = transport_.executor().Now() - admitted_at_;
    request.set_age_us(
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(age).count()));
  }
  return request;
}

void CoordinatorLinks::OnAdmitted(CoordinatorLink& link, const proto::RegisterReply& reply) {
  // Only the holder decides who is a member. To have been let in by another coordinator does not
  // make a later refusal by the holder mean that somebody else has the name.
  if (reply.holder() && !admitted_) {
    admitted_ = true;
    admitted_at_ = transport_.executor().Now();
  }
  if (reply.incarnation() <= context_->incarnation.load()) {
    return;
  }
  Log(LogLevel::kInfo, "node", "incarnation_adopted",
      {{"name", context_->options.name},
       {"before", context_->incarnation.load()},
       {"incarnation", reply.incarnation()},
       {"coordinator", link.coordinator()}});
  owner_.OnAdopt(reply.incarnation());
  for (const std::shared_ptr<CoordinatorLink>& other : links_) {
    if (other.get() != &link) {
      other->Reregister();
    }
  }
}

void CoordinatorLinks::OnSuperseded(const std::string& coordinator, const absl::Status& why) {
  if (closing_) {
    return;
  }
  CloseLinks();
  owner_.OnSuperseded(absl::FailedPreconditionError(
      absl::StrCat("another process has registered as node '", context_->options.name, "' with ",
                   coordinator, " since (", why.message(),
                   "): give every node a --name of its own, or stop the other process and start "
                   "this one again")));
}

void CoordinatorLinks::OnEpoch(uint64_t epoch, uint64_t refuse_below) {
  highest_epoch_ = std::max(highest_epoch_, epoch);
  if (refuse_below > context_->refuse_below_epoch.load()) {
    context_->refuse_below_epoch.store(refuse_below);
  }
}

void CoordinatorLinks::Leave(TimePoint deadline, Task done) {
  TOKURA_CHECK(!leaving_);
  leaving_ = true;
  left_ = std::move(done);
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i]->registered()) {
      unsettled_.insert(i);
    }
  }
  if (unsettled_.empty()) {
    FinishLeave();
    return;
  }
  leave_timer_ = transport_.executor().RunAt(deadline, [this] {
    leave_timer_ = 0;
    FinishLeave();
  });
  for (const std::shared_ptr<CoordinatorLink>& link : links_) {
    link->ReportLeaving();
  }
}

void CoordinatorLinks::OnLeaveSettled(CoordinatorLink& link) {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].get() == &link && unsettled_.erase(i) > 0 && unsettled_.empty()) {
      FinishLeave();
    }
  }
}

void CoordinatorLinks::FinishLeave() {
  unsettled_.clear();
  transport_.executor().CancelTimer(std::exchange(leave_timer_, 0));
  if (left_) {
    std::exchange(left_, nullptr)();
  }
}

void CoordinatorLinks::CloseLinks() {
  if (!std::exchange(closing_, true)) {
    for (const std::shared_ptr<CoordinatorLink>& link : links_) {
      link->Stop();
    }
  }
}

void CoordinatorLinks::Stop(Task done) {
  stopped_ = std::move(done);
  CloseLinks();
  if (running_ == 0 && stopped_) {
    std::exchange(stopped_, nullptr)();
  }
}

void CoordinatorLinks::OnStopped(CoordinatorLink&) {
  if (--running_ == 0 && stopped_) {
    std::exchange(stopped_, nullptr)();
  }
}

void CoordinatorLinks::Sample() {
  uint64_t lag = 0;
  for (const std::shared_ptr<CoordinatorLink>& link : links_) {
    lag = std::max(lag, link->lag());
  }
  context_->cluster_metrics.Lag(lag);
}

}  // namespace tokura::node
