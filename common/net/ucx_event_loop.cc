#include "common/net/ucx_event_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace tokura::net {
namespace {

// One round runs no more than this many, so that a flood of tasks cannot starve the network.
constexpr size_t kTasksPerRound = 256;
constexpr size_t kTimersPerRound = 256;
constexpr Duration kIdleWaitMax = std::chrono::seconds(1);
constexpr Duration kBusyWaitMax = std::chrono::milliseconds(10);

absl::Status SystemError(const char* what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

TimePoint After(TimePoint now, Duration wait) {
  return wait >= kNever - now ? kNever : now + wait;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxEventLoop>> UcxEventLoop::Create(Options options,
                                                                   LoopSource& source) {
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    return SystemError("eventfd");
  }
  return std::unique_ptr<UcxEventLoop>(new UcxEventLoop(options, source, wake_fd));
}

UcxEventLoop::~UcxEventLoop() {
  DropTasks();
  close(wake_fd_);
}

void UcxEventLoop::DropTasks() {
  timer_times_.clear();
  while (true) {
    // A task's destructor may post another one, and must not run under the lock.
    std::map<std::pair<TimePoint, TimerId>, Task> timers = std::exchange(timers_, {});
    std::deque<Task> tasks;
    {
      MutexLock lock(mutex_);
      tasks.swap(posted_);
      posted_count_.store(0, std::memory_order_relaxed);
    }
    if (tasks.empty() && timers.empty()) {
      return;
    }
  }
}

void UcxEventLoop::Post(Task task) {
  Enqueue(std::move(task), std::numeric_limits<size_t>::max());
}

bool UcxEventLoop::TryPost(Task task) {
  return Enqueue(std::move(task), options_.posted_max);
}

bool UcxEventLoop::Enqueue(Task task, size_t limit) {
  bool ring = false;
  {
    MutexLock lock(mutex_);
    if (posted_.size() >= limit) {
      return false;
    }
    posted_.push_back(std::move(task));
    posted_count_.store(posted_.size(), std::memory_order_release);
    ring = std::exchange(sleeping_, false);
  }
  if (ring) {
    Wake();
  }
  return true;
}

void UcxEventLoop::Wake() {
  const uint64_t one = 1;
  // A full counter rings as well, so the result does not matter.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

TimerId UcxEventLoop::RunAt(TimePoint when, Task task) {
  TOKURA_DCHECK(MayUse());
  const TimerId id = ++last_timer_;
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_.emplace(id, when);
  return id;
}

void UcxEventLoop::CancelTimer(TimerId id) {
  TOKURA_DCHECK(MayUse());
  const auto found = timer_times_.find(id);
  if (found == timer_times_.end()) {
    return;
  }
  const auto timer = timers_.find({found->second, id});
  timer_times_.erase(found);
  if (timer != timers_.end()) {
    const Task dropped = std::move(timer->second);  // destroyed once the map is consistent again
    timers_.erase(timer);
  }
}

bool UcxEventLoop::IsCurrent() const {
  return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

bool UcxEventLoop::MayUse() const {
  const std::thread::id owner = owner_.load(std::memory_order_relaxed);
  return owner == std::thread::id() || owner == std::this_thread::get_id();
}

void UcxEventLoop::TakeOver() {
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

void UcxEventLoop::Run() {
  TOKURA_CHECK(MayUse());
  TakeOver();
  while (!stop_.exchange(false, std::memory_order_acquire)) {
    Poll(kIdleWaitMax);
  }
  owner_.store(std::thread::id(), std::memory_order_relaxed);
}

void UcxEventLoop::Stop() {
  stop_.store(true, std::memory_order_release);
  bool ring = false;
  {
    MutexLock lock(mutex_);
    ring = std::exchange(sleeping_, false);
  }
  if (ring) {
    Wake();
  }
}

bool UcxEventLoop::Poll(Duration wait) {
  TOKURA_DCHECK(MayUse());
  TakeOver();
  if (RunOnce()) {
    return true;
  }
  if (wait <= Duration::zero()) {
    return false;
  }
  const TimePoint start = Now();
  const TimePoint until = After(start, wait);
  const bool spins = options_.wake == UcxTransport::Options::Wake::kSpin;
  const TimePoint patience = std::max(After(start, options_.spin), awake_until_);
  const TimePoint spin_until = spins ? until : std::min(until, patience);
  while (Now() < spin_until && !stop_.load(std::memory_order_relaxed)) {
    if (RunOnce()) {
      return true;
    }
  }
  if (!spins) {
    Sleep(until);
  }
  return RunOnce();
}

void UcxEventLoop::Expect(Duration within) {
  TOKURA_DCHECK(MayUse());
  awake_until_ = std::max(awake_until_, After(Now(), std::min(within, Transport::kExpectMax)));
}

bool UcxEventLoop::RunOnce() {
  const bool tasks = RunTasks();
  const bool events = source_.Progress();
  const bool timers = RunTimers();
  return tasks || events || timers;
}

bool UcxEventLoop::RunTasks() {
  if (posted_count_.load(std::memory_order_acquire) == 0) {
    return false;
  }
  std::vector<Task> batch;
  {
    MutexLock lock(mutex_);
    const size_t count = std::min(posted_.size(), kTasksPerRound);
    batch.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      batch.push_back(std::move(posted_.front()));
      posted_.pop_front();
    }
    posted_count_.store(posted_.size(), std::memory_order_relaxed);
  }
  for (Task& task : batch) {
    task();
    task = nullptr;  // what it holds is released before the next one runs
  }
  return !batch.empty();
}

bool UcxEventLoop::RunTimers() {
  size_t ran = 0;
  if (timers_.empty()) {
    return false;
  }
  const TimePoint now = Now();
  while (ran < kTimersPerRound && !timers_.empty() && timers_.begin()->first.first <= now) {
    auto timer = timers_.extract(timers_.begin());
    timer_times_.erase(timer.key().second);
    timer.mapped()();
    ++ran;
  }
  return ran > 0;
}

void UcxEventLoop::Sleep(TimePoint until) {
  const TimePoint now = Now();
  until = std::min(until, After(now, source_.busy() ? kBusyWaitMax : kIdleWaitMax));
  if (!timers_.empty()) {
    until = std::min(until, timers_.begin()->first.first);
  }
  if (until <= now || !source_.Arm()) {
    return;
  }
  {
    MutexLock lock(mutex_);
    if (!posted_.empty() || stop_.load(std::memory_order_relaxed)) {
      return;
    }
    sleeping_ = true;
  }
  // Rounded up: waking before a timer is due would only mean to sleep again.
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now);
  // Not a descriptor of epoll that watches both for good: UCX's is one itself, and with another on
  // top of it every packet that arrives walks the whole chain, whether anybody sleeps or not.
  std::array<pollfd, 2> watched = {{{source_.event_fd(), POLLIN, 0}, {wake_fd_, POLLIN, 0}}};
  ::poll(watched.data(), watched.size(), static_cast<int>(wait.count()));
  if (watched[1].revents != 0) {
    uint64_t rung = 0;
    [[maybe_unused]] const ssize_t drained = read(wake_fd_, &rung, sizeof(rung));
  }
  MutexLock lock(mutex_);
  sleeping_ = false;
}

}  // namespace tokura::net
