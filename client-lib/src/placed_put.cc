#include "client-lib/src/placed_put.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client-lib/src/cluster_map.h"
#include "client-lib/src/coordinators.h"
#include "client-lib/src/fan_out.h"
#include "client-lib/src/introductions.h"
#include "client-lib/src/policy.h"
#include "client-lib/src/sequence_plan.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

// A block is planned, and once more when its node refuses the placement.
constexpr uint32_t kPlansMax = 2;
// Nodes that a plan puts one block on, at most.
constexpr uint64_t kCopiesMax = 8;

}  // namespace

PlacedPut::PlacedPut(CoreContext& core, Identity identity, PutOperation::Request request,
                     Task released, ClientCore::PutCallback stored)
    : Operation(core, std::move(identity)),
      request_(std::move(request)),
      released_(std::move(released)),
      stored_(std::move(stored)) {}

void PlacedPut::Start() {
  const absl::Status prepared = Prepare();
  StartClock(request_.options.deadline.value_or(PredictedTotal({})));
  if (prepared.ok() && !blocks_.empty()) {
    std::vector<size_t> all(blocks_.size());
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = i;
    }
    AskPlan(std::move(all));
  }
  for (Block& block : blocks_) {
    block.failure = block.failure.ok() ? prepared : block.failure;
  }
  core_.executor.Post([self = Self<PlacedPut>()] { self->Settle(); });
}

absl::Status PlacedPut::Prepare() {
  const Namespace& ns = *request_.ns;
  const PutRange put = RangeOfPut(ns, request_.keys.size(), request_.view, request_.options);
  first_position_ = put.range.first;
  blocks_.resize(put.range.count);
  TOKURA_RETURN_IF_ERROR(put.status);
  if (blocks_.empty()) {
    return absl::OkStatus();
  }
  TOKURA_RETURN_IF_ERROR(CheckSequenceView(ns, request_.view, put.range, ViewUse::kRead));
  // All nodes get the same codec, whatever becomes of the policy meanwhile.
  TOKURA_ASSIGN_OR_RETURN(
      const Encoding encoding,
      ChooseEncoding(core_, ns, ViewGroups(request_.view), request_.options.codec));
  request_.options.codec = encoding.codec;
  for (const PartId part : PartsOf(request_.view, ViewGroups(request_.view))) {
    raw_bytes_per_block_ += RawBytes(ns.Shape(part.group));
  }
  return absl::OkStatus();
}

Duration PlacedPut::PredictedTotal(const std::vector<const NodeLink*>& links) const {
  const uint64_t raw_bytes = raw_bytes_per_block_ * blocks_.size();
  Duration wire = Duration::zero();
  for (const NodeLink* link : links) {
    wire = std::max(wire, link->rate().Predict(raw_bytes + core_.ring.used()));
  }
  const Duration codec = core_.codec.encode.Predict(raw_bytes + core_.codec.encode_backlog_bytes);
  return OperationDeadline::DefaultTotal(core_.options.progress_timeout, wire + codec);
}

void PlacedPut::AskPlan(std::vector<size_t> blocks) {
  const uint64_t segment = core_.maybe_cluster->map.state().segment_blocks();
  const uint64_t begin = first_position_ + blocks.front();
  const uint64_t end = first_position_ + blocks.back() + 1;
  Plan plan;
  plan.first = segment == 0 ? 0 : begin / segment * segment;
  plan.asked = std::min<uint64_t>(end - plan.first, core_.maybe_cluster->coordinators.keys_max());
  // What one request cannot carry is not stored: no lookup would reach so far either.
  const auto beyond = std::partition_point(blocks.begin(), blocks.end(), [&](size_t block) {
    return first_position_ + block < plan.first + plan.asked;
  });
  Fail({beyond, blocks.end()}, absl::ResourceExhaustedError("more blocks than one plan may name"));
  blocks.erase(beyond, blocks.end());
  if (blocks.empty()) {
    return;
  }
  for (const size_t block : blocks) {
    ++blocks_[block].plans;
  }
  plan.blocks = std::move(blocks);
  const uint64_t id = ++last_plan_;
  plan.asking = core_.maybe_cluster->coordinators.Ask(
      MakePlan(plan, begin - plan.first),
      [self = Self<PlacedPut>(), id](const absl::Status& status, std::span<const std::byte> reply) {
        self->OnPlan(id, status, reply);
      });
  plans_.emplace(id, std::move(plan));
}

