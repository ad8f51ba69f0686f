#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "common/time.h"

namespace tokura {

using Task = absl::AnyInvocable<void()>;
using TimerId = uint64_t;  // 0 is never a timer.

// One thread's event loop. Everything of a component that is "owned by the executor" runs on it,
// one task at a time. Production: a transport's progress thread (common/net). Simulation: the
// scheduler's virtual thread of one host.
class Executor {
 public:
  virtual ~Executor() = default;

  // Current time of this loop. Any thread.
  virtual TimePoint Now() const = 0;

  // Run `task` soon on this loop, after tasks posted earlier by the same thread. Any thread; never
  // blocks, never runs the task inline. For completions whose number other limits bound; the queue
  // itself does not refuse them. A task posted after the loop has stopped is destroyed without
  // running.
  virtual void Post(Task task) = 0;

  // As Post, but refuses (returns false, the task is destroyed) when more than the configured
  // number of tasks wait. For work that callers outside bring: a full queue is RESOURCE_EXHAUSTED
  // for that caller.
  virtual bool TryPost(Task task) = 0;

  // Run `task` on this loop at or after `when`. Owner thread only. Timers of equal time run in the
  // order they were made.
  virtual TimerId RunAt(TimePoint when, Task task) = 0;
  // Forget a timer; a timer that ran or an unknown id is ignored. Owner thread only.
  virtual void CancelTimer(TimerId id) = 0;

  // Whether the caller is on this loop's thread.
  virtual bool IsCurrent() const = 0;

  TimerId RunAfter(Duration delay, Task task) { return RunAt(Now() + delay, std::move(task)); }
};

// A long computation in small steps (a layer of a codec, say): between two steps the pool may do
// other things, and a simulation may let anything happen. Destroyed on the pool's thread after its
// last step.
class Job {
 public:
  enum class Progress { kMore, kDone };
  virtual ~Job() = default;
  virtual Progress Step() = 0;
  // Whether it is all that somebody waits for, or one of a stream: what one job more costs until it
  // begins matters to the former, how much is done at the same time to the latter.
  enum class Load { kSingle, kStream };
  virtual Load load() const { return Load::kSingle; }
};

// Of the jobs of an operation on so many bytes of KV: a stream when they take longer than it takes
// to wake another thread, many times over.
constexpr Job::Load LoadOf(uint64_t bytes) {
  return bytes > (uint64_t{2} << 20) ? Job::Load::kStream : Job::Load::kSingle;
}

// Threads for computation. Thread-safe. Jobs start in the order they were added. The number of jobs
// is bounded by the callers' own limits. On destruction jobs that have not started are destroyed
// unrun; running ones are finished.
class WorkerPool {
 public:
  virtual ~WorkerPool() = default;
  virtual void Add(std::unique_ptr<Job> job) = 0;
};

// A pool of `threads` named threads.
std::unique_ptr<WorkerPool> MakeThreadPool(int threads, const char* name);

}  // namespace tokura
