#include "coordinator/follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tokura::coordinator {
namespace {

// A state of a peer that breaks what states promise would break whoever goes by it.
absl::Status CheckState(const proto::ClusterState& state) {
  if (state.segment_blocks() == 0) {
    return absl::InvalidArgumentError("segment_blocks is 0");
  }
  for (int i = 0; i < state.members_size(); ++i) {
    if (state.members(i).node().empty() || state.members(i).incarnation() == 0) {
      return absl::InvalidArgumentError(absl::StrCat("member ", i, " has no name or incarnation"));
    }
    if (i > 0 && state.members(i - 1).node() >= state.members(i).node()) {
      return absl::InvalidArgumentError(absl::StrCat("member ", i, " is not in order"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// The link to the holder and what came over it.
class Follower::Watch final : public net::Reconnector::Owner,
                              public std::enable_shared_from_this<Watch> {
 public:
  Watch(net::Transport& transport, RandomSource& random, Options options)
      : executor_(transport.executor()),
        options_(std::move(options)),
        link_(
            std::make_shared<net::Reconnector>(transport, random, LinkOptions(transport), *this)) {}

  void Start(Listener on_change) {
    on_change_ = std::move(on_change);
    link_->Start();
  }
  void Stop(Task done) {
    TOKURA_CHECK(!stopping_);
    stopping_ = true;
    on_change_ = nullptr;
    executor_.CancelTimer(std::exchange(timer_, 0));
    done_ = std::move(done);
    stopping_self_ = shared_from_this();
    link_->Stop();
  }
  const proto::ClusterState& state() const { return state_; }
  bool connected() const { return link_->usable(); }

  absl::Status AdmitPeer(net::Reconnector&, const proto::Welcome&) override {
    return absl::OkStatus();
  }
  void OnLinkUp(net::Reconnector&) override { Ask(); }
  void OnLinkDraining(net::Reconnector&) override {}
  void OnLinkLost(net::Reconnector&, const absl::Status&) override {
    executor_.CancelTimer(std::exchange(timer_, 0));
  }
  void OnLinkStopped(net::Reconnector&) override {
    const std::shared_ptr<Watch> self = std::move(stopping_self_);
    Task done = std::move(done_);
    done();
  }

 private:
  class Answer final : public net::Call {
   public:
    explicit Answer(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}
    void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
    void OnReply(absl::Status status, std::span<const std::byte> body) override {
      watch_->OnAnswer(std::move(status), body);
    }

   private:
    std::shared_ptr<Watch> watch_;  // owners: the follower and the request under way
  };

  net::Reconnector::Options LinkOptions(net::Transport& transport) const {
    net::Reconnector::Options link;
    link.address = options_.holder;
    link.channel.hello = net::MakeHello(transport, "coordinator", options_.name,
                                        std::as_bytes(std::span<const char>(options_.instance)));
    link.channel.timeouts = options_.timeouts;
    link.component = "coordinator";
    return link;
  }

  void Ask();
  void AskLater();
  void OnAnswer(absl::Status status, std::span<const std::byte> body);
  // What the answer brought: true when it is a state to go by from now on.
  absl::StatusOr<bool> Take(std::span<const std::byte> body);
  void LogTrouble(const absl::Status& why);

  Executor& executor_;
  const Options options_;
  Listener on_change_;
  proto::ClusterState state_;
  std::string logged_trouble_;
  TimePoint asked_;
  TimerId timer_ = 0;
  bool stopping_ = false;
  Task done_;
  std::shared_ptr<Watch> stopping_self_;          // until OnLinkStopped
  const std::shared_ptr<net::Reconnector> link_;  // owners: this, its tasks and requests
};

void Follower::Watch::Ask() {
  proto::WatchRequest request;
  request.set_known_epoch(state_.epoch());
  request.set_known_policy_version(state_.policy_version());
  asked_ = executor_.Now();
  link_->Send(net::Op::kWatch, request, asked_ + options_.watch_deadline,
              std::make_shared<Answer>(shared_from_this()));
}

void Follower::Watch::AskLater() {
  timer_ = executor_.RunAfter(options_.retry, [weak = weak_from_this()] {
    if (const std::shared_ptr<Watch> self = weak.lock()) {
      self->timer_ = 0;
      self->Ask();
    }
  });
}

void Follower::Watch::OnAnswer(absl::Status status, std::span<const std::byte> body) {
  bool news = false;
  if (status.ok()) {
    absl::StatusOr<bool> taken = Take(body);
    status = taken.status();
    news = taken.ok() && *taken;
  }
  if (news && on_change_) {
    on_change_();
  }
  // Of a link that is lost or stops the next WATCH goes out when it is up again.
  if (stopping_ || !link_->usable()) {
    return;
  }
  if (!status.ok()) {
    LogTrouble(status);
    AskLater();
    return;
  }
  logged_trouble_.clear();
  // A holder that is behind, having started again, answers at once: until it has gone on above
  // what it was told, asking without a pause would be a busy loop.
  if (news || executor_.Now() - asked_ >= options_.watch_deadline / 4) {
    Ask();
  } else {
    AskLater();
  }
}

absl::StatusOr<bool> Follower::Watch::Take(std::span<const std::byte> body) {
  proto::ClusterState state;
  if (!state.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::InvalidArgumentError("the answer to WATCH is no ClusterState");
  }
  const bool other_rules =
      state.epoch() == state_.epoch() && state.policy_version() != state_.policy_version();
  if (state.epoch() <= state_.epoch() && !other_rules) {
    return false;
  }
  TOKURA_RETURN_IF_ERROR(CheckState(state));
  state_ = std::move(state);
  return true;
}

void Follower::Watch::LogTrouble(const absl::Status& why) {
  std::string trouble(why.message());
  if (trouble != logged_trouble_) {
    Log(LogLevel::kWarn, "coordinator", "watch_failed",
        {{"holder", options_.holder.ToString()}, {"why", trouble}});
    logged_trouble_ = std::move(trouble);
  }
}

Follower::Follower(net::Transport& transport, RandomSource& random, Options options)
    : watch_(std::make_shared<Watch>(transport, random, std::move(options))) {}

Follower::~Follower() = default;

void Follower::Start(Listener on_change) {
  watch_->Start(std::move(on_change));
}

void Follower::Stop(Task done) {
  watch_->Stop(std::move(done));
}

const proto::ClusterState& Follower::state() const {
  return watch_->state();
}

bool Follower::connected() const {
  return watch_->connected();
}

absl::StatusOr<uint64_t> Follower::Known(const std::string& node, uint64_t incarnation,
                                         Life life) const {
  const auto& members = state().members();
  const auto member = std::lower_bound(
      members.begin(), members.end(), node,
      [](const proto::Member& one, const std::string& name) { return one.node() < name; });
  if (member == members.end() || member->node() != node || member->incarnation() <= incarnation) {
    return incarnation;
  }
  if (life == Life::kStarting) {
    return absl::UnavailableError(
        absl::StrCat("node ", node, " has incarnation ", member->incarnation(),
                     " here; only the holder gives this process a higher one"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("node ", node, " has incarnation ", member->incarnation(),
                   " now; this process has ", incarnation, " and must stop serving"));
}

absl::StatusOr<uint64_t> Follower::Register(const proto::RegisterRequest& request) {
  return Known(request.node(), request.incarnation(),
               request.starting() ? Life::kStarting : Life::kAdmitted);
}

absl::StatusOr<uint64_t> Follower::Report(const std::string& node,
                                          const proto::ReportRequest& request) {
  TOKURA_RETURN_IF_ERROR(Known(node, request.incarnation(), Life::kAdmitted).status());
  return 0;
}

void Follower::ConnectionLost(const std::string&, uint64_t) {}

void Follower::NameEpoch(uint64_t) {}

}  // namespace tokura::coordinator
