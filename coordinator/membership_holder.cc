#include "coordinator/membership_holder.h"

#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace tokura::coordinator {

MembershipHolder::MembershipHolder(Executor& executor, std::unique_ptr<MetadataStore> store,
                                   Options options, PlantedBugs bugs)
    : executor_(executor),
      store_(std::move(store)),
      store_retry_(options.store_retry),
      membership_(std::move(options.membership), bugs, executor.Now()),
      has_policy_(options.policy.has_value()) {
  if (options.policy) {
    membership_.SetPolicy(*std::move(options.policy));
  }
}

MembershipHolder::~MembershipHolder() = default;

void MembershipHolder::Start(Listener on_change) {
  TOKURA_CHECK(phase_ == Phase::kNew);
  on_change_ = std::move(on_change);
  self_ = std::make_shared<MembershipHolder*>(this);
  ScheduleTick();
  Load();
}

void MembershipHolder::Stop(Task done) {
  phase_ = Phase::kStopped;
  self_.reset();
  executor_.CancelTimer(std::exchange(tick_timer_, 0));
  executor_.CancelTimer(std::exchange(retry_timer_, 0));
  executor_.Post(std::move(done));
}

const proto::ClusterState& MembershipHolder::state() const {
  return membership_.published();
}

absl::StatusOr<uint64_t> MembershipHolder::Register(const proto::RegisterRequest& request) {
  if (!loaded_) {
    return absl::UnavailableError("the incarnations that were granted before are not known yet");
  }
  absl::StatusOr<uint64_t> granted = membership_.Register(request, executor_.Now());
  Advance();
  return granted;
}

absl::StatusOr<uint64_t> MembershipHolder::Report(const std::string& node,
                                                  const proto::ReportRequest& request) {
  absl::StatusOr<uint64_t> refuse_below = membership_.Report(node, request, executor_.Now());
  Advance();
  return refuse_below;
}

void MembershipHolder::ConnectionLost(const std::string& node, uint64_t incarnation) {
  membership_.ConnectionLost(node, incarnation);
  Advance();
}

void MembershipHolder::NameEpoch(uint64_t epoch) {
  membership_.NameEpoch(epoch, executor_.Now());
  Advance();
}

void MembershipHolder::Advance() {
  if (phase_ != Phase::kIdle) {
    return;
  }
  std::optional<Membership::Draft> draft = membership_.NextDraft(executor_.Now());
  if (!draft) {
    return;
  }
  phase_ = Phase::kStoring;
  Metadata metadata = std::move(draft->metadata);
  store_->Store(
      stored_epoch_, std::move(metadata),
      [weak = std::weak_ptr(self_), draft = *std::move(draft)](const absl::Status& status) {
        if (const auto self = weak.lock()) {
          (*self)->OnStored(draft, status);
        }
      });
}

void MembershipHolder::OnStored(const Membership::Draft& draft, const absl::Status& status) {
  if (!status.ok()) {
    // Whether it was stored is unknown, or another holder was faster: the store knows.
    LoadLater("metadata_not_stored", status);
    return;
  }
  phase_ = Phase::kIdle;
  stored_epoch_ = draft.state.epoch();
  membership_.Publish(draft);
  // The listener may stop or use the view; the draft that has come up meanwhile follows after it.
  const std::weak_ptr<MembershipHolder*> weak = self_;
  on_change_();
  if (!weak.expired()) {
    Advance();
  }
}

void MembershipHolder::Load() {
  phase_ = Phase::kLoading;
  store_->Load([weak = std::weak_ptr(self_)](absl::StatusOr<Metadata> loaded) {
    if (const auto self = weak.lock()) {
      (*self)->OnLoaded(std::move(loaded));
    }
  });
}

void MembershipHolder::OnLoaded(absl::StatusOr<Metadata> loaded) {
  if (!loaded.ok()) {
    LoadLater("metadata_not_loaded", loaded.status());
    return;
  }
  phase_ = Phase::kIdle;
  loaded_ = true;
  stored_epoch_ = loaded->epoch;
  membership_.Restore(*loaded, executor_.Now());
  if (!has_policy_ && !loaded->policy.empty()) {
    has_policy_ = true;
    if (absl::StatusOr<Policy> policy = ParsePolicy(loaded->policy, "stored policy"); policy.ok()) {
      membership_.SetPolicy(*std::move(policy));
    } else {
      Log(LogLevel::kError, "coordinator", "stored_policy_unreadable",
          {{"why", policy.status().message()}});
    }
  }
  Advance();
}

void MembershipHolder::LoadLater(const char* event, const absl::Status& why) {
  Log(LogLevel::kWarn, "coordinator", event, {{"why", why.message()}});
  phase_ = Phase::kLoading;
  retry_timer_ = executor_.RunAfter(store_retry_, [weak = std::weak_ptr(self_)] {
    if (const auto self = weak.lock()) {
      (*self)->Load();
    }
  });
}

void MembershipHolder::ScheduleTick() {
  tick_timer_ = executor_.RunAfter(membership_.tick_interval(), [weak = std::weak_ptr(self_)] {
    if (const auto self = weak.lock()) {
      MembershipHolder& holder = **self;
      holder.membership_.Tick(holder.executor_.Now());
      holder.ScheduleTick();
      holder.Advance();
    }
  });
}

}  // namespace tokura::coordinator
