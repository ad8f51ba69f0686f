#include "client-lib/src/lookup_operation.h"

#include <algorithm>
#include <utility>

#include "client-lib/src/acceptance.h"
#include "client-lib/src/lease.h"
#include "kernels/codec.h"

namespace tokura {
namespace {

// Keys that fit one message beside everything else in it.
constexpr size_t kKeysPerMessageMax = net::kMessageBytesMax / 2 / BlockKey::kBytes;

size_t KeysMax(const NodeLink& link) {
  const size_t limit = link.limits().keys_max();
  return limit == 0 ? kKeysPerMessageMax : std::min(limit, kKeysPerMessageMax);
}

constexpr size_t kCodecNameBytesMax = 64;

// A match repeats the codec's name for every block: a long one would multiply.
bool Known(const proto::Form& form) {
  return form.codec().size() <= kCodecNameBytesMax && kernels::FindCodec(form.codec()).ok();
}

bool Consistent(const proto::LookupReply& reply, size_t asked) {
  const size_t blocks = reply.prefix_blocks();
  if (blocks > asked || static_cast<size_t>(reply.form_of_block_size()) < blocks ||
      reply.content_ids().size() < blocks * ContentId::kBytes ||
      !std::all_of(reply.forms().begin(), reply.forms().end(), Known)) {
    return false;
  }
  return std::all_of(
      reply.form_of_block().begin(), reply.form_of_block().end(),
      [&](uint32_t form) { return form < static_cast<uint32_t>(reply.forms_size()); });
}

}  // namespace

Match MatchFromReply(const Namespace& ns, std::span<const BlockKey> keys,
                     const proto::LookupReply& reply) {
  Match match;
  match.fingerprint = ns.fingerprint();
  match.block_tokens = ns.spec().block_tokens;
  if (!Consistent(reply, keys.size())) {
    return match;
  }
  std::vector<uint32_t> masks;
  for (size_t i = 0; i < reply.prefix_blocks(); ++i) {
    masks.push_back(
        reply.forms(static_cast<int>(reply.form_of_block(static_cast<int>(i)))).group_mask());
  }
  const size_t usable = UsablePrefix(ns.spec(), masks);
  const auto ids = std::as_bytes(std::span(reply.content_ids()));
  for (size_t i = 0; i < usable; ++i) {
    const proto::Form& form =
        reply.forms(static_cast<int>(reply.form_of_block(static_cast<int>(i))));
    match.keys.push_back(keys[i]);
    match.content_ids.push_back(
        ContentId::FromBytes(ids.subspan(i * ContentId::kBytes).first<ContentId::kBytes>()));
    match.stored_bytes.push_back(form.stored_bytes());
    match.codecs.push_back(form.codec());
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
  if (!request_.keys.empty()) {
    for (NodeLink* link : core_.directory.ForLookup(request_.keys.front())) {
      auto body = std::make_unique<proto::LookupRequest>();
      const Fingerprint& fingerprint = request_.ns->fingerprint();
      body->set_fingerprint(fingerprint.bytes.data(), Fingerprint::kBytes);
      const std::span<const BlockKey> keys(request_.keys);
      body->set_keys(ConcatKeys(keys.first(std::min(keys.size(), KeysMax(*link)))));
      *body->mutable_accept() = MakeAccept(core_.options, request_.options.accept);
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

AcquireOperation::AcquireOperation(CoreContext& core, Identity identity, Request request,
                                   ClientCore::LookupCallback done)
    : FanOut(core, std::move(identity)), request_(std::move(request)), done_(std::move(done)) {
  held_.fingerprint = request_.ns->fingerprint();
  held_.block_tokens = request_.ns->spec().block_tokens;
}

void AcquireOperation::Start() {
  std::vector<Question> questions;
  const Match& match = request_.match;
  const Match::Holder* maybe_holder = match.HolderOf(0);
  NodeLink* maybe_link = maybe_holder == nullptr
                             ? nullptr
                             : core_.directory.Find(maybe_holder->node, maybe_holder->incarnation);
  if (maybe_link != nullptr) {
    auto body = std::make_unique<proto::AcquireRequest>();
    body->set_fingerprint(match.fingerprint.bytes.data(), Fingerprint::kBytes);
    const size_t count = std::min(match.keys.size(), KeysMax(*maybe_link));
    body->set_keys(ConcatKeys(std::span(match.keys).first(count)));
    for (size_t i = 0; i < count && match.content_ids.size() == match.keys.size(); ++i) {
      body->mutable_content_ids()->append(
          reinterpret_cast<const char*>(match.content_ids[i].bytes.data()), ContentId::kBytes);
    }
    *body->mutable_accept() = MakeAccept(core_.options, request_.accept);
    questions.push_back({maybe_link, std::move(body)});
  }
  Ask(net::Op::kAcquire, std::move(questions), core_.options.progress_timeout);
}

void AcquireOperation::OnAnswer(size_t, const absl::Status& status,
                                std::span<const std::byte> body) {
  answer_ = status;
  std::optional<Match> held = status.ok() ? HeldFrom(body) : std::nullopt;
  if (!held) {
    return;
  }
  if (held->blocks() == 0) {
    ReleaseLease(core_, *held);
    return;
  }
  held_ = std::move(*held);
}

void AcquireOperation::OnLateAnswer(const absl::Status& status, std::span<const std::byte> body) {
  if (const std::optional<Match> held = status.ok() ? HeldFrom(body) : std::nullopt) {
    ReleaseLease(core_, *held);
  }
}

std::optional<Match> AcquireOperation::HeldFrom(std::span<const std::byte> body) const {
  proto::AcquireReply reply;
  if (!reply.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
      reply.lease().size() != LeaseToken::kBytes) {
    return std::nullopt;
  }
  Match held = MatchFromReply(*request_.ns, request_.match.keys, reply.held());
  const Match::Holder* maybe_holder = request_.match.HolderOf(0);
  if (maybe_holder == nullptr) {
    return std::nullopt;
  }
  held.holders = {*maybe_holder};
  held.holders.front().lease =
      LeaseToken::FromBytes(std::as_bytes(std::span(reply.lease())).first<LeaseToken::kBytes>());
  held.runs = {{0, 0, static_cast<uint32_t>(held.blocks())}};
  return held;
}

void AcquireOperation::Finish(const absl::Status& cause) {
  if (cause.code() == absl::StatusCode::kCancelled) {
    Retire(ResultLabel::kCancelled);
    done_(cause);
    return;
  }
  const ResultLabel miss = answer_.ok() ? ResultLabel::kMiss : LabelOf(answer_);
  Retire(held_.blocks() > 0 ? ResultLabel::kOk : miss);
  done_(std::move(held_));
}

}  // namespace tokura