HedgedRequest::Question PlacedPut::MakePlan(const Plan& plan, uint64_t first_block) const {
  proto::PlanRequest body;
  body.set_keys(ConcatKeys(std::span(request_.keys).subspan(plan.first, plan.asked)));
  body.set_first_position(static_cast<uint32_t>(plan.first));
  body.set_first_block(static_cast<uint32_t>(first_block));
  body.set_codec(*request_.options.codec);
  body.set_group_mask(ViewGroups(request_.view));
  const auto make = [body = std::move(body)](const NodeLink&) {
    return std::make_unique<proto::PlanRequest>(body);
  };
  return {net::Op::kPlan, CoordinatorOp::kPlan, make, deadline()};
}

void PlacedPut::OnPlan(uint64_t id, const absl::Status& status, std::span<const std::byte> body) {
  const Plan plan = std::move(plans_.extract(id).mapped());
  proto::PlanReply reply;
  std::optional<Shares> shares;
  if (status.ok() && reply.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    shares = SharesOf(plan, reply, first_position_);
  }
  if (shares) {
    Place(plan, reply, *shares);
  } else {
    Fail(plan.blocks,
         absl::UnavailableError(absl::StrCat(
             "no coordinator placed it: ",
             status.ok() ? "the answer cannot be read" : std::string(status.message()))));
  }
  Settle();
}

std::optional<PlacedPut::Shares> PlacedPut::SharesOf(const Plan& plan,
                                                     const proto::PlanReply& reply,
                                                     uint64_t first_block) {
  Shares shares;
  uint64_t placed = 0;
  for (const proto::PlanRun& run : reply.runs()) {
    const uint64_t end = uint64_t{run.first()} + run.count();
    placed += run.count();
    // A reply that places blocks over and over is no plan.
    if (run.node() >= static_cast<uint32_t>(reply.nodes_size()) || end > plan.asked ||
        placed > kCopiesMax * plan.asked) {
      return std::nullopt;
    }
    // Runs of one node follow one another; its blocks stay in order and occur once.
    std::vector<size_t>& share = shares[run.node()];
    const auto index = [&](size_t block) { return first_block + block - plan.first; };
    auto block = std::partition_point(plan.blocks.begin(), plan.blocks.end(),
                                      [&](size_t b) { return index(b) < run.first(); });
    for (; block != plan.blocks.end() && index(*block) < end; ++block) {
      if (share.empty() || share.back() < *block) {
        share.push_back(*block);
      }
    }
  }
  return shares;
}

void PlacedPut::Place(const Plan& plan, const proto::PlanReply& reply, const Shares& shares) {
  std::vector<bool> placed(blocks_.size(), false);
  std::vector<const NodeLink*> links;
  for (const auto& [node, blocks] : shares) {
    for (const size_t block : blocks) {
      placed[block] = true;
    }
    const proto::NodeRef& ref = reply.nodes(static_cast<int>(node));
    if (const NodeLink* maybe_link = core_.directory.Find(ref.node(), ref.incarnation())) {
      links.push_back(maybe_link);
    }
  }
  for (const size_t block : plan.blocks) {
    // In no run: a form that will do is held somewhere.
    blocks_[block].stored = blocks_[block].stored || !placed[block];
    const auto& counter =
        placed[block] ? core_.metrics.plan_blocks_sent : core_.metrics.plan_blocks_held;
    counter->Increment();
  }
  if (!request_.options.deadline && children_.empty()) {
    StopClock();
    StartClock(PredictedTotal(links));
  }
  Shares later;
  for (const auto& [node, blocks] : shares) {
    const proto::NodeRef& ref = reply.nodes(static_cast<int>(node));
    const bool connected = core_.directory.Find(ref.node(), ref.incarnation()) != nullptr;
    if (!connected && core_.maybe_cluster->introductions.Expects({ref.node(), ref.incarnation()})) {
      later.emplace(node, blocks);
    } else if (!blocks.empty()) {
      StartChild(reply, ref, blocks);
    }
  }
  if (!later.empty()) {
    Defer(reply, std::move(later));
  }
}

