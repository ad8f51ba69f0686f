#include "client-lib/src/operation.h"

#include <utility>

namespace tokura {

Operation::Operation(CoreContext& core, Identity identity)
    : core_(core),
      id_(identity.id),
      kind_(identity.kind),
      counted_(identity.counted),
      on_retired_(std::move(identity.on_retired)),
      started_(core.executor.Now()),
      clock_(started_, core.options.progress_timeout, core.options.progress_timeout) {
  if (counted()) {
    core_.metrics.OperationStarted();
  }
}

void Operation::StartClock(Duration total) {
  clock_ = OperationDeadline(core_.executor.Now(), total, core_.options.progress_timeout);
  Arm();
}

void Operation::StopClock() {
  core_.executor.CancelTimer(std::exchange(timer_, 0));
}

void Operation::Retire(ResultLabel result) {
  StopClock();
  if (counted()) {
    core_.metrics.OperationEnded(kind_, result, core_.executor.Now() - started_);
  }
  OnRetired on_retired = std::move(on_retired_);
  on_retired(id_);
}

void Operation::Hurry(Duration soon) {
  clock_.ShortenTo(After(core_.executor.Now(), soon));
  Rearm();
}

TimePoint Operation::StallOf(TimePoint moved) const {
  return After(core_.pauses.Counted(moved), core_.options.progress_timeout);
}

bool Operation::Blames(const NodeLink& link, TimePoint moved) const {
  const TimePoint now = core_.executor.Now();
  // The second clause convicts a dead node that only ever sees requests with short deadlines.
  return now >= StallOf(moved) || now >= StallOf(link.silent_since());
}

void Operation::Arm() {
  timer_due_ = clock_.NextCheck(core_.executor.Now(), StallsAt());
  timer_ = core_.executor.RunAt(timer_due_, [weak = weak_from_this()] {
    if (const std::shared_ptr<Operation> self = weak.lock()) {
      self->OnTimer();
    }
  });
}

void Operation::OnTimer() {
  timer_ = 0;
  const TimePoint now = core_.executor.Now();
  core_.pauses.OnTimer(timer_due_, now, core_.options.progress_timeout);
  const OperationDeadline::Verdict verdict = clock_.Check(now, StallsAt());
  if (verdict == OperationDeadline::Verdict::kGoOn) {
    Arm();
    return;
  }
  OnExpired(verdict);
}

void Operation::ExpireNow() {
  core_.pauses.OnTimer(deadline(), core_.executor.Now(), core_.options.progress_timeout);
  OnExpired(OperationDeadline::Verdict::kOver);
}

}  // namespace tokura
