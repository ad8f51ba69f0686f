#include "client-lib/src/fan_out.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura {
class FanOut::ReplyCall final : public net::Call {
 public:
  ReplyCall(std::shared_ptr<FanOut> operation, size_t question)
      : operation_(std::move(operation)), question_(question) {}
  // None of these requests has payloads: dropping one rejects it.
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    operation_->OnReply(question_, status, body);
  }

 private:
  std::shared_ptr<FanOut> operation_;  // owners: the core and the calls under way
  const size_t question_;
};

void FanOut::Ask(net::Op op, std::vector<Question> questions, Duration total) {
  op_ = op;
  asked_ = true;
  StartClock(total);
  for (Question& question : questions) {
    Query query;
    query.maybe_link = question.link;
    query.body = std::move(question.body);
    queries_.push_back(std::move(query));
  }
  open_ = queries_.size();
  if (open_ == 0) {
    core_.executor.Post([self = Self<FanOut>()] {
      if (!self->ended_) {
        self->End(absl::OkStatus());
      }
    });
    return;
  }
  for (size_t i = 0; i < queries_.size(); ++i) {
    queries_[i].maybe_link->WhenCapacity([self = Self<FanOut>(), i] { self->Send(i); });
  }
}

void FanOut::Send(size_t question) {
  Query& query = queries_[question];
  if (ended_ || query.state != Query::State::kQueued) {
    return;
  }
  query.state = Query::State::kSent;
  query.sent = core_.executor.Now();
  query.request_id = query.maybe_link->Send(op_, *query.body, After(deadline(), LateAnswersFor()),
                                            std::make_shared<ReplyCall>(Self<FanOut>(), question));
}

void FanOut::OnReply(size_t question, const absl::Status& status, std::span<const std::byte> body) {
  if (ended_) {
    OnLateAnswer(question, status, body);
    return;
  }
  if (queries_[question].state != Query::State::kSent) {
    return;
  }
  const bool late = core_.executor.Now() >= deadline();
  if (!late || !absl::IsDeadlineExceeded(status)) {
    // However late it is, a node that answers is not to blame.
    Answer(question, status, body);
  }
  if (late) {
    ExpireNow();
    return;
  }
  FinishIfOver();
}

void FanOut::Answer(size_t question, const absl::Status& status, std::span<const std::byte> body) {
  Query& query = queries_[question];
  query.state = Query::State::kAnswered;
  query.maybe_link = nullptr;
  --open_;
  OnAnswer(question, status, body);
}

void FanOut::OnLinkDraining(NodeLink& link, const absl::Status& why) {
  AnswerFor(link, Which::kQueued, why);
}

void FanOut::OnLinkLost(NodeLink& link, const absl::Status& why) {
  AnswerFor(link, Which::kAll, why);
}

void FanOut::AnswerFor(const NodeLink& link, Which which, const absl::Status& why) {
  if (!asked_ || ended_) {
    return;
  }
  for (size_t i = 0; i < queries_.size(); ++i) {
    const bool affected = which == Which::kAll || queries_[i].state == Query::State::kQueued;
    if (queries_[i].maybe_link == &link && affected) {
      Answer(i, absl::UnavailableError(why.message()), {});
    }
  }
  FinishIfOver();
}

TimePoint FanOut::StallsAt() const {
  TimePoint first = kNever;
  for (const Query& query : queries_) {
    if (query.state == Query::State::kSent) {
      first = std::min(first, StallOf(query.sent));
    }
  }
  return first;
}

void FanOut::Cancel() {
  if (!ended_) {
    End(absl::CancelledError("cancelled by the caller"));
  }
}

void FanOut::OnExpired(OperationDeadline::Verdict) {
  std::vector<NodeLink*> blamed;
  for (const Query& query : queries_) {
    if (query.state == Query::State::kSent && Blames(*query.maybe_link, query.sent)) {
      blamed.push_back(query.maybe_link);
    }
  }
  const absl::Status cause = absl::DeadlineExceededError("no answer within the deadline");
  End(cause);
  for (NodeLink* link : blamed) {
    link->Drop(cause);
  }
}

void FanOut::End(const absl::Status& cause) {
  for (size_t i = 0; i < queries_.size(); ++i) {
    Query& query = queries_[i];
    if (query.state == Query::State::kAnswered) {
      continue;
    }
    if (query.state == Query::State::kSent && LateAnswersFor() == Duration::zero()) {
      query.maybe_link->Cancel(query.request_id);
    }
    Answer(i, cause.ok() ? absl::CancelledError("others answered") : cause, {});
  }
  ended_ = true;
  Finish(cause);
}

void FanOut::FinishIfOver() {
  if (open_ == 0 || Satisfied()) {
    End(absl::OkStatus());
  }
}

std::string ConcatKeys(std::span<const BlockKey> keys) {
  std::string bytes;
  bytes.reserve(keys.size() * BlockKey::kBytes);
  for (const BlockKey& key : keys) {
    bytes.append(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
  }
  return bytes;
}

size_t KeysMax(const NodeLink& link) {
  const size_t limit = link.limits().keys_max();
  return limit == 0 ? kKeysPerMessageMax : std::min(limit, kKeysPerMessageMax);
}

}  // namespace tokura
