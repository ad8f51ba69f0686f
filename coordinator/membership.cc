#include "coordinator/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tokura::coordinator {
namespace {

constexpr size_t kInstanceBytes = 16;

absl::Status CheckText(const char* field, const std::string& text) {
  if (text.empty() || text.size() > Membership::kTextBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, " has ", text.size(), " bytes; it must have 1 to ", Membership::kTextBytesMax));
  }
  return absl::OkStatus();
}

// A higher one is a broken peer's, and would leave none to go on to.
absl::Status CheckNumber(const char* field, uint64_t number, uint64_t max) {
  if (number > max) {
    return absl::InvalidArgumentError(absl::StrCat(field, " ", number, " is above ", max));
  }
  return absl::OkStatus();
}

absl::Status CheckRegister(const proto::RegisterRequest& request) {
  TOKURA_RETURN_IF_ERROR(CheckText("node", request.node()));
  TOKURA_RETURN_IF_ERROR(CheckText("address", request.address()));
  if (request.incarnation() == 0) {
    return absl::InvalidArgumentError("incarnation is 0");
  }
  if (request.instance().size() != kInstanceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("instance has ", request.instance().size(),
                                                   " bytes instead of ", kInstanceBytes));
  }
  if (request.admin().size() > Membership::kTextBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "admin has ", request.admin().size(), " bytes; it may have ", Membership::kTextBytesMax));
  }
  if (request.capacity_bytes() == 0) {
    return absl::InvalidArgumentError("capacity_bytes is 0");
  }
  return absl::OkStatus();
}

absl::Status Superseded(const std::string& node, uint64_t incarnation, uint64_t known) {
  return absl::FailedPreconditionError(absl::StrCat("node ", node, " has incarnation ", known,
                                                    " now; this process has ", incarnation,
                                                    " and must stop serving"));
}

}  // namespace

Membership::Membership(Options options, PlantedBugs bugs, TimePoint start)
    : options_(std::move(options)),
      bugs_(bugs),
      forming_until_(start + options_.forming),
      last_tick_(start) {}

void Membership::Restore(const Metadata& kept, TimePoint now) {
  for (const auto& [name, incarnation] : kept.incarnations) {
    Node& node = nodes_[name];
    if (incarnation > node.incarnation) {
      if (node.state != State::kGone) {
        Remove(node);
      }
      node = Node();
      node.incarnation = incarnation;
    }
  }
  NameEpoch(kept.epoch, now);
}

void Membership::SetPolicy(Policy policy) {
  policy_ = std::move(policy);
  policy_changed_ = true;
  policy_revision_ = ++revision_;
}

absl::StatusOr<uint64_t> Membership::Register(const proto::RegisterRequest& request,
                                              TimePoint now) {
  TOKURA_RETURN_IF_ERROR(CheckRegister(request));
  TOKURA_RETURN_IF_ERROR(CheckEpoch(request.highest_epoch()));
  const auto known = nodes_.find(request.node());
  const Node* maybe_known = known == nodes_.end() ? nullptr : &known->second;
  TOKURA_ASSIGN_OR_RETURN(const uint64_t incarnation, Grant(maybe_known, request));
  TOKURA_RETURN_IF_ERROR(MakeRoom(maybe_known));
  NameEpoch(request.highest_epoch(), now);
  if (named_epoch_ == 0) {
    forming_until_ = TimePoint::min();
  }
  Admit(nodes_[request.node()], request, incarnation, now);
  return incarnation;
}

absl::StatusOr<uint64_t> Membership::Grant(const Node* maybe_known,
                                           const proto::RegisterRequest& request) const {
  const uint64_t own = request.incarnation();
  const uint64_t last = maybe_known == nullptr ? 0 : maybe_known->incarnation;
  const uint64_t max = request.starting() ? kClaimMax : kToldMax;
  TOKURA_RETURN_IF_ERROR(CheckNumber("incarnation", own, std::max(max, last)));
  if (maybe_known == nullptr) {
    return own;
  }
  if (maybe_known->instance == request.instance()) {
    return std::max(own, last);  // The same process: its answer was lost, or it comes back.
  }
  if (request.starting()) {
    return std::max(own, last + 1);
  }
  // Admitted by a holder before this one, of which at most the numbers are known.
  const bool known_by_number_only = maybe_known->instance.empty();
  if (own > last || (own == last && known_by_number_only) || bugs_.accept_lower_incarnation) {
    return own;
  }
  return Superseded(request.node(), own, last);
}

absl::Status Membership::CheckEpoch(uint64_t epoch) const {
  return CheckNumber("highest_epoch", epoch, std::max(kToldMax, published_.epoch()));
}

