#include "client-lib/src/lookup_operation.h"

#include <algorithm>
#include <utility>

#include "client-lib/src/acceptance.h"
#include "client-lib/src/held_blocks.h"
#include "client-lib/src/policy.h"
#include "proto/prefix_rule.h"

namespace tokura {

Match MatchFromReply(const Namespace& ns, std::span<const BlockKey> keys,
                     const proto::LookupReply& reply) {
  Match match;
  match.fingerprint = ns.fingerprint();
  match.block_tokens = ns.spec().block_tokens;
  const std::optional<std::vector<HeldBlock>> blocks = ReadHeldBlocks(reply, keys.size());
  if (!blocks) {
    return match;
  }
  std::vector<uint32_t> masks;
  for (const HeldBlock& block : *blocks) {
    masks.push_back(block.group_mask);
  }
  const size_t usable = PrefixRule(ns.spec()).UsablePrefix(masks);
  for (size_t i = 0; i < usable; ++i) {
    AppendBlock(keys[i], (*blocks)[i], &match);
  }
  return match;
}

LookupOperation::LookupOperation(CoreContext& core, Identity identity, Request request,
                                 ClientCore::LookupCallback done)
    : FanOut(core, std::move(identity)), request_(std::move(request)), done_(std::move(done)) {
  best_.fingerprint = request_.ns->fingerprint();
  best_.block_tokens = request_.ns->spec().block_tokens;
}

void LookupOperation::Start() {
  std::vector<Question> questions;
  const Acceptance acceptance = AcceptanceOf(core_, request_.ns->spec(), request_.options.accept);
  if (!request_.keys.empty()) {
    for (NodeLink* link : core_.directory.ForLookup(request_.keys.front())) {
      auto body = std::make_unique<proto::LookupRequest>();
      const Fingerprint& fingerprint = request_.ns->fingerprint();
      body->set_fingerprint(fingerprint.bytes.data(), Fingerprint::kBytes);
      const std::span<const BlockKey> keys(request_.keys);
      body->set_keys(ConcatKeys(keys.first(std::min(keys.size(), KeysMax(*link)))));
      *body->mutable_accept() = MakeAccept(acceptance);
      body->set_touch(request_.options.touch);
      asked_.push_back({link->node(), link->incarnation()});
      questions.push_back({link, std::move(body)});
    }
  }
  Ask(net::Op::kLookup, std::move(questions),
      request_.options.deadline.value_or(core_.options.progress_timeout));
}

void LookupOperation::OnAnswer(size_t question, const absl::Status& status,
                               std::span<const std::byte> body) {
  proto::LookupReply reply;
  if (!status.ok() || !reply.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return;
  }
  answered_ = true;
  Match match = MatchFromReply(*request_.ns, request_.keys, reply);
  if (match.blocks() > best_.blocks()) {
    match.holders = {{asked_[question].node, asked_[question].incarnation, {}}};
    match.runs = {{0, 0, static_cast<uint32_t>(match.blocks())}};
    best_ = std::move(match);
  }
}

void LookupOperation::Finish(const absl::Status& cause) {
  if (cause.code() == absl::StatusCode::kCancelled) {
    Retire(ResultLabel::kCancelled);
    done_(cause);
    return;
  }
  ResultLabel label = best_.blocks() > 0 ? ResultLabel::kOk : ResultLabel::kMiss;
  if (!answered_ && !request_.keys.empty()) {
    label = cause.ok() ? ResultLabel::kUnavailable : ResultLabel::kDeadline;
  }
  Retire(label);
  done_(std::move(best_));
}

}  // namespace tokura
