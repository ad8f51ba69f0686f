#include "client-lib/src/cluster_map.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace tokura {
namespace {
// A coordinator without news answers at half of it. A dead one is found by heartbeats much sooner.
constexpr std::chrono::seconds kWatchDeadline{10};
constexpr int kMembersMax = 4096;
}  // namespace

class ClusterMap::WatchCall final : public net::Call {
 public:
  explicit WatchCall(ClusterMap& map) : maybe_map_(&map) {}
  void Forget() { maybe_map_ = nullptr; }
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    if (maybe_map_ != nullptr) {
      maybe_map_->OnReply(status, body);
    }
  }

 private:
  ClusterMap* maybe_map_;  // null once it waits for another answer
};

ClusterMap::~ClusterMap() {
  TOKURA_CHECK(!watch_ && pause_timer_ == 0);
}

void ClusterMap::Stop() {
  stopped_ = true;
  ForgetWatch();
  coordinators_.environment().executor.CancelTimer(std::exchange(pause_timer_, 0));
}

void ClusterMap::AskSoon() {
  if (pause_timer_ != 0 && coordinators_.First() != nullptr) {
    coordinators_.environment().executor.CancelTimer(std::exchange(pause_timer_, 0));
    OnPreferenceChanged();
  }
}

void ClusterMap::OnPreferenceChanged() {
  NodeLink* const maybe_first = coordinators_.First();
  if (stopped_ || (watch_ && maybe_first == maybe_watched_)) {
    return;
  }
  ForgetWatch();
  if (maybe_first != nullptr && pause_timer_ == 0) {
    Watch(*maybe_first);
  }
}

void ClusterMap::Watch(NodeLink& link) {
  proto::WatchRequest body;
  body.set_known_epoch(state_.epoch());
  body.set_known_policy_version(state_.policy_version());
  watch_ = std::make_shared<WatchCall>(*this);
  maybe_watched_ = &link;
  const TimePoint deadline = After(coordinators_.environment().executor.Now(), kWatchDeadline);
  request_id_ = link.Send(net::Op::kWatch, body, deadline, watch_);
}

void ClusterMap::ForgetWatch() {
  if (!watch_) {
    return;
  }
  watch_->Forget();
  watch_.reset();
  // One that is lost has nothing outstanding any more, and ignores this.
  std::exchange(maybe_watched_, nullptr)->Cancel(request_id_);
}

void ClusterMap::OnReply(const absl::Status& status, std::span<const std::byte> body) {
  coordinators_.environment().metrics.CoordinatorAnswered(CoordinatorOp::kWatch, status);
  const NodeLink& link = *std::exchange(maybe_watched_, nullptr);
  watch_.reset();
  const News news = status.ok() ? Take(body) : News::kUnreadable;
  if (stopped_) {
    return;
  }
  if (news == News::kNew) {
    pause_ = Duration::zero();
    OnPreferenceChanged();
    return;
  }
  if (news == News::kSame) {
    pause_ = Duration::zero();
  }
  Pause();
  if (news != News::kSame) {
    coordinators_.Avoid(link);
  }
}

ClusterMap::News ClusterMap::Take(std::span<const std::byte> body) {
  proto::ClusterState state;
  if (!state.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
      state.members_size() > kMembersMax) {
    return News::kUnreadable;
  }
  // Epoch 0: this one knows of none yet.
  const auto age = [](const proto::ClusterState& of) {
    return std::pair(of.epoch(), of.policy_version());
  };
  if (state.epoch() == 0 || age(state) < age(state_)) {
    return News::kOlder;
  }
  if (age(state) == age(state_)) {
    return News::kSame;
  }
  state_ = std::move(state);
  coordinators_.environment().metrics.epoch->Set(static_cast<double>(state_.epoch()));
  Log(LogLevel::kInfo, "client", "cluster_state",
      {{"epoch", state_.epoch()},
       {"policy_version", state_.policy_version()},
       {"members", static_cast<uint64_t>(state_.members_size())}});
  owner_.OnClusterState(state_);
  return News::kNew;
}

void ClusterMap::Pause() {
  const Coordinators::Environment& environment = coordinators_.environment();
  pause_ = std::clamp(2 * pause_, environment.options.breaker_backoff_min,
                      environment.options.breaker_backoff_max);
  pause_timer_ = environment.executor.RunAt(After(environment.executor.Now(), pause_), [this] {
    pause_timer_ = 0;
    OnPreferenceChanged();
  });
}

}  // namespace tokura
