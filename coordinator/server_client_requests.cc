#include "coordinator/server_client_requests.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/transport.h"
#include "common/status_macros.h"
#include "proto/accept.h"
#include "proto/prefix_rule.h"

namespace tokura::coordinator {
namespace {

constexpr int kAvoidMax = 64;
// Room that a reply leaves for what surrounds its runs.
constexpr size_t kReplyBytesMax = net::kMessageBytesMax - 4096;

// There is nothing to say before the first state: who asks tries another coordinator.
absl::Status CheckState(const ServerContext& context) {
  return context.state.epoch() != 0
             ? absl::OkStatus()
             : absl::UnavailableError("this coordinator has no cluster state yet");
}

// Lists lives and classes of a reply, each once.
class LocateReplyBuilder {
 public:
  LocateReplyBuilder(const ServerContext& context, proto::LocateReply* reply)
      : context_(context), reply_(reply), node_index_(context.inventory->slots(), kNone) {}

  void Add(const IndexRun& run, proto::Run* out) {
    out->set_node(NodeIndex(run.node));
    out->set_first(run.first);
    out->set_count(run.count);
    out->set_form_class(ClassIndex(run.form_class));
    out->set_stored_bytes(run.stored_bytes);
    out->set_error_mean(run.error_mean);
    out->set_error_max(run.error_max);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t NodeIndex(NodeSlot slot) {
    uint32_t& index = node_index_[slot];
    if (index == kNone) {
      index = static_cast<uint32_t>(reply_->nodes_size());
      const NodeLife* life = context_.inventory->Find(slot);
      proto::NodeRef* node = reply_->add_nodes();
      node->set_node(life->node);
      node->set_incarnation(life->incarnation);
    }
    return index;
  }

  uint32_t ClassIndex(ClassId id) {
    const auto [it, added] =
        class_index_.emplace(id, static_cast<uint32_t>(reply_->classes_size()));
    if (added) {
      const FormClass& form_class = context_.index->Class(id);
      proto::FormClass* out = reply_->add_classes();
      out->set_codec(form_class.codec);
      out->set_group_mask(form_class.group_mask);
      out->set_shards(form_class.shards);
      out->set_fidelity(form_class.fidelity);
      out->set_proxy_error(form_class.proxy_error);
      out->set_tier(form_class.tier);
    }
    return it->second;
  }

  const ServerContext& context_;
  proto::LocateReply* reply_;
  std::vector<uint32_t> node_index_;  // by slot
  std::map<ClassId, uint32_t> class_index_;
};

// The standings of the lives, with those of `avoid` put last.
std::vector<NodeStanding> WithAvoided(ServerContext& context, const proto::LocateRequest& request) {
  std::vector<NodeStanding> standings = context.nodes.standings();
  for (const std::string& name : request.avoid()) {
    const NodeTable::Node* node = context.nodes.Find(name);
    if (node != nullptr && node->slot < standings.size() &&
        standings[node->slot].use == NodeStanding::Use::kUsable) {
      standings[node->slot].use = NodeStanding::Use::kLastResort;
    }
  }
  return standings;
}

absl::StatusOr<ReplyBody> Locate(ServerContext& context, const Caller& caller,
                                 std::span<const std::byte> body) {
  proto::LocateRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  TOKURA_ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                          ReadKeys(request.keys(), context.options.keys_max));
  TOKURA_ASSIGN_OR_RETURN(const AcceptRule accept, ReadAccept(request.accept()));
  if (request.avoid_size() > kAvoidMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("avoid has ", request.avoid_size(), " names, more than ", kAvoidMax));
  }
  LocateQuery query;
  TOKURA_ASSIGN_OR_RETURN(query.rule, PrefixRule::Read(request.groups()));
  TOKURA_RETURN_IF_ERROR(CheckState(context));
  std::vector<NodeStanding> avoiding;
  query.keys = keys;
  query.accept = &accept;
  query.nodes = context.nodes.standings();
  query.touch = request.touch() ? LocateQuery::Touch::kYes : LocateQuery::Touch::kNo;
  query.now = caller.now;
  if (request.avoid_size() > 0) {
    avoiding = WithAvoided(context, request);
    query.nodes = avoiding;
  }
  LocateResult found;
  context.index->Locate(query, found);
  context.metrics.LookedUp(found.prefix_blocks, keys.size() - found.prefix_blocks);