absl::Status Membership::MakeRoom(const Node* maybe_known) {
  if (members_ >= kMembersMax && (maybe_known == nullptr || maybe_known->state == State::kGone)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the cluster has ", members_, " members, and may not have more"));
  }
  if (maybe_known != nullptr || nodes_.size() < kNamesMax) {
    return absl::OkStatus();
  }
  auto longest_gone = nodes_.end();
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
    if (it->second.state == State::kGone &&
        (longest_gone == nodes_.end() || it->second.last_heard < longest_gone->second.last_heard)) {
      longest_gone = it;
    }
  }
  TOKURA_CHECK(longest_gone != nodes_.end());  // there are fewer members than names
  nodes_.erase(longest_gone);
  return absl::OkStatus();
}

void Membership::Admit(Node& node, const proto::RegisterRequest& request, uint64_t incarnation,
                       TimePoint now) {
  const bool same_life = node.incarnation == incarnation && node.instance == request.instance();
  const std::string before = MemberOf(request.node(), node).SerializeAsString();
  const Duration age =
      request.age_us() > static_cast<uint64_t>(options_.join_ramp / std::chrono::microseconds(1))
          ? options_.join_ramp
          : std::chrono::microseconds(request.age_us());
  if (same_life) {
    node.joined = std::min(node.joined, now - age);
  } else {
    node.left = false;
    node.refuse_below_epoch = 0;
    node.joined = now - age;
  }
  node.incarnation = incarnation;
  node.instance = request.instance();
  node.address = request.address();
  node.admin = request.admin();
  node.capacity_bytes = request.capacity_bytes();
  node.last_heard = now;
  const bool joins = node.state == State::kGone;
  SetState(node, node.left ? State::kLeaving : State::kUp);
  SetShare(node, now);
  if (joins || MemberOf(request.node(), node).SerializeAsString() != before) {
    ++revision_;
    Log(LogLevel::kInfo, "coordinator", joins ? "node_joined" : "node_changed",
        {{"node", request.node()},
         {"incarnation", incarnation},
         {"address", node.address},
         {"share_permille", node.share_permille}});
  }
}

absl::StatusOr<uint64_t> Membership::Report(const std::string& name,
                                            const proto::ReportRequest& request, TimePoint now) {
  TOKURA_RETURN_IF_ERROR(CheckEpoch(request.highest_epoch()));
  const auto it = nodes_.find(name);
  if (it != nodes_.end() && request.incarnation() < it->second.incarnation &&
      !bugs_.accept_lower_incarnation) {
    return Superseded(name, request.incarnation(), it->second.incarnation);
  }
  if (it == nodes_.end() || it->second.state == State::kGone ||
      request.incarnation() != it->second.incarnation) {
    return absl::NotFoundError(absl::StrCat("node ", name, " is no member under incarnation ",
                                            request.incarnation(), ": register first"));
  }
  NameEpoch(request.highest_epoch(), now);
  Node& node = it->second;
  node.last_heard = now;
  if (request.leaving() && node.state != State::kLeaving) {
    node.left = true;
    SetState(node, State::kLeaving);
    SetShare(node, now);
    Log(LogLevel::kInfo, "coordinator", "node_leaves", {{"node", name}});
  } else if (node.state == State::kSuspect) {
    SetState(node, State::kUp);
    Log(LogLevel::kInfo, "coordinator", "node_returns", {{"node", name}});
  }
  return node.refuse_below_epoch;
}

void Membership::ConnectionLost(const std::string& name, uint64_t incarnation) {
  const auto it = nodes_.find(name);
  if (it != nodes_.end() && it->second.incarnation == incarnation &&
      it->second.state == State::kLeaving) {
    Remove(it->second);
    Log(LogLevel::kInfo, "coordinator", "node_left", {{"node", name}});
  }
}

void Membership::NameEpoch(uint64_t epoch, TimePoint now) {
  if (bugs_.restart_epoch_at_one || !CheckEpoch(epoch).ok()) {
    return;
  }
  named_epoch_ = std::max(named_epoch_, epoch);
  if (epoch > published_.epoch() && !waited_for_earlier_life_) {
    // Once: a peer that names ever higher epochs must not stop the membership.
    waited_for_earlier_life_ = true;
    forming_until_ = std::max(forming_until_, now + options_.forming);
    Log(LogLevel::kInfo, "coordinator", "cluster_forms_again", {{"above_epoch", epoch}});
  }
}

void Membership::Tick(TimePoint now) {
  const Duration gap = now - last_tick_;
  const Duration missed = gap > 2 * tick_interval() ? gap - tick_interval() : Duration(0);
  last_tick_ = now;
  for (auto& [name, node] : nodes_) {
    if (node.state == State::kGone) {
      continue;
    }
    node.last_heard = std::min(node.last_heard + missed, now);
    Judge(name, node, now);
  }
}

