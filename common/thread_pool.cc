#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/executor.h"

namespace tokura {
namespace {

// Thread-safe. A job's steps run back to back on the thread that took it.
class ThreadPool final : public WorkerPool {
 public:
  ThreadPool(int threads, const char* name) {
    threads_.reserve(static_cast<size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Run(); });
      // The kernel keeps 15 characters of a thread's name; a longer one would be refused whole.
      const std::string thread_name = absl::StrCat(name, "-", i).substr(0, 15);
      pthread_setname_np(threads_.back().native_handle(), thread_name.c_str());
    }
  }

  ~ThreadPool() override {
    std::deque<std::unique_ptr<Job>> unstarted;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      unstarted.swap(jobs_);
    }
    wake_.notify_all();
    unstarted.clear();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  void Add(std::unique_ptr<Job> job) override {
    TOKURA_CHECK(job != nullptr);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        return;  // A job that a running one adds while the pool ends: it has not started.
      }
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
  }

 private:
  void Run() {
    while (std::unique_ptr<Job> job = Take()) {
      while (job->Step() == Job::Progress::kMore) {
      }
    }
  }

  // The oldest job, or null once the pool ends.
  std::unique_ptr<Job> Take() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) {
      return nullptr;
    }
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Job>> jobs_;  // guarded by mutex_
  bool stopping_ = false;                  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<WorkerPool> MakeThreadPool(int threads, const char* name) {
  TOKURA_CHECK(threads >= 1);
  return std::make_unique<ThreadPool>(threads, name);
}

}  // namespace tokura