  auto reply = std::make_unique<proto::LocateReply>();
  reply->set_epoch(context.state.epoch());
  reply->set_prefix_blocks(found.prefix_blocks);
  LocateReplyBuilder builder(context, reply.get());
  for (const IndexRun& run : found.runs) {
    builder.Add(run, reply->add_runs());
    context.nodes.Promise(run.node, run.stored_bytes);
  }
  for (const IndexRun& run : found.alternates) {
    builder.Add(run, reply->add_alternates());
  }
  if (reply->ByteSizeLong() > kReplyBytesMax) {
    reply->clear_alternates();  // A chain in shreds: its runs alone always fit.
  }
  return reply;
}

// ---- PLAN ----

// Never 0, whatever a holder of another version says.
uint32_t SegmentBlocks(const ServerContext& context) {
  return std::max<uint32_t>(1, context.state.segment_blocks());
}

// Decides where the blocks of one plan go.
class Planner {
 public:
  Planner(const ServerContext& context, const proto::PlanRequest& request,
          std::span<const BlockKey> keys, TimePoint now, proto::PlanReply* reply)
      : context_(context), request_(request), keys_(keys), now_(now), reply_(reply) {}

  // UNAVAILABLE: a block needs a node, and no node takes any.
  absl::Status Plan() {
    HeldQuery query;
    query.keys = keys_.subspan(request_.first_block());
    query.codec = request_.codec();
    query.group_mask = request_.group_mask();
    query.nodes = context_.nodes.standings();
    context_.index->Held(query, holders_);
    const uint32_t segment_blocks = SegmentBlocks(context_);
    for (size_t root = 0; root < keys_.size(); root += segment_blocks) {
      const size_t end = std::min<size_t>(root + segment_blocks, keys_.size());
      if (end > request_.first_block()) {
        TOKURA_RETURN_IF_ERROR(PlanSegment(root, end));
      }
    }
    return absl::OkStatus();
  }

  uint64_t held() const { return held_; }
  uint64_t placed() const { return placed_; }

 private:
  static constexpr size_t kReplicasMax = BlockHolders::kMax;

  // How many nodes get the blocks of the segment that begins with `root`.
  size_t Copies(const BlockKey& root) const {
    const CoordinatorOptions& options = context_.options;
    const bool hot = options.hot_lookups > 0 && options.replicas > 1 &&
                     context_.index->Heat(root, now_) >= static_cast<float>(options.hot_lookups);
    return hot ? std::min<size_t>(options.replicas, kReplicasMax) : 1;
  }

  absl::Status PlanSegment(size_t root, size_t end) {
    uint32_t chosen[kReplicasMax];
    const size_t copies = Copies(keys_[root]);
    const size_t choices = context_.placement.Choose(keys_[root], std::span(chosen, copies));
    for (size_t i = std::max<size_t>(root, request_.first_block()); i < end; ++i) {
      const BlockHolders& holders = holders_[i - request_.first_block()];
      if (holders.count == 0 && choices == 0) {
        return absl::UnavailableError("no node takes blocks now");
      }
      PlanBlock(static_cast<uint32_t>(i), holders, std::span<const uint32_t>(chosen, choices),
                copies);
    }
    return absl::OkStatus();
  }

  // The block goes to the chosen nodes that lack it, best first, until `copies` have it.
  void PlanBlock(uint32_t block, const BlockHolders& holders, std::span<const uint32_t> chosen,
                 size_t copies) {
    size_t have = holders.count;
    for (const uint32_t member : chosen) {
      if (have >= copies) {
        break;
      }
      if (!Holds(holders, member)) {
        AddToRun(member, block);
        ++have;
      }
    }
    ++(have > holders.count ? placed_ : held_);
  }

  bool Holds(const BlockHolders& holders, uint32_t member) const {
    const std::string& name = context_.state.members(static_cast<int>(member)).node();
    for (const NodeSlot slot : holders.span()) {
      const auto* holder = context_.nodes.At(slot);
      if (holder != nullptr && holder->first == name) {
        return true;
      }
    }
    return false;
  }

