#include "tests/sim/host.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tokura::sim {
namespace {

// Unix time at which simulations begin, in µs.
constexpr uint64_t kWallStart = uint64_t{1'700'000'000} * 1'000'000;

}  // namespace

TimePoint SimLoop::Now() const {
  return host_.Now();
}

bool SimLoop::IsCurrent() const {
  return host_.current_ == this;
}

void SimLoop::At(TimePoint when, Task task) {
  host_.Schedule(this, when, std::move(task));
}

void SimLoop::Enter(const std::function<void()>& task) {
  const SimLoop* outer = std::exchange(host_.current_, this);
  task();
  host_.current_ = outer;
}

void SimLoop::Post(Task task) {
  posted_.push_back(std::move(task));
  // Every post has its own event, and each event runs the oldest post: the order holds whatever the
  // delays are.
  const Duration delay = host_.random_.Between(Duration{0}, host_.options_.post_delay_max);
  last_post_ = std::max(last_post_, host_.scheduler_.Now() + delay);
  At(last_post_, [this] { RunPosted(); });
}

bool SimLoop::TryPost(Task task) {
  if (posted_.size() >= host_.options_.posted_max) {
    return false;
  }
  Post(std::move(task));
  return true;
}

void SimLoop::RunPosted() {
  Task task = std::move(posted_.front());
  posted_.pop_front();
  task();
}

TimerId SimLoop::RunAt(TimePoint when, Task task) {
  const TimerId id = ++last_timer_;
  if (when != kNever) {
    timers_.emplace(id, Timer{when, std::move(task)});
    Arm(id, when);
  }
  return id;
}

void SimLoop::Arm(TimerId id, TimePoint when) {
  const Duration left = std::max(when - Now(), Duration{0});
  At(host_.scheduler_.Now() + left + host_.Lateness(when), [this, id] { RunTimer(id); });
}

void SimLoop::CancelTimer(TimerId id) {
  const auto it = timers_.find(id);
  if (it != timers_.end()) {
    // Destroyed last: the task's destructor may make or cancel timers.
    const Timer forgotten = std::move(it->second);
    timers_.erase(it);
  }
}

void SimLoop::RunTimer(TimerId id) {
  const auto it = timers_.find(id);
  if (it == timers_.end()) {
    return;
  }
  if (Now() < it->second.when) {
    Arm(id, it->second.when);  // This host's clock is slower than the scheduler's.
    return;
  }
  Task task = std::move(it->second.task);
  timers_.erase(it);
  task();
}

void SimWorkerPool::Add(std::unique_ptr<Job> job) {
  ++(job->load() == Job::Load::kStream ? streams_ : singles_);
  waiting_.push_back(std::move(job));
  StartNext();
}

void SimWorkerPool::StartNext() {
  if (running_ < threads_ && !waiting_.empty()) {
    ++running_;
    std::unique_ptr<Job> job = std::move(waiting_.front());
    waiting_.pop_front();
    ScheduleStep(std::move(job));
  }
}

void SimWorkerPool::ScheduleStep(std::unique_ptr<Job> job) {
  const Duration delay = host_.random_.Between(Duration{0}, host_.options_.step_delay_max);
  host_.Schedule(nullptr, host_.scheduler_.Now() + delay,
                 [this, job = std::move(job)]() mutable { Step(std::move(job)); });
}

void SimWorkerPool::Step(std::unique_ptr<Job> job) {
  if (paused_) {
    held_.push_back(std::move(job));
    return;
  }
  if (job->Step() == Job::Progress::kMore) {
    ScheduleStep(std::move(job));
    return;
  }
  job.reset();
  --running_;
  StartNext();
}

void SimWorkerPool::Continue() {
  paused_ = false;
  for (std::unique_ptr<Job>& job : std::exchange(held_, {})) {
    ScheduleStep(std::move(job));
  }
}

SimHost::SimHost(SimScheduler& scheduler, Options options)
    : scheduler_(scheduler),
      options_(std::move(options)),
      random_(scheduler.random().Draw()),
      lateness_seed_(random_.Draw()),
      pool_(*this, options_.pool_threads) {
  for (int i = 0; i < options_.loops; ++i) {
    loops_.push_back(std::unique_ptr<SimLoop>(new SimLoop(*this)));
  }
}

SimHost::~SimHost() = default;

TimePoint SimHost::Now() const {
  const Duration global = scheduler_.Now().time_since_epoch();
  return TimePoint{global + global / 1'000'000 * options_.clock_drift_ppm + options_.clock_offset};
}

uint64_t SimHost::WallMicros() const {
  const auto since_start =
      std::chrono::duration_cast<std::chrono::microseconds>(scheduler_.Now().time_since_epoch());
  return kWallStart + static_cast<uint64_t>(since_start.count());
}

Duration SimHost::Lateness(TimePoint when) const {
  SimRandom draw(lateness_seed_ ^ static_cast<uint64_t>(when.time_since_epoch().count()));
  return draw.Between(Duration{0}, options_.timer_lateness_max);
}

void SimHost::Schedule(const SimLoop* loop, TimePoint when, Task task) {
  scheduler_.At(when, [this, loop, task = std::move(task)]() mutable {
    if (paused_) {
      deferred_.push_back({loop, std::move(task)});
    } else {
      Run(loop, std::move(task));
    }
  });
}

void SimHost::Run(const SimLoop* loop, Task task) {
  current_ = loop;
  task();
  current_ = nullptr;
}

void SimHost::Pause() {
  TOKURA_CHECK(!paused_);
  paused_ = true;
  scheduler_.Record("pause");
}

void SimHost::Continue() {
  TOKURA_CHECK(paused_);
  paused_ = false;
  scheduler_.Record("continue");
  for (Deferred& deferred : std::exchange(deferred_, {})) {
    Schedule(deferred.loop, scheduler_.Now(), std::move(deferred.task));
  }
}

}  // namespace tokura::sim
