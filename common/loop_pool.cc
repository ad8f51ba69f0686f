#include "common/loop_pool.h"

#include <deque>
#include <utility>

#include "common/check.h"
#include "common/cpus.h"
#include "common/time.h"

namespace tokura {
namespace {

// A loop that is away from the network for longer than this in one step gives its jobs away.
constexpr Duration kStepMax = std::chrono::microseconds(200);
// After that so many jobs go to the threads without a try. Few, because on a busy machine a step
// may only have lost the processor.
constexpr int kJobsGivenAway = 8;
// Steps up to this long, such as the check and copy of a layer of exact values, are over before
// another thread would have begun. While they are, a loop takes several jobs.
constexpr Duration kQuickStep = std::chrono::microseconds(20);
constexpr size_t kQuickJobsMax = 8;
// A loop makes steps for about this long, and no more of them than that, before it looks after the
// network again.
constexpr Duration kTurn = std::chrono::microseconds(20);
constexpr int kStepsPerTurn = 16;

// Thread-safe.
class LoopPool final : public WorkerPool {
 public:
  LoopPool(const std::vector<Executor*>& loops, std::unique_ptr<WorkerPool> threads,
           Processors processors)
      : threads_(std::move(threads)), processors_(processors) {
    for (Executor* executor : loops) {
      loops_.emplace_back().executor = executor;
    }
  }

  void Add(std::unique_ptr<Job> job) override {
    TOKURA_CHECK(job != nullptr);
    const bool elsewhere = processors_ == Processors::kPlenty && job->load() == Job::Load::kStream;
    if (Loop* maybe_loop = Current(); maybe_loop != nullptr && !elsewhere && Takes(*maybe_loop)) {
      maybe_loop->jobs.push_back(std::move(job));
      Schedule(*maybe_loop);
      return;
    }
    threads_->Add(std::move(job));
  }

 private:
  // Touched on its executor's thread only, but for the pointer, which never changes.
  struct Loop {
    Executor* executor = nullptr;
    std::deque<std::unique_ptr<Job>> jobs;
    bool scheduled = false;
    bool quick = false;  // the last step was
    int give_away = 0;   // jobs that go to the threads at once
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
    return loop.jobs.empty() || (loop.quick && loop.jobs.size() < kQuickJobsMax);
  }

  void Schedule(Loop& loop) {
    if (!std::exchange(loop.scheduled, true)) {
      loop.executor->Post([this, &loop] {
        loop.scheduled = false;
        Turn(loop);
      });
    }
  }

  void Turn(Loop& loop) {
    const TimePoint start = loop.executor->Now();
    TimePoint now = start;
    for (int i = 0; i < kStepsPerTurn && !loop.jobs.empty() && now - start < kTurn; ++i) {
      // Taken out: a step may add jobs.
      std::unique_ptr<Job> job = std::move(loop.jobs.front());
      loop.jobs.pop_front();
      const Job::Progress progress = job->Step();
      const TimePoint before = std::exchange(now, loop.executor->Now());
      loop.quick = now - before <= kQuickStep;
      if (progress == Job::Progress::kMore) {
        loop.jobs.push_front(std::move(job));
      }
      if (now - before > kStepMax) {
        GiveAway(loop);
      }
    }
    if (!loop.jobs.empty()) {
      Schedule(loop);
    }
  }

  void GiveAway(Loop& loop) {
    if (loop.jobs.empty()) {
      return;
    }
    loop.give_away = kJobsGivenAway;
    for (std::unique_ptr<Job>& job : std::exchange(loop.jobs, {})) {
      threads_->Add(std::move(job));
    }
  }

  const std::unique_ptr<WorkerPool> threads_;
  const Processors processors_;
  std::deque<Loop> loops_;  // as many as at the start
};

}  // namespace

std::unique_ptr<WorkerPool> MakeLoopPool(const std::vector<Executor*>& loops,
                                         std::unique_ptr<WorkerPool> threads,
                                         Processors processors) {
  TOKURA_CHECK(threads != nullptr);
  return std::make_unique<LoopPool>(loops, std::move(threads), processors);
}

Processors ProcessorsFor(size_t loops) {
  return AllowedCpus().size() >= 2 * loops + 2 ? Processors::kPlenty : Processors::kScarce;
}

}  // namespace tokura