  void AddToRun(uint32_t member, uint32_t block) {
    auto run = open_.find(member);
    if (run != open_.end()) {
      proto::PlanRun* last = reply_->mutable_runs(run->second);
      if (last->first() + last->count() == block) {
        last->set_count(last->count() + 1);
        return;
      }
    }
    open_[member] = reply_->runs_size();
    proto::PlanRun* added = reply_->add_runs();
    added->set_node(NodeIndex(member));
    added->set_first(block);
    added->set_count(1);
  }

  uint32_t NodeIndex(uint32_t member) {
    const auto [it, added] =
        node_index_.emplace(member, static_cast<uint32_t>(reply_->nodes_size()));
    if (added) {
      const proto::Member& from = context_.state.members(static_cast<int>(member));
      proto::NodeRef* node = reply_->add_nodes();
      node->set_node(from.node());
      node->set_incarnation(from.incarnation());
    }
    return it->second;
  }

  const ServerContext& context_;
  const proto::PlanRequest& request_;
  const std::span<const BlockKey> keys_;
  const TimePoint now_;
  proto::PlanReply* reply_;
  std::vector<BlockHolders> holders_;        // from first_block on
  std::map<uint32_t, int> open_;             // the last run of a member, by its index
  std::map<uint32_t, uint32_t> node_index_;  // by member
  uint64_t held_ = 0;
  uint64_t placed_ = 0;
};

absl::StatusOr<ReplyBody> Plan(ServerContext& context, const Caller& caller,
                               std::span<const std::byte> body) {
  proto::PlanRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  TOKURA_ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                          ReadKeys(request.keys(), context.options.keys_max));
  if (request.first_block() >= keys.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_block is ", request.first_block(), " of ", keys.size(), " keys"));
  }
  TOKURA_RETURN_IF_ERROR(CheckState(context));
  const uint32_t segment_blocks = SegmentBlocks(context);
  if (request.first_position() % segment_blocks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("first_position is ", request.first_position(),
                                                   ", not a multiple of segment_blocks (",
                                                   segment_blocks, ")"));
  }
  auto reply = std::make_unique<proto::PlanReply>();
  reply->set_epoch(context.state.epoch());
  Planner planner(context, request, keys, caller.now, reply.get());
  if (absl::Status planned = planner.Plan(); !planned.ok()) {
    context.metrics.Planned(PlanResult::kUnplaced, keys.size() - request.first_block());
    return planned;
  }
  context.metrics.Planned(PlanResult::kHeld, planner.held());
  context.metrics.Planned(PlanResult::kPlaced, planner.placed());
  return reply;
}

// ---- NODES ----

absl::StatusOr<ReplyBody> Nodes(ServerContext& context, const Caller& caller,
                                std::span<const std::byte> body) {
  proto::NodesRequest request;
  TOKURA_RETURN_IF_ERROR(ParseRequest(body, &request));
  TOKURA_RETURN_IF_ERROR(CheckState(context));
  auto reply = std::make_unique<proto::NodesReply>();
  reply->set_coordinator(context.options.name);
  reply->set_epoch(context.state.epoch());
  for (const proto::Member& member : context.state.members()) {
    proto::NodeRow* row = reply->add_rows();
    *row->mutable_member() = member;
    const NodeTable::Node* node = context.nodes.Find(member.node());
    const NodeLife* life = context.inventory->Find(member.node());
    if (node == nullptr || life == nullptr || life->incarnation != member.incarnation()) {
      continue;
    }
    row->set_used_bytes(node->used_bytes);
    row->set_inflight_bytes(node->inflight_bytes);
    row->set_blocks(context.inventory->Blocks(life->slot));
    row->set_report_age_us(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(caller.now - node->last_heard)
            .count()));
    row->set_complete(life->complete);
  }
  return reply;
}

}  // namespace

absl::StatusOr<ReplyBody> AnswerClient(ServerContext& context, const Caller& caller, net::Op op,
                                       std::span<const std::byte> body) {
  switch (op) {
    case net::Op::kLocate:
      return Locate(context, caller, body);
    case net::Op::kPlan:
      return Plan(context, caller, body);
    case net::Op::kNodes:
      return Nodes(context, caller, body);
    default:
      return absl::UnimplementedError(
          absl::StrCat("op ", net::OpName(op), " is not served by a coordinator"));
  }
}

}  // namespace tokura::coordinator
