#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "cache-node/inventory_feed.h"
#include "cache-node/server_context.h"
#include "common/executor.h"
#include "common/net/reconnector.h"
#include "common/random.h"
#include "proto/cluster.pb.h"

namespace tokura::node {

class CoordinatorLink;

// What the links of a node have in common: who the node is to coordinators. Owned by the first
// transport's executor.
class CoordinatorLinkOwner {
 public:
  virtual ~CoordinatorLinkOwner() = default;
  // The REGISTER of now, whole.
  virtual proto::RegisterRequest Introduction() const = 0;
  // A coordinator answered it with OK. May change the node's incarnation, and then tells the other
  // links to register again.
  virtual void OnAdmitted(CoordinatorLink& link, const proto::RegisterReply& reply) = 0;
  // A coordinator knows a newer process of this name. May stop the links.
  virtual void OnSuperseded(const std::string& coordinator, const absl::Status& why) = 0;
  // An epoch was heard of, and the one below which puts are refused; 0: none.
  virtual void OnEpoch(uint64_t epoch, uint64_t refuse_below) = 0;
  virtual uint64_t highest_epoch() const = 0;
  virtual bool leaving() const = 0;
  // This coordinator knows that the node leaves, or is not registered with any more.
  virtual void OnLeaveSettled(CoordinatorLink& link) = 0;
  virtual void OnStopped(CoordinatorLink& link) = 0;
};

// The node's link to one coordinator: registers, reports, tells the inventory, applies touches and
// orphans. Comes back after every loss; nothing waits for it.
//   down --session--> registering --admitted--> registered --session lost--> down
//                                               registered --Reregister, refused---> registering
// Owned by the first transport's executor. Shared by whoever made it; requests under way hold weak
// references.
class CoordinatorLink final : public net::Reconnector::Owner,
                              public std::enable_shared_from_this<CoordinatorLink> {
 public:
  // Touches and orphans, each, that one REPORT brings.
  static constexpr uint32_t kNotesMax = 4096;

  // All are borrowed and outlive OnStopped, the context apart, which is shared.
  CoordinatorLink(std::shared_ptr<ServerContext> context, net::Transport& transport,
                  RandomSource& random, CoordinatorLinkOwner& owner);
  ~CoordinatorLink() override;

  // Begin to connect to `address`. `instance` names this process. Once.
  void Start(const net::Address& address, std::span<const std::byte> instance);
  // Close for good; OnStopped follows. Once, after Start.
  void Stop();
  // The node has another incarnation now.
  void Reregister();
  // Report at once: the node leaves. OnLeaveSettled follows, inline when not registered.
  void ReportLeaving();

  bool registered() const { return state_ == State::kRegistered; }
  uint64_t lag() const { return feed_.lag(); }
  std::string coordinator() const { return link_->address().ToString(); }

  absl::Status AdmitPeer(net::Reconnector& link, const proto::Welcome& welcome) override;
  void OnLinkUp(net::Reconnector& link) override;
  void OnLinkDraining(net::Reconnector& link) override;
  void OnLinkLost(net::Reconnector& link, const absl::Status& why) override;
  void OnLinkStopped(net::Reconnector& link) override;

 private:
  enum class State : uint8_t { kDown, kRegistering, kRegistered };
  class Answer;
  using OnAnswer = void (CoordinatorLink::*)(const absl::Status& status,
                                             std::span<const std::byte> body);

  void Ask(net::Op op, const google::protobuf::MessageLite& request, OnAnswer on_answer);
  void Register();
  // An answer that says that what was asked was not done: register again, or give the session up.
  void Refused(const absl::Status& why);
  void OnRegistered(const absl::Status& status, std::span<const std::byte> body);
  void Report();
  void OnReported(const absl::Status& status, std::span<const std::byte> body);
  // Apply what concerns this life of the node. Returns whether there may be more at once.
  bool TakeNotes(const proto::ReportReply& reply);
  void TellInventory();
  void OnTold(const absl::Status& status, std::span<const std::byte> body);
  void Tick();
  void End(State next);

  const std::shared_ptr<ServerContext> context_;  // owners: see ServerContext
  net::Transport& transport_;
  RandomSource& random_;
  CoordinatorLinkOwner& owner_;
  std::shared_ptr<net::Reconnector> link_;  // shared with its own tasks
  InventoryFeed feed_;
  State state_ = State::kDown;
  uint64_t session_ = 0;            // answers to what an earlier one asked do not count
  bool starting_ = false;           // as REGISTER said
  uint64_t asked_incarnation_ = 0;  // the same
  uint64_t told_incarnation_ = 0;   // of which the feed tells
  uint64_t told_coordinator_ = 0;   // the coordinator's incarnation to which it does
  Duration report_interval_{};
  bool report_outstanding_ = false;
  bool report_again_ = false;                   // as soon as the answer is there
  bool holder_ = false;                         // it decides on membership
  bool reported_leaving_ = false;               // by the report under way
  BatchKind batch_kind_ = BatchKind::kChanges;  // of the batch under way
  size_t batch_records_ = 0;
  TimePoint next_report_{};
  TimerId timer_ = 0;
};

}  // namespace tokura::node
