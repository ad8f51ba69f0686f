#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// The highest epochs and incarnations that may be claimed by those whom no holder need have told
// any: clients, and processes that start. Holders count on from there, and who was told so may
// repeat it to the next one; if both had one limit, a claim of it would make the next holder refuse
// everybody.
inline constexpr uint64_t kClaimMax = uint64_t{1} << 62;
inline constexpr uint64_t kToldMax = kClaimMax + (kClaimMax >> 1);

// What a coordinator knows of the cluster's members and policy, and whom it asks about them:
// MembershipHolder decides itself, Follower repeats what another one decided. Owned by the
// executor it was given; nothing blocks.
class ClusterView {
 public:
  virtual ~ClusterView() = default;

  // Called each time state() has become another one, in a task of its own: never inside a call into
  // the view. What goes by members (the placement, sources of the index, waiting WATCHes) follows
  // here.
  using Listener = std::function<void()>;

  // Once, before anything else. `on_change` may be called until Stop.
  virtual void Start(Listener on_change) = 0;
  // Let go of timers and connections. `done` runs in a task of its own; no listener call follows
  // the call of Stop. The view may be destroyed from `done` on, not inside it.
  virtual void Stop(Task done) = 0;

  // The members and rules in force. Epoch 0, and nothing else in it, until there is one: a
  // coordinator is ready once the epoch is not 0. Members are in the order of their names, each
  // name once. The reference is good until the next on_change.
  virtual const proto::ClusterState& state() const = 0;
  // Whether this coordinator decides on membership: RegisterReply.holder.
  virtual bool holder() const = 0;

  // What REGISTER gets as its incarnation; the caller fills in the rest of RegisterReply.
  //  * Holder: admits the process: the larger of its own incarnation and, while it is `starting`,
  //    one more than the last of that name. The same process (`instance`) asking again gets the
  //    same answer.
  //  * Follower: its own incarnation, but it admits nobody: a node stays `starting` until a holder
  //    has answered, and whatever a holder says later wins. A starting process that needs a higher
  //    one gets UNAVAILABLE until it comes back with what a holder gave it: two coordinators that
  //    hand out numbers would make a zombie of the process that asks both.
  // FAILED_PRECONDITION: a higher incarnation of this name is known, and this process is not
  // starting: it is a zombie and is to stop serving. INVALID_ARGUMENT names the bad field.
  // RESOURCE_EXHAUSTED: too many members. UNAVAILABLE: not yet, ask again soon.
  virtual absl::StatusOr<uint64_t> Register(const proto::RegisterRequest& request) = 0;

  // A sign of life of `node`, registered on this connection: what REPORT gets as
  // refuse_below_epoch; 0 unless the node leaves. FAILED_PRECONDITION: a higher incarnation is
  // known, as above. NOT_FOUND: the node must register (again) first. INVALID_ARGUMENT names the
  // field.
  virtual absl::StatusOr<uint64_t> Report(const std::string& node,
                                          const proto::ReportRequest& request) = 0;

  // The connection on which this life of `node` had registered has ended. A node that was leaving
  // has left; of another one nothing is concluded before it has been silent for suspect_after.
  virtual void ConnectionLost(const std::string& node, uint64_t incarnation) = 0;

  // A WATCH named this epoch as the highest that its sender knows, a client none above kClaimMax.
  // Registering and reporting
  // nodes need no call: Register and Report take theirs. A holder goes on above it; a follower has
  // no use for it.
  virtual void NameEpoch(uint64_t epoch) = 0;
};

}  // namespace tokura::coordinator
