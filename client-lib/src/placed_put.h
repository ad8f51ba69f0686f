#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client-lib/src/hedged_request.h"
#include "client-lib/src/operation.h"
#include "client-lib/src/put_operation.h"
#include "proto/cluster.pb.h"

namespace tokura {

// A put in a cluster: asks a coordinator which blocks need to be stored and where, and puts them
// there, with one PutOperation per node. Blocks that are held already are OK without a transfer.
// Blocks that a node refuses because their placement is too old are planned once more. The view is
// released when no part of the put can need it any more. Nodes that are expected to be connected
// soon are waited for a little. Owned by the core's executor.
class PlacedPut final : public Operation {
 public:
  PlacedPut(CoreContext& core, Identity identity, PutOperation::Request request, Task released,
            ClientCore::PutCallback stored);

  void Start() override;
  void Cancel() override;
  void OnLinkDraining(NodeLink& link, const absl::Status& why) override;
  void OnLinkLost(NodeLink& link, const absl::Status& why) override;

 private:
  struct Block {
    uint32_t plans = 0;  // that were asked for it
    uint32_t puts = 0;   // under way with it
    bool stored = false;
    bool refused = false;  // by the placement it had
    absl::Status failure;  // the first; CANCELLED only where there is no other
  };
  // The put to one node. `operation` is null once it has ended.
  struct Child {
    std::shared_ptr<PutOperation> operation;  // owners: this, its calls and its jobs
    std::vector<size_t> blocks;
    bool released = false;
    bool admitted = false;
  };
  // Blocks that one plan is asked for.
  struct Plan {
    std::vector<size_t> blocks;
    size_t asked = 0;  // keys of the request
    size_t first = 0;  // position of its first key
    std::shared_ptr<HedgedRequest> asking;
  };
  // The blocks of each node of a reply, by its index there.
  using Shares = std::map<uint32_t, std::vector<size_t>>;
  // The part of a plan whose nodes are expected to be connected soon.
  struct Deferred {
    proto::PlanReply reply;
    Shares shares;
    uint64_t wait = 0;
  };

  absl::Status Prepare();
  Duration PredictedTotal(const std::vector<const NodeLink*>& links) const;
  void AskPlan(std::vector<size_t> blocks);
  HedgedRequest::Question MakePlan(const Plan& plan, uint64_t first_block) const;
  void OnPlan(uint64_t plan, const absl::Status& status, std::span<const std::byte> body);
  // Nothing when the reply contradicts itself.
  static std::optional<Shares> SharesOf(const Plan& plan, const proto::PlanReply& reply,
                                        uint64_t first_block);
  void Place(const Plan& plan, const proto::PlanReply& reply, const Shares& shares);
  // Put later what belongs on nodes that are expected soon.
  void Defer(const proto::PlanReply& reply, Shares shares);
  void OnDeferred(uint64_t deferred);
  void StartChild(const proto::PlanReply& reply, const proto::NodeRef& node,
                  std::vector<size_t> blocks);
  void OnChildEnded(size_t child, const PutResult& result);
  void Fail(const std::vector<size_t>& blocks, const absl::Status& why);
  // Every child that has not ended.
  std::vector<std::shared_ptr<PutOperation>> Running() const;
  bool ViewNeeded() const;
  // Release the view and deliver the result when their times have come.
  void Settle();
  void Deliver();

  TimePoint StallsAt() const override { return kNever; }
  void OnExpired(OperationDeadline::Verdict verdict) override;

  PutOperation::Request request_;
  Task released_;
  ClientCore::PutCallback stored_;
  uint64_t first_position_ = 0;
  uint64_t raw_bytes_per_block_ = 0;
  std::vector<Block> blocks_;
  std::vector<Child> children_;
  std::map<uint64_t, Plan> plans_;  // under way
  uint64_t last_plan_ = 0;
  std::map<uint64_t, Deferred> deferred_;
  uint64_t last_deferred_ = 0;
  uint64_t bytes_moved_ = 0;
  OperationTimings timings_;
  absl::Status end_;  // why nothing is planned any more; OK: it may be
  bool view_released_ = false;
  bool delivered_ = false;
};

}  // namespace tokura
