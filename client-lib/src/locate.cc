#include "client-lib/src/locate.h"

#include <algorithm>
#include <utility>

#include "client-lib/src/coordinators.h"
#include "client-lib/src/fan_out.h"
#include "client-lib/src/held_blocks.h"
#include "client-lib/src/match_bytes.h"
#include "client-lib/src/policy.h"
#include "proto/prefix_rule.h"

namespace tokura {
namespace {

bool Plausible(const proto::LocateReply& reply, const proto::Run& run) {
  return run.node() < static_cast<uint32_t>(reply.nodes_size()) &&
         run.form_class() < static_cast<uint32_t>(reply.classes_size()) && run.count() > 0 &&
         uint64_t{run.first()} + run.count() <= reply.prefix_blocks();
}

// Runs in order that cover the prefix, alternates in order within it, one per block at most.
bool Consistent(const proto::LocateReply& reply, size_t asked) {
  if (reply.prefix_blocks() > asked || reply.nodes_size() > static_cast<int>(kMatchHoldersMax)) {
    return false;
  }
  uint32_t covered = 0;
  for (const proto::Run& run : reply.runs()) {
    if (!Plausible(reply, run) || run.first() != covered) {
      return false;
    }
    covered += run.count();
  }
  uint32_t first = 0;
  for (const proto::Run& run : reply.alternates()) {
    if (!Plausible(reply, run) || run.first() < first) {
      return false;
    }
    first = run.first() + run.count();
  }
  const bool names = std::all_of(
      reply.nodes().begin(), reply.nodes().end(),
      [](const proto::NodeRef& node) { return node.node().size() <= kMatchNameBytesMax; });
  return names && covered == reply.prefix_blocks();
}

// The runs within the first `blocks` blocks.
std::vector<Match::Run> RunsWithin(const google::protobuf::RepeatedPtrField<proto::Run>& runs,
                                   size_t blocks) {
  std::vector<Match::Run> out;
  for (const proto::Run& run : runs) {
    if (run.first() < blocks) {
      out.push_back({run.node(), run.first(),
                     std::min(run.count(), static_cast<uint32_t>(blocks) - run.first())});
    }
  }
  return out;
}

// What is known of each block, up to the first that this software cannot read.
std::vector<HeldBlock> BlocksOf(const proto::LocateReply& reply) {
  std::vector<HeldBlock> blocks;
  for (const proto::Run& run : reply.runs()) {
    const proto::FormClass& form = reply.classes(static_cast<int>(run.form_class()));
    if (!KnownCodec(form.codec())) {
      break;
    }
    blocks.insert(blocks.end(), run.count(),
                  {ContentId{}, run.stored_bytes() / run.count(), form.codec(), form.group_mask()});
  }
  return blocks;
}

}  // namespace

HedgedRequest::Question MakeLocate(LocateQuestion question, TimePoint deadline) {
  const auto body = [question = std::move(question)](const NodeLink& link) {
    auto request = std::make_unique<proto::LocateRequest>();
    const std::span<const BlockKey> keys(question.keys);
    request->set_keys(ConcatKeys(keys.first(std::min(keys.size(), KeysMax(link)))));
    *request->mutable_accept() = MakeAccept(question.acceptance);
    PrefixRule(question.ns->spec()).Write(*request->mutable_groups());
    request->set_touch(question.touch == LocateQuestion::Touch::kYes);
    for (const std::string& node : question.avoid) {
      request->add_avoid(node);
    }
    return request;
  };
  return {net::Op::kLocate, CoordinatorOp::kLocate, body, deadline};
}

std::optional<Match> MatchFromLocate(const Namespace& ns, std::span<const BlockKey> keys,
                                     std::span<const std::byte> body) {
  proto::LocateReply reply;
  if (!reply.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
      !Consistent(reply, keys.size())) {
    return std::nullopt;
  }
  const std::vector<HeldBlock> blocks = BlocksOf(reply);
  std::vector<uint32_t> masks;
  masks.reserve(blocks.size());
  for (const HeldBlock& block : blocks) {
    masks.push_back(block.group_mask);
  }
  const size_t usable = PrefixRule(ns.spec()).UsablePrefix(masks);
  Match match;
  match.fingerprint = ns.fingerprint();
  match.block_tokens = ns.spec().block_tokens;
  for (size_t i = 0; i < usable; ++i) {
    AppendBlock(keys[i], blocks[i], &match);
  }
  match.runs = RunsWithin(reply.runs(), usable);
  match.alternates = RunsWithin(reply.alternates(), usable);
  for (const proto::NodeRef& node : reply.nodes()) {
    match.holders.push_back({node.node(), node.incarnation(), {}});
  }
  return match;
}

LocateOperation::LocateOperation(CoreContext& core, Identity identity, Request request,
                                 ClientCore::LookupCallback done)
    : Operation(core, std::move(identity)), request_(std::move(request)), done_(std::move(done)) {}

void LocateOperation::Start() {
  StartClock(request_.options.deadline.value_or(core_.options.progress_timeout));
  if (request_.keys.empty()) {
    core_.executor.Post([self = Self<LocateOperation>()] {
      if (!self->ended_) {
        self->Finish(absl::OkStatus(), {});
      }
    });
    return;
  }
  LocateQuestion question{
      request_.ns,
      request_.keys,
      AcceptanceOf(core_, request_.ns->spec(), request_.options.accept),
      request_.options.touch ? LocateQuestion::Touch::kYes : LocateQuestion::Touch::kNo,
      {}};
  asking_ = core_.maybe_cluster->coordinators.Ask(
      MakeLocate(std::move(question), deadline()),
      [self = Self<LocateOperation>()](const absl::Status& status,
                                       std::span<const std::byte> body) {
        self->OnAnswer(status, body);
      });
}

void LocateOperation::OnAnswer(const absl::Status& status, std::span<const std::byte> body) {
  std::optional<Match> match =
      status.ok() ? MatchFromLocate(*request_.ns, request_.keys, body) : std::nullopt;
  const bool unreadable = status.ok() && !match;
  Finish(unreadable ? absl::InternalError("the coordinator's answer cannot be read") : status,
         std::move(match).value_or(Match{}));
}

void LocateOperation::Cancel() {
  if (!ended_) {
    Finish(absl::CancelledError("cancelled by the caller"), {});
  }
}

void LocateOperation::OnExpired(OperationDeadline::Verdict) {
  // The request ends by the same time, and knows whom to blame.
}

void LocateOperation::Finish(const absl::Status& status, Match match) {
  ended_ = true;
  if (asking_) {
    std::exchange(asking_, nullptr)->Cancel();
  }
  const ResultLabel found = match.blocks() > 0 ? ResultLabel::kOk : ResultLabel::kMiss;
  Retire(status.ok() ? found : LabelOf(status));
  if (absl::IsCancelled(status)) {
    done_(status);
    return;
  }
  // An empty match belongs to the namespace like any other: a cache failure is a miss.
  match.fingerprint = request_.ns->fingerprint();
  match.block_tokens = request_.ns->spec().block_tokens;
  done_(std::move(match));
}

}  // namespace tokura