void PlacedPut::Defer(const proto::PlanReply& reply, Shares shares) {
  std::vector<Introductions::Node> nodes;
  for (const auto& [node, blocks] : shares) {
    const proto::NodeRef& ref = reply.nodes(static_cast<int>(node));
    nodes.push_back({ref.node(), ref.incarnation()});
  }
  const uint64_t id = ++last_deferred_;
  const uint64_t wait = core_.maybe_cluster->introductions.Wait(
      std::move(nodes), deadline(), [self = Self<PlacedPut>(), id] { self->OnDeferred(id); });
  deferred_.emplace(id, Deferred{reply, std::move(shares), wait});
}

void PlacedPut::OnDeferred(uint64_t id) {
  const Deferred deferred = std::move(deferred_.extract(id).mapped());
  for (const auto& [node, blocks] : deferred.shares) {
    StartChild(deferred.reply, deferred.reply.nodes(static_cast<int>(node)), blocks);
  }
  Settle();
}

void PlacedPut::StartChild(const proto::PlanReply& reply, const proto::NodeRef& node,
                           std::vector<size_t> blocks) {
  if (core_.directory.Find(node.node(), node.incarnation()) == nullptr) {
    Fail(blocks, absl::UnavailableError(absl::StrCat("node ", node.node(), " is not reachable")));
    return;
  }
  const size_t index = children_.size();
  PutOperation::Placement placement;
  placement.node = node.node();
  placement.incarnation = node.incarnation();
  placement.epoch = reply.epoch();
  for (const size_t block : blocks) {
    ++blocks_[block].puts;
    placement.positions.push_back(static_cast<uint32_t>(first_position_ + block));
  }
  placement.admitted = [self = Self<PlacedPut>(), index] {
    self->children_[index].admitted = true;
    self->Settle();
  };
  PutOperation::Request request{request_.ns,      request_.keys,       request_.view,
                                request_.options, request_.content_id, std::move(placement)};
  request.options.deadline =
      deadline() == kNever ? Duration::max() : deadline() - core_.executor.Now();
  Identity identity{.id = id(),
                    .kind = OperationKind::kPut,
                    .on_retired = [](uint64_t) {},
                    .counted = Counted::kNo};
  Child child;
  child.operation = std::make_shared<PutOperation>(
      core_, std::move(identity), std::move(request),
      [self = Self<PlacedPut>(), index] {
        self->children_[index].released = true;
        self->Settle();
      },
      [self = Self<PlacedPut>(), index](const PutResult& result) {
        self->OnChildEnded(index, result);
      });
  child.blocks = std::move(blocks);
  children_.push_back(std::move(child));
  const std::shared_ptr<PutOperation> operation = children_.back().operation;
  operation->Start();
}

void PlacedPut::OnChildEnded(size_t index, const PutResult& result) {
  // It and this hold each other until here; it is on the stack now.
  core_.executor.Post([gone = std::move(children_[index].operation)] {});
  children_[index].operation = nullptr;
  bytes_moved_ += result.bytes_moved;
  timings_.wire = std::max(timings_.wire, result.timings.wire);
  timings_.codec += result.timings.codec;
  std::vector<size_t> again;
  const std::vector<size_t> blocks = children_[index].blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks_[blocks[i]];
    const absl::Status& status = result.blocks[i];
    --block.puts;
    block.stored = block.stored || status.ok();
    block.refused = block.refused || absl::IsFailedPrecondition(status);
    const bool replan = block.refused && !block.stored && block.puts == 0 &&
                        block.plans < kPlansMax && !view_released_ && end_.ok();
    if (replan) {
      block.refused = false;
      again.push_back(blocks[i]);
    } else if (absl::IsFailedPrecondition(status)) {
      Fail({blocks[i]}, absl::UnavailableError("the node refuses the placement as too old"));
    } else if (!status.ok()) {
      Fail({blocks[i]}, status);
    }
  }
  if (!again.empty()) {
    core_.metrics.plans_renewed->Increment();
    AskPlan(std::move(again));
  }
  Settle();
}

