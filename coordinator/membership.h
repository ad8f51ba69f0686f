#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time.h"
#include "coordinator/cluster_view.h"
#include "coordinator/coordinator.h"
#include "coordinator/metadata.h"
#include "coordinator/policy.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// The members of the cluster as their holder sees them: a pure state machine, time and requests
// passed in, without I/O. Changes gather in a draft; the owner publishes it, each time under a
// higher epoch, once it has made the epoch durable. Thread-compatible.
//
//            register                  silent for suspect_after
//   (none) ───────────► UP ◄─────────────────────────────────────► SUSPECT
//      ▲                │  report            report, register          │
//      │   leaving      ▼                                              │ silent for remove_after
//      │◄────────── LEAVING   connection lost, silent                  │
//      └───────────────────────────────────────────────────────────────┘
//
// A name that is no member any more is remembered with its last incarnation, so that a zombie is
// known as one, and with its leave, so that a new connection does not take it back.
class Membership {
 public:
  struct Options {
    std::string holder;  // name of this coordinator
    uint64_t life = 0;   // incarnation of its process: versions of the rules are not below it
    uint32_t segment_blocks = 32;
    Duration join_ramp = std::chrono::seconds(60);
    Duration suspect_after = std::chrono::milliseconds(1000);
    Duration remove_after = std::chrono::seconds(10);
    Duration forming = std::chrono::milliseconds(1500);
  };
  // More members are refused with RESOURCE_EXHAUSTED: a state with so many fits one message.
  static constexpr size_t kMembersMax = 1024;
  // Names remembered, members among them; of the others the one that is gone longest is forgotten.
  static constexpr size_t kNamesMax = 4096;
  static constexpr size_t kTextBytesMax = 256;  // of a name or an address
  // Epochs that only go on above one that a peer named come so far apart: a peer that names ever
  // higher ones must not keep every watcher busy.
  static constexpr Duration kNamedApart = std::chrono::seconds(1);
  // A new node's share grows in so many steps, each an epoch.
  static constexpr uint32_t kRampSteps = 10;

  Membership(Options options, PlantedBugs bugs, TimePoint start);

  // What a process before this one left, or another holder: incarnations already granted, and an
  // epoch to go on above. Higher ones that are known here stay.
  void Restore(const Metadata& kept, TimePoint now);
  // The rules from the next epoch on.
  void SetPolicy(Policy policy);

  // See ClusterView for the answers and statuses.
  absl::StatusOr<uint64_t> Register(const proto::RegisterRequest& request, TimePoint now);
  absl::StatusOr<uint64_t> Report(const std::string& node, const proto::ReportRequest& request,
                                  TimePoint now);
  void ConnectionLost(const std::string& node, uint64_t incarnation);
  // Somebody knows of `epoch`: the next one is above it.
  void NameEpoch(uint64_t epoch, TimePoint now);
  // Let time pass: suspicion, removal, ramps. Time in which nobody ticked counts for nobody's
  // silence beyond one interval: a holder that was stopped knows nothing of its nodes.
  void Tick(TimePoint now);
  // How often Tick wants to be called.
  Duration tick_interval() const;

  // A state that may be published, and what must be durable before it is.
  struct Draft {
    proto::ClusterState state;
    Metadata metadata;
    uint64_t revision = 0;
    TimePoint named_from;  // when an epoch may follow that only goes on above a named one
  };
  // The next state, when it differs from the published one, or somebody knows a higher epoch
  // (kNamedApart). None while the cluster forms: until `forming` has passed since the start, or
  // since somebody first named an epoch of an earlier life of the holder, for the nodes of that
  // life to register. A node that registers while nobody knows of any epoch ends the waiting: the
  // cluster is a new one.
  std::optional<Draft> NextDraft(TimePoint now) const;
  // `draft`, the last one that NextDraft gave, is in force. Changes since then stay for the next.
  void Publish(const Draft& draft);
  // Epoch 0 before the first Publish.
  const proto::ClusterState& published() const { return published_; }

 private:
  enum class State : uint8_t { kGone, kUp, kSuspect, kLeaving };
  // What is remembered of one name.
  struct Node {
    State state = State::kGone;
    uint64_t incarnation = 0;
    std::string instance;  // of the process that has it; empty when only the number is known
    bool left = false;     // this incarnation was leaving: it comes back as that only
    std::string address;
    std::string admin;
    uint64_t capacity_bytes = 0;
    TimePoint joined;  // its age 0, on this clock
    TimePoint last_heard = TimePoint::min();
    uint32_t share_permille = 0;
    uint64_t refuse_below_epoch = 0;  // kLeaving: the epoch that said so; 0: not published yet
  };

  // The incarnation that `request` gets, given what is known of its name.
  absl::StatusOr<uint64_t> Grant(const Node* maybe_known,
                                 const proto::RegisterRequest& request) const;
  absl::Status CheckEpoch(uint64_t epoch) const;
  absl::Status MakeRoom(const Node* maybe_known);
  void Admit(Node& node, const proto::RegisterRequest& request, uint64_t incarnation,
             TimePoint now);
  void Remove(Node& node);
  void Judge(const std::string& name, Node& node, TimePoint now);
  void SetState(Node& node, State state);
  void SetShare(Node& node, TimePoint now);
  uint64_t NextPolicyVersion(uint64_t epoch) const;
  proto::Member MemberOf(const std::string& name, const Node& node) const;
  bool Forming(TimePoint now) const { return now < forming_until_; }

  const Options options_;
  const PlantedBugs bugs_;
  std::map<std::string, Node> nodes_;
  size_t members_ = 0;
  std::optional<Policy> policy_;
  // Of the rules in force, even of none: the epoch that brought them, but not below the life of
  // this process, so that a state of another life under the same epoch is known as another one.
  uint64_t policy_version_ = 0;
  bool policy_changed_ = true;    // since policy_version_ was published
  uint64_t policy_revision_ = 0;  // of the draft that has them first
  proto::ClusterState published_;
  uint64_t revision_ = 0;  // of the draft
  uint64_t published_revision_ = 0;
  uint64_t named_epoch_ = 0;  // the highest that anybody knows
  TimePoint named_from_ = TimePoint::min();
  TimePoint forming_until_;
  bool waited_for_earlier_life_ = false;
  TimePoint last_tick_;
};

}  // namespace tokura::coordinator
