#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "client-lib/src/coordinators.h"
#include "proto/cluster.pb.h"

namespace tokura {

// What the coordinators say of the cluster: members and policy, learnt by WATCH from the preferred
// one. A lower epoch never replaces a higher one, and with all coordinators gone the last state
// holds. Owned by the core's executor.
class ClusterMap final : public Coordinators::Observer {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The state is another one now.
    virtual void OnClusterState(const proto::ClusterState& state) = 0;
  };
  // Both outlive Stop.
  ClusterMap(Coordinators& coordinators, Owner& owner)
      : coordinators_(coordinators), owner_(owner) {}
  ~ClusterMap() override;

  // Whether some coordinator has told its state.
  bool known() const { return state_.epoch() > 0; }
  // Empty before.
  const proto::ClusterState& state() const { return state_; }
  // Do not wait before the next question: the state may be old.
  void AskSoon();
  // Ask nothing more.
  void Stop();

  // Coordinators::Observer
  void OnPreferenceChanged() override;

 private:
  class WatchCall;
  enum class News { kNew, kSame, kOlder, kUnreadable };

  void Watch(NodeLink& link);
  void OnReply(const absl::Status& status, std::span<const std::byte> body);
  News Take(std::span<const std::byte> body);
  // Ask again after a while: an answer that brought nothing must not be asked for in a loop.
  void Pause();
  void ForgetWatch();

  Coordinators& coordinators_;
  Owner& owner_;
  proto::ClusterState state_;
  std::shared_ptr<WatchCall> watch_;  // under way; owners: this and the link
  NodeLink* maybe_watched_ = nullptr;
  uint64_t request_id_ = 0;
  Duration pause_ = Duration::zero();  // the last one; grows while nothing new comes
  TimerId pause_timer_ = 0;
  bool stopped_ = false;
};

}  // namespace tokura