void PlacedPut::Fail(const std::vector<size_t>& blocks, const absl::Status& why) {
  for (const size_t block : blocks) {
    // CANCELLED promises that nobody will ever see the block: every node must say so.
    absl::Status& failure = blocks_[block].failure;
    if (failure.ok() || absl::IsCancelled(failure)) {
      failure = why;
    }
  }
}

std::vector<std::shared_ptr<PutOperation>> PlacedPut::Running() const {
  std::vector<std::shared_ptr<PutOperation>> running;
  for (const Child& child : children_) {
    if (child.operation) {
      running.push_back(child.operation);
    }
  }
  return running;
}

void PlacedPut::OnLinkDraining(NodeLink& link, const absl::Status& why) {
  for (const std::shared_ptr<PutOperation>& child : Running()) {
    child->OnLinkDraining(link, why);
  }
}

void PlacedPut::OnLinkLost(NodeLink& link, const absl::Status& why) {
  for (const std::shared_ptr<PutOperation>& child : Running()) {
    child->OnLinkLost(link, why);
  }
}

void PlacedPut::Cancel() {
  end_ = absl::CancelledError("cancelled by the caller");
  std::map<uint64_t, Plan> plans = std::exchange(plans_, {});
  for (auto& [id, plan] : plans) {
    plan.asking->Cancel();
    Fail(plan.blocks, end_);
  }
  const std::map<uint64_t, Deferred> deferred = std::exchange(deferred_, {});
  for (const auto& [id, part] : deferred) {
    core_.maybe_cluster->introductions.Cancel(part.wait);
    for (const auto& [node, blocks] : part.shares) {
      Fail(blocks, end_);
    }
  }
  for (const std::shared_ptr<PutOperation>& child : Running()) {
    child->Cancel();
  }
  Settle();
}

void PlacedPut::OnExpired(OperationDeadline::Verdict) {
  // Plans and the puts to nodes have the same deadline, and tell their outcomes themselves.
  end_ = end_.ok() ? absl::DeadlineExceededError("the deadline passed") : end_;
}

bool PlacedPut::ViewNeeded() const {
  // Nothing is planned once more after the end.
  const auto needs = [this](const Child& child) {
    return !child.released || (end_.ok() && child.operation != nullptr && !child.admitted);
  };
  return !plans_.empty() || !deferred_.empty() ||
         std::any_of(children_.begin(), children_.end(), needs);
}

void PlacedPut::Settle() {
  if (!view_released_ && !ViewNeeded()) {
    view_released_ = true;
    if (Task released = std::move(released_); released) {
      released();
    }
  }
  const bool over = plans_.empty() && deferred_.empty() && Running().empty();
  if (over && !std::exchange(delivered_, true)) {
    Deliver();
  }
}

void PlacedPut::Deliver() {
  PutResult result;
  size_t ok = 0;
  const absl::Status* first_failure = nullptr;
  for (const Block& block : blocks_) {
    const absl::Status& status = block.stored ? absl::OkStatus() : block.failure;
    core_.metrics.BlockEnded(OperationKind::kPut, status);
    ok += status.ok() ? 1 : 0;
    if (first_failure == nullptr && !status.ok()) {
      first_failure = &block.failure;
    }
    result.blocks.push_back(status);
  }
  result.bytes_moved = bytes_moved_;
  result.timings = timings_;
  result.bytes_logical = ok * raw_bytes_per_block_;
  core_.metrics.logical_sent_bytes->Increment(static_cast<double>(result.bytes_logical));
  ResultLabel label = ResultLabel::kOk;
  if (first_failure != nullptr) {
    label = ok > 0 ? ResultLabel::kPartial : LabelOf(*first_failure);
  }
  Retire(label);
  stored_(std::move(result));
}

}  // namespace tokura