void Membership::Judge(const std::string& name, Node& node, TimePoint now) {
  const Duration silent = now - node.last_heard;
  if (silent >= options_.remove_after) {
    Remove(node);
    Log(LogLevel::kWarn, "coordinator", "node_removed",
        {{"node", name}, {"incarnation", node.incarnation}});
    return;
  }
  if (silent >= options_.suspect_after && node.state == State::kUp) {
    SetState(node, State::kSuspect);
    Log(LogLevel::kWarn, "coordinator", "node_suspected",
        {{"node", name}, {"incarnation", node.incarnation}});
  }
  SetShare(node, now);
}

Duration Membership::tick_interval() const {
  return std::clamp<Duration>(options_.suspect_after / 4, std::chrono::milliseconds(5),
                              std::chrono::milliseconds(250));
}

std::optional<Membership::Draft> Membership::NextDraft(TimePoint now) const {
  const bool named = named_epoch_ > published_.epoch();
  const bool behind = published_.epoch() == 0 || (named && now >= named_from_);
  if (Forming(now) || (revision_ == published_revision_ && !behind)) {
    return std::nullopt;
  }
  Draft draft;
  draft.revision = revision_;
  draft.named_from = named ? now + kNamedApart : named_from_;
  const uint64_t epoch = std::max(named_epoch_, published_.epoch()) + 1;
  draft.state.set_epoch(epoch);
  draft.state.set_segment_blocks(options_.segment_blocks);
  draft.state.set_holder(options_.holder);
  draft.metadata.epoch = epoch;
  draft.state.set_policy_version(NextPolicyVersion(epoch));
  if (policy_) {
    draft.state.mutable_rules()->Assign(policy_->rules.begin(), policy_->rules.end());
    draft.metadata.policy = policy_->text;
  }
  for (const auto& [name, node] : nodes_) {
    draft.metadata.incarnations.emplace(name, node.incarnation);
    if (node.state != State::kGone) {
      *draft.state.add_members() = MemberOf(name, node);
    }
  }
  return draft;
}

uint64_t Membership::NextPolicyVersion(uint64_t epoch) const {
  return policy_changed_ ? std::max({epoch, options_.life, policy_version_ + 1}) : policy_version_;
}

void Membership::Publish(const Draft& draft) {
  TOKURA_CHECK(draft.state.epoch() > published_.epoch());
  published_ = draft.state;
  published_revision_ = draft.revision;
  named_from_ = draft.named_from;
  policy_version_ = published_.policy_version();
  policy_changed_ = policy_changed_ && draft.revision < policy_revision_;
  for (const proto::Member& member : published_.members()) {
    const auto it = nodes_.find(member.node());
    if (member.state() == proto::Member::LEAVING && it != nodes_.end() &&
        it->second.state == State::kLeaving && it->second.incarnation == member.incarnation() &&
        it->second.refuse_below_epoch == 0) {
      it->second.refuse_below_epoch = published_.epoch();
    }
  }
}

void Membership::Remove(Node& node) {
  SetState(node, State::kGone);
  node.refuse_below_epoch = 0;
}

void Membership::SetState(Node& node, State state) {
  if (node.state == state) {
    return;
  }
  members_ += state != State::kGone ? 1 : 0;
  members_ -= node.state != State::kGone ? 1 : 0;
  node.state = state;
  ++revision_;
}

void Membership::SetShare(Node& node, TimePoint now) {
  uint32_t share = 0;
  if (node.state != State::kLeaving) {
    const Duration step =
        std::max<Duration>(options_.join_ramp / (kRampSteps - 1), std::chrono::nanoseconds(1));
    const auto steps = static_cast<uint64_t>((now - node.joined) / step);
    share =
        options_.join_ramp <= Duration(0)
            ? 1000
            : static_cast<uint32_t>(std::min<uint64_t>(steps + 1, kRampSteps)) * 1000 / kRampSteps;
  }
  if (share != node.share_permille) {
    node.share_permille = share;
    ++revision_;
  }
}

proto::Member Membership::MemberOf(const std::string& name, const Node& node) const {
  proto::Member member;
  member.set_node(name);
  member.set_incarnation(node.incarnation);
  member.set_address(node.address);
  member.set_admin(node.admin);
  member.set_capacity_bytes(node.capacity_bytes);
  member.set_share_permille(node.share_permille);
  member.set_state(node.state == State::kUp        ? proto::Member::UP
                   : node.state == State::kSuspect ? proto::Member::SUSPECT
                                                   : proto::Member::LEAVING);
  return member;
}

}  // namespace tokura::coordinator
