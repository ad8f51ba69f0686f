#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "common/executor.h"

namespace tokura {
namespace {

// A latch that opens once.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    wake_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool open_ = false;
};

// Runs `steps` functions of its own, then reports its destruction.
class ScriptedJob final : public Job {
 public:
  ScriptedJob(int steps, std::function<void(int)> on_step, std::function<void()> on_destroyed = {})
      : steps_(steps), on_step_(std::move(on_step)), on_destroyed_(std::move(on_destroyed)) {}
  ~ScriptedJob() override {
    if (on_destroyed_) {
      on_destroyed_();
    }
  }
  Progress Step() override {
    on_step_(done_);
    return ++done_ < steps_ ? Progress::kMore : Progress::kDone;
  }

 private:
  int steps_;
  int done_ = 0;
  std::function<void(int)> on_step_;
  std::function<void()> on_destroyed_;
};

TEST(ThreadPoolTest, OneThreadRunsJobsInOrderWithStepsBackToBack) {
  std::vector<std::pair<int, int>> seen;
  Gate last;
  auto pool = MakeThreadPool(1, "test");
  for (int job = 0; job < 50; ++job) {
    pool->Add(std::make_unique<ScriptedJob>(
        3, [&seen, job](int step) { seen.emplace_back(job, step); },
        [&last, job] {
          if (job == 49) {
            last.Open();
          }
        }));
  }
  last.Wait();
  ASSERT_EQ(seen.size(), 150u);
  for (int i = 0; i < 150; ++i) {
    EXPECT_EQ(seen[static_cast<size_t>(i)], (std::pair<int, int>(i / 3, i % 3)));
  }
}

TEST(ThreadPoolTest, JobsOfTwoThreadsRunAtTheSameTime) {
  auto pool = MakeThreadPool(2, "test");
  Gate first_runs;
  Gate second_runs;
  Gate both_done;
  pool->Add(std::make_unique<ScriptedJob>(1, [&](int) {
    first_runs.Open();
    second_runs.Wait();
    both_done.Open();
  }));
  pool->Add(std::make_unique<ScriptedJob>(1, [&](int) {
    first_runs.Wait();
    second_runs.Open();
  }));
  both_done.Wait();
}

TEST(ThreadPoolTest, JobIsDestroyedOnThePoolsThreadAfterItsLastStep) {
  auto pool = MakeThreadPool(1, "a-name-much-longer-than-15");
  std::thread::id stepped;
  std::thread::id destroyed;
  char name[32] = {};
  Gate done;
  pool->Add(std::make_unique<ScriptedJob>(
      1,
      [&](int) {
        stepped = std::this_thread::get_id();
        pthread_getname_np(pthread_self(), name, sizeof(name));
      },
      [&] {
        destroyed = std::this_thread::get_id();
        done.Open();
      }));
  done.Wait();
  EXPECT_EQ(stepped, destroyed);
  EXPECT_NE(stepped, std::this_thread::get_id());
  EXPECT_STREQ(name, "a-name-much-lon");
}

TEST(ThreadPoolTest, DestructionFinishesRunningJobsAndDropsTheRest) {
  std::atomic<int> steps_of_running{0};
  std::atomic<int> steps_of_waiting{0};
  std::atomic<int> destroyed{0};
  Gate started;
  Gate waiting_dropped;
  auto pool = MakeThreadPool(1, "test");
  pool->Add(std::make_unique<ScriptedJob>(
      5,
      [&](int) {
        ++steps_of_running;
        started.Open();
        waiting_dropped.Wait();
      },
      [&] { ++destroyed; }));
  started.Wait();
  for (int i = 0; i < 3; ++i) {
    pool->Add(std::make_unique<ScriptedJob>(
        1, [&](int) { ++steps_of_waiting; },
        [&] {
          ++destroyed;
          waiting_dropped.Open();
        }));
  }
  pool.reset();
  EXPECT_EQ(steps_of_running, 5);
  EXPECT_EQ(destroyed, 4);
  EXPECT_EQ(steps_of_waiting, 0);
}

TEST(ThreadPoolTest, AJobMayAddJobs) {
  Gate done;
  auto pool = MakeThreadPool(1, "test");
  WorkerPool* raw = pool.get();
  pool->Add(std::make_unique<ScriptedJob>(1, [raw, &done](int) {
    raw->Add(std::make_unique<ScriptedJob>(1, [&done](int) { done.Open(); }));
  }));
  done.Wait();
}

}  // namespace
}  // namespace tokura
