#include "client-lib/src/relocation.h"

#include <utility>

#include "client-lib/src/coordinators.h"
#include "common/check.h"

namespace tokura {

void Relocation::Ask(const CoreContext& core, Question question, Task done) {
  TOKURA_CHECK(state_ == State::kIdle && core.maybe_cluster != nullptr);
  state_ = State::kAsking;
  core.metrics.relocations->Increment();
  LocateQuestion locate{question.ns,
                        question.keys,
                        question.acceptance,
                        LocateQuestion::Touch::kNo,
                        {avoid_.begin(), avoid_.end()}};
  // `done` keeps the get, and with it this, alive.
  asking_ = core.maybe_cluster->coordinators.Ask(
      MakeLocate(std::move(locate), question.deadline),
      [this, ns = std::move(question.ns), keys = std::move(question.keys), done = std::move(done)](
          const absl::Status& status, std::span<const std::byte> body) mutable {
        state_ = State::kDone;
        asking_.reset();
        if (status.ok()) {
          found_ = MatchFromLocate(*ns, keys, body).value_or(Match{});
        }
        done();
      });
}

void Relocation::Cancel() {
  state_ = State::kDone;
  if (asking_) {
    std::exchange(asking_, nullptr)->Cancel();
  }
}

void Relocation::GiveUp() {
  state_ = State::kDone;
  if (asking_) {
    std::exchange(asking_, nullptr)->GiveUp();
  }
}

}  // namespace tokura
