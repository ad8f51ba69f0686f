#include "client-lib/src/acquire_operation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "client-lib/src/lease.h"
#include "client-lib/src/policy.h"
#include "proto/prefix_rule.h"

namespace tokura {
namespace {

// The lease of a reply; empty when there is none.
LeaseToken LeaseOf(const proto::AcquireReply& reply) {
  return reply.lease().size() == LeaseToken::kBytes
             ? LeaseToken::FromBytes(
                   std::as_bytes(std::span(reply.lease())).first<LeaseToken::kBytes>())
             : LeaseToken{};
}

// Add blocks to the runs, which they continue.
void AppendRun(uint32_t holder, uint32_t block, std::vector<Match::Run>* runs) {
  const bool continues = !runs->empty() && runs->back().holder == holder &&
                         runs->back().first + runs->back().count == block;
  if (continues) {
    ++runs->back().count;
  } else {
    runs->push_back({holder, block, 1});
  }
}

}  // namespace

AcquireOperation::AcquireOperation(CoreContext& core, Identity identity, Request request,
                                   ClientCore::LookupCallback done)
    : FanOut(core, std::move(identity)),
      request_(std::move(request)),
      done_(std::move(done)),
      pinned_(request_.match.blocks()) {}

void AcquireOperation::Start() {
  begun_ = core_.executor.Now();
  std::vector<Introductions::Node> expected = Expected();
  if (expected.empty()) {
    AskHolders();
    return;
  }
  wait_ = core_.maybe_cluster->introductions.Wait(std::move(expected), kNever,
                                                  [self = Self<AcquireOperation>()] {
                                                    self->wait_ = 0;
                                                    self->AskHolders();
                                                  });
}

std::vector<Introductions::Node> AcquireOperation::Expected() const {
  const Match& match = request_.match;
  std::vector<Introductions::Node> expected;
  for (size_t block = 0; core_.maybe_cluster != nullptr && block < match.blocks(); ++block) {
    if (ConnectedHolder(core_.directory, match, block) != nullptr) {
      continue;
    }
    const size_t before = expected.size();
    core_.maybe_cluster->introductions.AddExpectedHolders(match, block, &expected);
    if (expected.size() == before) {
      break;  // nothing behind it can be held
    }
  }
  return expected;
}

void AcquireOperation::AskHolders() {
  Divide();
  std::vector<Question> questions;
  for (Share& share : shares_) {
    NodeLink& link = *core_.directory.Find(share.holder.node, share.holder.incarnation);
    // What one request cannot carry is not held.
    share.blocks.resize(std::min(share.blocks.size(), KeysMax(link)));
    questions.push_back(MakeQuestion(share, link));
  }
  const Duration waited = core_.executor.Now() - begun_;
  Ask(net::Op::kAcquire, std::move(questions), core_.options.progress_timeout - waited);
}

void AcquireOperation::Divide() {
  const Match& match = request_.match;
  for (size_t block = 0; block < match.blocks(); ++block) {
    const Match::Holder* maybe_holder = ConnectedHolder(core_.directory, match, block);
    if (maybe_holder == nullptr) {
      return;
    }
    const auto same = [&](const Share& share) {
      return share.holder.node == maybe_holder->node &&
             share.holder.incarnation == maybe_holder->incarnation;
    };
    auto share = std::find_if(shares_.begin(), shares_.end(), same);
    if (share == shares_.end()) {
      shares_.push_back({{maybe_holder->node, maybe_holder->incarnation, {}}, {}});
      share = shares_.end() - 1;
    }
    share->blocks.push_back(block);
  }
}

FanOut::Question AcquireOperation::MakeQuestion(const Share& share, NodeLink& link) const {
  const Match& match = request_.match;
  auto body = std::make_unique<proto::AcquireRequest>();
  body->set_fingerprint(match.fingerprint.bytes.data(), Fingerprint::kBytes);
  const bool ids_known = match.content_ids.size() == match.keys.size();
  for (const size_t block : share.blocks) {
    body->mutable_keys()->append(reinterpret_cast<const char*>(match.keys[block].bytes.data()),
                                 BlockKey::kBytes);
    if (ids_known) {
      body->mutable_content_ids()->append(
          reinterpret_cast<const char*>(match.content_ids[block].bytes.data()), ContentId::kBytes);
    }
  }
  *body->mutable_accept() = MakeAccept(AcceptanceOf(core_, request_.ns->spec(), request_.accept));
  return {&link, std::move(body)};
}

void AcquireOperation::OnAnswer(size_t question, const absl::Status& status,
                                std::span<const std::byte> body) {
  Share& share = shares_[question];
  proto::AcquireReply reply;
  if (!status.ok()) {
    failure_ = status;
    return;
  }
  failure_ = absl::OkStatus();
  if (!reply.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return;
  }
  share.holder.lease = LeaseOf(reply);
  const std::optional<std::vector<HeldBlock>> blocks =
      ReadHeldBlocks(reply.held(), share.blocks.size());
  if (!blocks || share.holder.lease.empty()) {
    return;  // Held releases a lease that holds nothing
  }
  for (size_t i = 0; i < blocks->size(); ++i) {
    pinned_[share.blocks[i]] = Pinned{(*blocks)[i], question};
  }
}

void AcquireOperation::OnLateAnswer(size_t question, const absl::Status& status,
                                    std::span<const std::byte> body) {
  proto::AcquireReply reply;
  if (status.ok() && reply.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    Match::Holder holder = shares_[question].holder;
    holder.lease = LeaseOf(reply);
    ReleaseLease(core_, holder);
  }
}

size_t AcquireOperation::UsableBlocks() const {
  std::vector<uint32_t> masks;
  for (const std::optional<Pinned>& pinned : pinned_) {
    if (!pinned) {
      break;
    }
    masks.push_back(pinned->block.group_mask);
  }
  return PrefixRule(request_.ns->spec()).UsablePrefix(masks);
}

Match AcquireOperation::Held(size_t blocks) {
  Match held;
  held.fingerprint = request_.ns->fingerprint();
  held.block_tokens = request_.ns->spec().block_tokens;
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> holder_of_share(shares_.size(), kNone);
  for (size_t block = 0; block < blocks; ++block) {
    const Pinned& pinned = *pinned_[block];
    size_t& holder = holder_of_share[pinned.share];
    if (holder == kNone) {
      holder = held.holders.size();
      held.holders.push_back(shares_[pinned.share].holder);
    }
    AppendBlock(request_.match.keys[block], pinned.block, &held);
    AppendRun(static_cast<uint32_t>(holder), static_cast<uint32_t>(block), &held.runs);
  }
  for (size_t share = 0; share < shares_.size(); ++share) {
    if (holder_of_share[share] == kNone) {
      ReleaseLease(core_, shares_[share].holder);
    }
  }
  // Where else the blocks lie is worth keeping: no lease covers it.
  std::map<uint32_t, uint32_t> holder_of_alternate;
  for (const Match::Run& run : request_.match.alternates) {
    if (run.holder >= request_.match.holders.size() || run.first >= blocks) {
      continue;
    }
    const auto [known, added] =
        holder_of_alternate.try_emplace(run.holder, static_cast<uint32_t>(held.holders.size()));
    if (added) {
      const Match::Holder& holder = request_.match.holders[run.holder];
      held.holders.push_back({holder.node, holder.incarnation, {}});
    }
    held.alternates.push_back(
        {known->second, run.first, std::min(run.count, static_cast<uint32_t>(blocks) - run.first)});
  }
  return held;
}

void AcquireOperation::Finish(const absl::Status& cause) {
  if (wait_ != 0) {
    core_.maybe_cluster->introductions.Cancel(std::exchange(wait_, 0));
  }
  if (cause.code() == absl::StatusCode::kCancelled) {
    Held(0);
    Retire(ResultLabel::kCancelled);
    done_(cause);
    return;
  }
  Match held = Held(UsableBlocks());
  const ResultLabel miss = failure_.ok() ? ResultLabel::kMiss : LabelOf(failure_);
  Retire(held.blocks() > 0 ? ResultLabel::kOk : miss);
  done_(std::move(held));
}

}  // namespace tokura
