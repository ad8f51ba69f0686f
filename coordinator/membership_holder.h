#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/executor.h"
#include "coordinator/cluster_view.h"
#include "coordinator/coordinator.h"
#include "coordinator/membership.h"
#include "coordinator/metadata.h"
#include "coordinator/policy.h"

namespace tokura::coordinator {

// The view of the coordinator that holds membership and policy: feeds Membership with requests and
// time, and publishes its drafts once the metadata store has taken their epoch, so that two holders
// never publish the same one. While the store is out of reach the last state stays in force.
class MembershipHolder final : public ClusterView {
 public:
  struct Options {
    Membership::Options membership;
    std::optional<Policy> policy;  // in force from the start; none: what the store keeps
    // Pause before the store is asked again after UNAVAILABLE.
    Duration store_retry = std::chrono::milliseconds(500);
  };
  // `executor` outlives Stop's `done`. `bugs`: of the simulation's own test.
  MembershipHolder(Executor& executor, std::unique_ptr<MetadataStore> store, Options options,
                   PlantedBugs bugs);
  ~MembershipHolder() override;

  void Start(Listener on_change) override;
  void Stop(Task done) override;
  const proto::ClusterState& state() const override;
  bool holder() const override { return true; }
  absl::StatusOr<uint64_t> Register(const proto::RegisterRequest& request) override;
  absl::StatusOr<uint64_t> Report(const std::string& node,
                                  const proto::ReportRequest& request) override;
  void ConnectionLost(const std::string& node, uint64_t incarnation) override;
  void NameEpoch(uint64_t epoch) override;

 private:
  enum class Phase : uint8_t { kNew, kLoading, kIdle, kStoring, kStopped };

  // After anything that may have changed the draft: store it, if there is one to publish.
  void Advance();
  void OnStored(const Membership::Draft& draft, const absl::Status& status);
  void Load();
  void OnLoaded(absl::StatusOr<Metadata> loaded);
  void LoadLater(const char* event, const absl::Status& why);
  void ScheduleTick();

  Executor& executor_;
  const std::unique_ptr<MetadataStore> store_;
  const Duration store_retry_;
  Membership membership_;
  bool has_policy_;
  bool loaded_ = false;
  Listener on_change_;
  Phase phase_ = Phase::kNew;
  uint64_t stored_epoch_ = 0;  // what the store is expected to hold
  TimerId tick_timer_ = 0;
  TimerId retry_timer_ = 0;
  // From Start to Stop: callbacks and timers find out whether they are still wanted.
  std::shared_ptr<MembershipHolder*> self_;
};

}  // namespace tokura::coordinator
