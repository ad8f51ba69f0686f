#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cache-node/coordinator_link.h"
#include "cache-node/server_context.h"
#include "common/executor.h"
#include "common/random.h"
#include "common/time.h"

namespace tokura::node {

// The node as one of the cluster's: its links to all coordinators and what they agree on (its
// incarnation, the highest epoch, whether it leaves). Without coordinators it does nothing. Owned
// by the first transport's executor.
class CoordinatorLinks final : public CoordinatorLinkOwner {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The node is to go on as `incarnation`, higher than before.
    virtual void OnAdopt(uint64_t incarnation) = 0;
    // A newer process of this name is known; `why` says what to do. The links have been stopped.
    virtual void OnSuperseded(const absl::Status& why) = 0;
  };

  // `transport`, `random` and `owner` outlive the links, or Stop's `done`.
  CoordinatorLinks(std::shared_ptr<ServerContext> context, net::Transport& transport,
                   RandomSource& random, Owner& owner);
  ~CoordinatorLinks() override;

  // Connect and register, as a node that listens at `listening`. Once.
  void Start(const net::Address& listening);
  // Tell every coordinator that the node leaves. `done` runs, perhaps inline, when each that it is
  // registered with knows, or at `deadline`. Once.
  void Leave(TimePoint deadline, Task done);
  // Close all links. `done` runs, perhaps inline, when they are closed. Once.
  void Stop(Task done);
  // From the node's tick.
  void Sample();

  proto::RegisterRequest Introduction() const override;
  void OnAdmitted(CoordinatorLink& link, const proto::RegisterReply& reply) override;
  void OnSuperseded(const std::string& coordinator, const absl::Status& why) override;
  void OnEpoch(uint64_t epoch, uint64_t refuse_below) override;
  uint64_t highest_epoch() const override { return highest_epoch_; }
  bool leaving() const override { return leaving_; }
  void OnLeaveSettled(CoordinatorLink& link) override;
  void OnStopped(CoordinatorLink& link) override;

 private:
  void CloseLinks();
  void FinishLeave();

  const std::shared_ptr<ServerContext> context_;  // owners: see ServerContext
  net::Transport& transport_;
  RandomSource& random_;
  Owner& owner_;
  std::array<std::byte, 16> instance_{};
  std::vector<std::shared_ptr<CoordinatorLink>> links_;  // shared with requests under way, weakly
  net::Address advertised_;
  bool admitted_ = false;  // by the holder, under the incarnation of now
  TimePoint admitted_at_{};
  uint64_t highest_epoch_ = 0;
  bool leaving_ = false;
  std::set<size_t> unsettled_;  // indices of links that are to know that the node leaves
  Task left_;
  TimerId leave_timer_ = 0;
  bool closing_ = false;
  size_t running_ = 0;  // links that have not stopped
  Task stopped_;
};

}  // namespace tokura::node
