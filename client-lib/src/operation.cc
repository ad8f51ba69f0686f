#include "client-lib/src/operation.h"

#include <utility>

namespace tokura {

Operation::Operation(CoreContext& core, Identity identity)
    : core_(core),
      id_(identity.id),
      kind_(identity.kind),
      on_retired_(std::move(identity.on_retired)),
      started_(core.executor.Now()),
      clock_(started_, core.options.progress_timeout, core.options.progress_timeout) {
  core_.metrics.OperationStarted();
}

void Operation::StartClock(Duration total) {
  clock_ = OperationDeadline(core_.executor.Now(), total, core_.options.progress_timeout);
  Arm();
}

void Operation::StopClock() {
  core_.executor.CancelTimer(std::exchange(timer_, 0));
}

void Operation::Progress(Duration allowance) {
  clock_.Progress(core_.executor.Now(), allowance);
}

void Operation::Retire(ResultLabel result) {
  StopClock();
  core_.metrics.OperationEnded(kind_, result, core_.executor.Now() - started_);
  OnRetired on_retired = std::move(on_retired_);
  on_retired(id_);
}

void Operation::Hurry(Duration soon) {
  clock_.ShortenTo(core_.executor.Now() + soon);
  Rearm();
}

bool Operation::Blames(const NodeLink& link, TimePoint last_progress) const {
  const TimePoint now = core_.executor.Now();
  const Duration patience = core_.options.progress_timeout;
  // The second clause convicts a dead node that only ever sees requests with short deadlines.
  return now - last_progress >= patience || link.SilentFor(now) >= patience;
}

void Operation::Arm() {
  timer_ = core_.executor.RunAt(clock_.NextCheck(core_.executor.Now(), WaitingFor()),
                                [weak = weak_from_this()] {
                                  if (const std::shared_ptr<Operation> self = weak.lock()) {
                                    self->OnTimer();
                                  }
                                });
}

void Operation::OnTimer() {
  timer_ = 0;
  const OperationDeadline::Verdict verdict = clock_.Check(core_.executor.Now(), WaitingFor());
  if (verdict == OperationDeadline::Verdict::kGoOn) {
    Arm();
    return;
  }
  OnExpired(verdict);
}

}  // namespace tokura
