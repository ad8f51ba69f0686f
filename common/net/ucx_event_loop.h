#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/net/ucx_transport.h"

namespace tokura::net {

// What an event loop drives besides tasks and timers. Called on the loop's thread only.
class LoopSource {
 public:
  virtual ~LoopSource() = default;
  // Do what can be done now; whether anything happened.
  virtual bool Progress() = 0;
  // Prepare event_fd to become readable at the next event. False: something is there already, so
  // progress again instead of sleeping.
  virtual bool Arm() = 0;
  virtual int event_fd() const = 0;
  // Whether an operation is under way. Wake-ups have been missed before, so the loop then looks
  // again after a few milliseconds by itself.
  virtual bool busy() const = 0;
};

// One thread's loop: tasks, timers and one source of events. Post, TryPost, Stop, Now and
// IsCurrent: thread-safe; the rest belongs to the owner, which is the thread that called Run (until
// Run returns) or the first to call Poll.
class UcxEventLoop final : public Executor {
 public:
  struct Options {
    UcxTransport::Options::Wake wake;
    Duration spin;
    uint32_t posted_max;
  };
  // `source` outlives the loop. INTERNAL: the system gives no descriptors.
  static absl::StatusOr<std::unique_ptr<UcxEventLoop>> Create(Options options, LoopSource& source);
  ~UcxEventLoop() override;
  UcxEventLoop(const UcxEventLoop&) = delete;
  UcxEventLoop& operator=(const UcxEventLoop&) = delete;

  TimePoint Now() const override { return SystemClock().Now(); }
  void Post(Task task) override;
  bool TryPost(Task task) override;
  TimerId RunAt(TimePoint when, Task task) override;
  void CancelTimer(TimerId id) override;
  bool IsCurrent() const override;

  void Run();
  bool Poll(Duration wait);
  // See Transport::Expect. Owner only.
  void Expect(Duration within);
  void Stop();
  // Make the calling thread the owner: for teardown, when no other thread uses the loop any more.
  void TakeOver();
  // Whether the caller may use what belongs to the owner: it is the owner, or there is none yet.
  bool MayUse() const;
  // Destroy all tasks and timers unrun. For teardown.
  void DropTasks();

 private:
  UcxEventLoop(Options options, LoopSource& source, int wake_fd)
      : options_(options), source_(source), wake_fd_(wake_fd) {}

  bool Enqueue(Task task, size_t limit);
  bool RunTasks();
  bool RunTimers();
  bool RunOnce();
  // Sleep until something may have happened, `until` at the latest.
  void Sleep(TimePoint until);
  void Wake();

  const Options options_;
  LoopSource& source_;
  const int wake_fd_;
  std::atomic<std::thread::id> owner_{};
  std::atomic<bool> stop_{false};

  Mutex mutex_;  // innermost
  std::deque<Task> posted_ TOKURA_GUARDED_BY(mutex_);
  // The owner sleeps or is about to: the next one to post must ring.
  bool sleeping_ TOKURA_GUARDED_BY(mutex_) = false;
  // Size of posted_, for a look without the lock.
  std::atomic<size_t> posted_count_{0};

  // Owner only. Ids grow, so equal times run in the order they were made.
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
  std::unordered_map<TimerId, TimePoint> timer_times_;
  TimerId last_timer_ = 0;
  TimePoint awake_until_ = TimePoint::min();  // see Expect
};

}  // namespace tokura::net
