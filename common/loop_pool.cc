#include "common/loop_pool.h"

#include <utility>

#include "common/check.h"
#include "common/time.h"

namespace tokura {
namespace {

// A loop that is away from the network for longer than this in one step gives the job away. A layer
// of exact or lightly compressed values takes a few tens of microseconds.
constexpr Duration kStepMax = std::chrono::microseconds(200);
// After that so many jobs go to the threads without a try. Few, because on a busy machine a step
// may only have lost the processor.
constexpr int kJobsGivenAway = 8;

// Thread-safe.
class LoopPool final : public WorkerPool {
 public:
  LoopPool(const std::vector<Executor*>& loops, std::unique_ptr<WorkerPool> threads)
      : threads_(std::move(threads)) {
    loops_.reserve(loops.size());
    for (Executor* executor : loops) {
      loops_.push_back({executor});
    }
  }

  void Add(std::unique_ptr<Job> job) override {
    TOKURA_CHECK(job != nullptr);
    if (Loop* maybe_loop = Current(); maybe_loop != nullptr && Takes(*maybe_loop)) {
      maybe_loop->busy = true;
      Schedule(*maybe_loop, std::move(job));
      return;
    }
    threads_->Add(std::move(job));
  }

 private:
  // Touched on its executor's thread only, but for the pointer, which never changes.
  struct Loop {
    Executor* executor;
    bool busy = false;  // has a job
    int give_away = 0;  // jobs that go to the threads at once
  };

  Loop* Current() {
    for (Loop& loop : loops_) {
      if (loop.executor->IsCurrent()) {
        return &loop;
      }
    }
    return nullptr;
  }

  static bool Takes(Loop& loop) {
    if (loop.give_away > 0) {
      --loop.give_away;
      return false;
    }
    return !loop.busy;
  }

  void Schedule(Loop& loop, std::unique_ptr<Job> job) {
    loop.executor->Post(
        [this, &loop, job = std::move(job)]() mutable { StepOnce(loop, std::move(job)); });
  }

  void StepOnce(Loop& loop, std::unique_ptr<Job> job) {
    const TimePoint before = loop.executor->Now();
    if (job->Step() == Job::Progress::kDone) {
      loop.busy = false;
      return;
    }
    if (loop.executor->Now() - before <= kStepMax) {
      Schedule(loop, std::move(job));
      return;
    }
    loop.busy = false;
    loop.give_away = kJobsGivenAway;
    threads_->Add(std::move(job));
  }

  const std::unique_ptr<WorkerPool> threads_;
  std::vector<Loop> loops_;  // as many as at the start
};

}  // namespace

std::unique_ptr<WorkerPool> MakeLoopPool(const std::vector<Executor*>& loops,
                                         std::unique_ptr<WorkerPool> threads) {
  TOKURA_CHECK(threads != nullptr);
  return std::make_unique<LoopPool>(loops, std::move(threads));
}

}  // namespace tokura
