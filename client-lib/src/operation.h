#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "client-lib/src/client_metrics.h"
#include "client-lib/src/deadline.h"
#include "client-lib/src/model_profiles.h"
#include "client-lib/src/node_directory.h"
#include "client-lib/src/ring.h"
#include "client-lib/src/suspects.h"
#include "common/executor.h"
#include "tokura/client_core.h"

namespace tokura {

// How fast this process encodes and decodes, and how much work is queued: part of what an operation
// may take. Owned by the core's executor.
struct CodecLoad {
  RateEstimator encode{{.initial_bytes_per_second = 50e6,
                        .floor_bytes_per_second = 5e6,
                        .sample_bytes_min = uint64_t{4} << 10}};
  RateEstimator decode{{.initial_bytes_per_second = 200e6,
                        .floor_bytes_per_second = 20e6,
                        .sample_bytes_min = uint64_t{4} << 10}};
  uint64_t encode_backlog_bytes = 0;  // raw size of what operations under way still have to code
  uint64_t decode_backlog_bytes = 0;
};

class ClusterMap;
class Coordinators;
class Introductions;

// What a client of a cluster has besides its links to nodes.
struct ClusterContext {
  Coordinators& coordinators;
  const ClusterMap& map;
  Introductions& introductions;
};

// What every operation works with. Everything outlives the operations.
struct CoreContext {
  Executor& executor;
  WorkerPool& pool;
  const ClientOptions& options;
  const ClientPlantedBugs& bugs;
  Ring& ring;
  NodeDirectory& directory;
  ClientMetrics& metrics;
  ModelProfiles& profiles;
  CodecLoad& codec;
  PauseWatch& pauses;
  Suspects& suspects;
  const ClusterContext* maybe_cluster;  // null: the nodes are listed, there is no coordinator
};

// One call of the client under way. Owned by the core's executor. Held by shared_ptr; owners: the
// core until the operation retires, and calls, transfers and jobs under way, which outlive it.
// Callbacks to the caller never run inside Start.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  // `on_retired` removes the operation from the core; called once, before the caller's last
  // callback.
  using OnRetired = absl::AnyInvocable<void(uint64_t id)>;
  // kNo: a part of another operation, which is counted itself.
  enum class Counted { kYes, kNo };
  struct Identity {
    uint64_t id;
    OperationKind kind;
    OnRetired on_retired;
    Counted counted = Counted::kYes;
  };
  Operation(CoreContext& core, Identity identity);
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  uint64_t id() const { return id_; }
  virtual void Start() = 0;
  // Finish soon with CANCELLED for what has not finished.
  virtual void Cancel() = 0;
  // The node drains: what has not been sent to it will not be, what has been may finish.
  virtual void OnLinkDraining(NodeLink& link, const absl::Status& why) = 0;
  // Requests on `link` are lost, and what it still delivers must not be used. The link is not
  // usable now.
  virtual void OnLinkLost(NodeLink& link, const absl::Status& why) = 0;

 protected:
  // Start the clock: the operation ends at `total` from now.
  void StartClock(Duration total);
  void StopClock();
  // Go on after OnExpired.
  void Rearm() {
    StopClock();
    Arm();
  }
  // Leave the core and count how it ended. The caller's callback follows.
  void Retire(ResultLabel result);
  TimePoint deadline() const { return clock_.end(); }
  bool counted() const { return counted_ == Counted::kYes; }
  // End no later than now + `soon`.
  void Hurry(Duration soon);

  // When a node stalls that this operation waits for now, and on nothing of its own; kNever when it
  // waits for none.
  virtual TimePoint StallsAt() const = 0;
  // The deadline passed, or a node stalled: finish, or turn to other nodes.
  virtual void OnExpired(OperationDeadline::Verdict verdict) = 0;
  // The deadline passed, as another timer of this operation found.
  void ExpireNow();
  // When a node stalls that is waited for since it last made progress at `moved`.
  TimePoint StallOf(TimePoint moved) const;
  // Whether a node that is waited for since `moved` is convicted.
  bool Blames(const NodeLink& link, TimePoint moved) const;

  template <typename T>
  std::shared_ptr<T> Self() {
    return std::static_pointer_cast<T>(shared_from_this());
  }

  CoreContext& core_;

 private:
  void Arm();
  void OnTimer();

  const uint64_t id_;
  const OperationKind kind_;
  const Counted counted_;
  OnRetired on_retired_;
  const TimePoint started_;
  OperationDeadline clock_;
  TimePoint timer_due_;
  TimerId timer_ = 0;
};

}  // namespace tokura
