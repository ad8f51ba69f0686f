#include "client-lib/src/suspects.h"

#include <memory>
#include <utility>

#include "client-lib/src/deadline.h"
#include "proto/tokura.pb.h"

namespace tokura {
namespace {

SuspectResult ResultOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return SuspectResult::kRemoved;
    case absl::StatusCode::kFailedPrecondition:
      return SuspectResult::kSound;
    case absl::StatusCode::kNotFound:
      return SuspectResult::kGone;
    default:
      return SuspectResult::kUnanswered;
  }
}

}  // namespace

class Suspects::CheckCall final : public net::Call {
 public:
  CheckCall(Suspects& suspects, NodeLink& link, NodeLife life)
      : suspects_(suspects), link_(link), life_(std::move(life)) {}
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    suspects_.OnAnswer(link_, life_, status, body);
  }

 private:
  Suspects& suspects_;
  NodeLink& link_;  // lasts as long as a call of it
  const NodeLife life_;
};

void Suspects::Report(NodeLink& link, const Fingerprint& fingerprint, const BlockKey& key) {
  NodeLife life(link.node(), link.incarnation());
  const Block block(fingerprint, key);
  const auto found = queues_.find(life);
  if (found != queues_.end() &&
      (found->second.asked.count(block) != 0 || found->second.waiting.count(block) != 0)) {
    return;
  }
  if (!link.usable() || blocks_ >= kBlocksMax) {
    metrics_.SuspectEnded(SuspectResult::kUnanswered);
    return;
  }
  Queue& queue = found == queues_.end() ? queues_[life] : found->second;
  queue.waiting.insert(block);
  ++blocks_;
  if (queue.asked.empty()) {
    Ask(link, life, queue);
  }
}

void Suspects::Ask(NodeLink& link, const NodeLife& life, Queue& queue) {
  proto::RemoveRequest body;
  const Fingerprint fingerprint = queue.waiting.begin()->first;  // one request, one namespace
  body.set_fingerprint(fingerprint.bytes.data(), Fingerprint::kBytes);
  const size_t most = link.limits().blocks_max() == 0 ? kBlocksMax : link.limits().blocks_max();
  while (!queue.waiting.empty() && queue.waiting.begin()->first == fingerprint &&
         queue.asked.size() < most) {
    const auto block = queue.asked.insert(queue.waiting.extract(queue.waiting.begin())).position;
    body.mutable_suspects()->append(reinterpret_cast<const char*>(block->second.bytes.data()),
                                    BlockKey::kBytes);
  }
  link.Send(net::Op::kRemove, body, After(executor_.Now(), patience_),
            std::make_shared<CheckCall>(*this, link, life));
}

void Suspects::OnAnswer(NodeLink& link, const NodeLife& life, const absl::Status& status,
                        std::span<const std::byte> body) {
  const auto found = queues_.find(life);
  Queue& queue = found->second;
  proto::RemoveReply reply;
  const bool answered = status.ok() &&
                        reply.ParseFromArray(body.data(), static_cast<int>(body.size())) &&
                        reply.statuses().size() == queue.asked.size();
  for (size_t i = 0; i < queue.asked.size(); ++i) {
    const auto code = answered ? static_cast<absl::StatusCode>(reply.statuses()[i])
                               : absl::StatusCode::kUnavailable;
    metrics_.SuspectEnded(ResultOf(code));
  }
  blocks_ -= queue.asked.size();
  queue.asked.clear();
  if (!queue.waiting.empty() && link.usable()) {
    Ask(link, life, queue);
    return;
  }
  for (size_t i = 0; i < queue.waiting.size(); ++i) {
    metrics_.SuspectEnded(SuspectResult::kUnanswered);
  }
  blocks_ -= queue.waiting.size();
  queues_.erase(found);
}

}  // namespace tokura
