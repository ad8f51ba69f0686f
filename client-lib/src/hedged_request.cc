#include "client-lib/src/hedged_request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client-lib/src/coordinators.h"
#include "common/check.h"

namespace tokura {
namespace {
// Parts of the time after which another coordinator is asked.
constexpr int kHedges = 4;

absl::Status TooLate() {
  return absl::DeadlineExceededError("no coordinator answered in time");
}
}  // namespace

class HedgedRequest::ReplyCall final : public net::Call {
 public:
  ReplyCall(std::shared_ptr<HedgedRequest> request, size_t attempt)
      : request_(std::move(request)), attempt_(attempt) {}
  // Coordinators have no payloads: dropping one rejects it.
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    request_->OnReply(attempt_, status, body);
  }

 private:
  std::shared_ptr<HedgedRequest> request_;  // owners: the operation and the calls under way
  const size_t attempt_;
};

HedgedRequest::HedgedRequest(Coordinators& coordinators, Question question, Answer answer)
    : coordinators_(coordinators), question_(std::move(question)), answer_(std::move(answer)) {}

void HedgedRequest::Start() {
  const Coordinators::Environment& environment = coordinators_.environment();
  const TimePoint now = environment.executor.Now();
  end_ = std::min(question_.deadline, After(now, environment.options.progress_timeout));
  patience_ = std::max((end_ - now) / kHedges, Duration(1));
  if (AskNext()) {
    Arm();
    return;
  }
  environment.executor.Post([self = shared_from_this()] {
    if (!self->over_) {
      self->Finish(absl::UnavailableError(self->coordinators_.Trouble()), {});
    }
  });
}

bool HedgedRequest::AskNext() {
  std::vector<const NodeLink*> asked;
  for (const Attempt& attempt : attempts_) {
    asked.push_back(attempt.link);
  }
  NodeLink* const maybe_link = coordinators_.Next(asked);
  if (maybe_link == nullptr) {
    return false;
  }
  const size_t index = attempts_.size();
  attempts_.emplace_back().link = maybe_link;
  maybe_link->WhenCapacity([self = shared_from_this(), index] { self->Send(index); });
  return true;
}

void HedgedRequest::Send(size_t index) {
  Attempt& attempt = attempts_[index];
  if (over_ || attempt.state != Attempt::State::kQueued) {
    return;
  }
  attempt.state = Attempt::State::kSent;
  attempt.sent = coordinators_.environment().executor.Now();
  attempt.request_id = attempt.link->Send(question_.op, *question_.body(*attempt.link), end_,
                                          std::make_shared<ReplyCall>(shared_from_this(), index));
}

void HedgedRequest::OnReply(size_t index, const absl::Status& status,
                            std::span<const std::byte> body) {
  Attempt& attempt = attempts_[index];
  if (over_ || attempt.state != Attempt::State::kSent) {
    return;
  }
  if (absl::IsDeadlineExceeded(status) && coordinators_.environment().executor.Now() >= end_) {
    Expire();
    return;
  }
  if (!status.ok() && !absl::IsInvalidArgument(status)) {
    Fail(index, status);
    return;
  }
  attempt.state = Attempt::State::kOver;
  coordinators_.environment().metrics.CoordinatorAnswered(question_.label, status);
  if (status.ok()) {
    coordinators_.Prefer(*attempt.link);
  }
  Finish(status, body);
}

void HedgedRequest::OnLinkGone(const NodeLink& link, Which which, const absl::Status& why) {
  for (size_t i = 0; i < attempts_.size() && !over_; ++i) {
    const Attempt& attempt = attempts_[i];
    const bool affected = attempt.state == Attempt::State::kQueued ||
                          (attempt.state == Attempt::State::kSent && which == Which::kAll);
    if (attempt.link == &link && affected) {
      Fail(i, absl::UnavailableError(why.message()));
    }
  }
}

void HedgedRequest::Fail(size_t index, const absl::Status& why) {
  Attempt& attempt = attempts_[index];
  attempt.state = Attempt::State::kOver;
  coordinators_.environment().metrics.CoordinatorAnswered(question_.label, why);
  coordinators_.Avoid(*attempt.link);
  const bool others = std::any_of(attempts_.begin(), attempts_.end(), [](const Attempt& other) {
    return other.state != Attempt::State::kOver;
  });
  if (!AskNext() && !others) {
    Finish(why, {});
  }
}

void HedgedRequest::Arm() {
  Executor& executor = coordinators_.environment().executor;
  timer_due_ = std::min(end_, After(executor.Now(), patience_));
  timer_ = executor.RunAt(timer_due_, [weak = weak_from_this()] {
    if (const std::shared_ptr<HedgedRequest> self = weak.lock(); self && !self->over_) {
      self->OnTimer();
    }
  });
}

void HedgedRequest::OnTimer() {
  const Coordinators::Environment& environment = coordinators_.environment();
  timer_ = 0;
  const TimePoint now = environment.executor.Now();
  environment.pauses.OnTimer(timer_due_, now, environment.options.progress_timeout);
  if (now >= end_) {
    Expire();
    return;
  }
  AskNext();
  Arm();
}

HedgedRequest::Verdict HedgedRequest::Judge() const {
  const Coordinators::Environment& environment = coordinators_.environment();
  const TimePoint now = environment.executor.Now();
  const auto stalled = [&](TimePoint since) {
    return now >= After(environment.pauses.Counted(since), environment.options.progress_timeout);
  };
  Verdict verdict;
  for (const Attempt& attempt : attempts_) {
    if (attempt.state != Attempt::State::kSent) {
      continue;
    }
    if (verdict.maybe_first_silent == nullptr) {
      verdict.maybe_first_silent = attempt.link;
    }
    if (stalled(attempt.sent) || stalled(attempt.link->silent_since())) {
      verdict.blamed.push_back(attempt.link);
    }
  }
  return verdict;
}

void HedgedRequest::Punish(const Verdict& verdict) {
  // The others had less time; avoiding all of them would end where it began.
  if (verdict.maybe_first_silent != nullptr) {
    coordinators_.Avoid(*verdict.maybe_first_silent);
  }
  for (NodeLink* link : verdict.blamed) {
    link->Drop(TooLate());
  }
}

void HedgedRequest::Expire() {
  const Verdict verdict = Judge();
  const std::shared_ptr<HedgedRequest> self = shared_from_this();  // Finish may free the last owner
  Finish(TooLate(), {});
  Punish(verdict);
}

void HedgedRequest::GiveUp() {
  if (!over_) {
    const Verdict verdict = Judge();
    Abandon(TooLate());
    Punish(verdict);
  }
}

void HedgedRequest::Cancel() {
  if (!over_) {
    Abandon(absl::CancelledError("cancelled by the caller"));
  }
}

void HedgedRequest::Finish(const absl::Status& status, std::span<const std::byte> body) {
  Abandon(status.ok() ? absl::CancelledError("another coordinator answered") : status);
  Answer answer = std::move(answer_);
  answer(status, body);
}

void HedgedRequest::Abandon(const absl::Status& why) {
  TOKURA_CHECK(!over_);
  over_ = true;
  coordinators_.environment().executor.CancelTimer(std::exchange(timer_, 0));
  for (Attempt& attempt : attempts_) {
    if (attempt.state == Attempt::State::kSent) {
      coordinators_.environment().metrics.CoordinatorAnswered(question_.label, why);
      attempt.link->Cancel(attempt.request_id);
    }
    attempt.state = Attempt::State::kOver;
  }
}

}  // namespace tokura
