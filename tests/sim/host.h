#pragma once

// A simulated process: event loops, clock, randomness and a worker pool, all driven by one
// SimScheduler. It can be paused and continued like SIGSTOP and SIGCONT do.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/executor.h"
#include "common/random.h"
#include "common/time.h"
#include "tests/sim/scheduler.h"

namespace tokura::sim {

class SimHost;

// One thread of a simulated process.
class SimLoop final : public Executor {
 public:
  TimePoint Now() const override;
  void Post(Task task) override;
  bool TryPost(Task task) override;
  TimerId RunAt(TimePoint when, Task task) override;
  void CancelTimer(TimerId id) override;
  bool IsCurrent() const override;

  // Call `task` at once, as this thread: how a test's own code enters it.
  void Enter(const std::function<void()>& task);
  // Run `task` on this thread at `when` of the scheduler's time, or when the host continues.
  void At(TimePoint when, Task task);
  SimHost& host() { return host_; }

 private:
  friend class SimHost;
  struct Timer {
    TimePoint when;  // of the host's clock
    Task task;
  };
  explicit SimLoop(SimHost& host) : host_(host) {}
  void RunPosted();
  void Arm(TimerId id, TimePoint when);
  void RunTimer(TimerId id);

  SimHost& host_;
  std::deque<Task> posted_;
  TimePoint last_post_;
  std::map<TimerId, Timer> timers_;
  TimerId last_timer_ = 0;
};

// Runs the steps of jobs as separate events with random pauses between them, so that anything can
// happen between two layers of a codec. Up to `threads` jobs are under way at once.
class SimWorkerPool final : public WorkerPool {
 public:
  void Add(std::unique_ptr<Job> job) override;
  // Hold every job where it is, between two steps: a descheduled thread.
  void Pause() { paused_ = true; }
  void Continue();
  bool busy() const { return running_ > 0; }
  // Jobs so far of that load.
  uint64_t added(Job::Load load) const { return load == Job::Load::kStream ? streams_ : singles_; }

 private:
  friend class SimHost;
  SimWorkerPool(SimHost& host, int threads) : host_(host), threads_(threads) {}
  void StartNext();
  void ScheduleStep(std::unique_ptr<Job> job);
  void Step(std::unique_ptr<Job> job);

  SimHost& host_;
  const int threads_;
  int running_ = 0;
  bool paused_ = false;
  uint64_t singles_ = 0;
  uint64_t streams_ = 0;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::deque<std::unique_ptr<Job>> held_;  // started, stopped between two steps by Pause
};

// Outlives every event that it made; in practice it lives as long as the scheduler runs.
class SimHost final : public Clock {
 public:
  struct Options {
    std::string name;
    std::string ip;  // its machine's address: processes that follow each other there share it
    int loops = 1;
    int pool_threads = 1;
    size_t posted_max = 4096;  // TryPost refuses beyond
    Duration post_delay_max = std::chrono::microseconds(5);
    Duration step_delay_max = std::chrono::microseconds(200);  // between two steps of a job
    Duration timer_lateness_max = std::chrono::microseconds(50);
    Duration clock_offset{0};  // of its monotonic clock
    int64_t clock_drift_ppm = 0;
  };
  SimHost(SimScheduler& scheduler, Options options);
  ~SimHost() override;

  TimePoint Now() const override;
  uint64_t WallMicros() const override;

  const std::string& name() const { return options_.name; }
  const std::string& ip() const { return options_.ip; }
  SimLoop& loop(size_t index = 0) { return *loops_[index]; }
  SimWorkerPool& pool() { return pool_; }
  SimRandom& random() { return random_; }
  SimScheduler& scheduler() { return scheduler_; }

  // SIGSTOP: nothing of this process runs until Continue; what came due meanwhile runs then, in
  // order.
  void Pause();
  void Continue();
  bool paused() const { return paused_; }

 private:
  friend class SimLoop;
  friend class SimWorkerPool;
  struct Deferred {
    const SimLoop* loop;  // null: the pool
    Task task;
  };

  // Run `task` in the context of `loop` (null: a pool thread) at `when`, unless paused.
  void Schedule(const SimLoop* loop, TimePoint when, Task task);
  void Run(const SimLoop* loop, Task task);
  // How late a timer due at `when` runs: the same for equal times, so that their order holds.
  Duration Lateness(TimePoint when) const;

  SimScheduler& scheduler_;
  const Options options_;
  SimRandom random_;
  const uint64_t lateness_seed_;
  const SimLoop* current_ = nullptr;
  bool paused_ = false;
  std::deque<Deferred> deferred_;
  std::vector<std::unique_ptr<SimLoop>> loops_;
  SimWorkerPool pool_;
};

}  // namespace tokura::sim
