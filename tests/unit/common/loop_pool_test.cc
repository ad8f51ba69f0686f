#include "common/loop_pool.h"

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

#include "common/cpus.h"
#include "gtest/gtest.h"

namespace tokura {
namespace {

// A loop that the test turns by hand.
class ManualLoop final : public Executor {
 public:
  TimePoint Now() const override { return now; }
  void Post(Task task) override { tasks.push_back(std::move(task)); }
  bool TryPost(Task task) override {
    Post(std::move(task));
    return true;
  }
  TimerId RunAt(TimePoint, Task) override { return 0; }
  void CancelTimer(TimerId) override {}
  bool IsCurrent() const override { return current; }

  void TurnOnce() {
    ASSERT_FALSE(tasks.empty());
    Task task = std::move(tasks.front());
    tasks.pop_front();
    task();
  }

  TimePoint now{};
  bool current = true;
  std::deque<Task> tasks;
};

// Keeps what it is given.
class Shelf final : public WorkerPool {
 public:
  void Add(std::unique_ptr<Job> job) override { jobs.push_back(std::move(job)); }
  std::vector<std::unique_ptr<Job>> jobs;
};

class LoopPoolTest : public testing::Test {
 protected:
  LoopPoolTest() {
    MakePool(Processors::kScarce);
    other_.current = false;
  }
  void MakePool(Processors processors) {
    auto shelf = std::make_unique<Shelf>();
    threads_ = shelf.get();
    pool_ = MakeLoopPool({&loop_, &other_}, std::move(shelf), processors);
  }

  // A job of so many steps, each of which takes that long and writes `name`.
  std::unique_ptr<Job> MakeJob(std::string name, int steps, Duration step = Duration::zero()) {
    class Steps final : public Job {
     public:
      Steps(LoopPoolTest& test, std::string name, int steps, Duration step)
          : test_(test), name_(std::move(name)), left_(steps), step_(step) {}
      Progress Step() override {
        test_.log_ += name_;
        test_.loop_.now += step_;
        return --left_ > 0 ? Progress::kMore : Progress::kDone;
      }

     private:
      LoopPoolTest& test_;
      const std::string name_;
      int left_;
      const Duration step_;
    };
    return std::make_unique<Steps>(*this, std::move(name), steps, step);
  }

  ManualLoop loop_;
  ManualLoop other_;
  Shelf* threads_ = nullptr;  // the pool's
  std::unique_ptr<WorkerPool> pool_;
  std::string log_;
};

TEST_F(LoopPoolTest, StepsForAMomentEachTimeAroundAndNeverInline) {
  pool_->Add(MakeJob("a", 6, std::chrono::microseconds(10)));
  EXPECT_EQ(log_, "");
  // What the loop does besides, added before each turn, comes between two moments.
  for (int i = 0; i < 3; ++i) {
    loop_.Post([this] { log_ += "-"; });
    loop_.TurnOnce();
    loop_.TurnOnce();
  }
  EXPECT_EQ(log_, "aa-aa-aa-");
  EXPECT_TRUE(loop_.tasks.empty());
  EXPECT_TRUE(threads_->jobs.empty());
}

TEST_F(LoopPoolTest, SecondJobGoesToTheThreadsUntilStepsAreKnownToBeQuick) {
  pool_->Add(MakeJob("a", 1, std::chrono::microseconds(100)));
  pool_->Add(MakeJob("b", 1));
  EXPECT_EQ(threads_->jobs.size(), 1u);
  loop_.TurnOnce();
  pool_->Add(MakeJob("c", 1));
  pool_->Add(MakeJob("d", 1));  // the last step was not quick
  EXPECT_EQ(threads_->jobs.size(), 2u);
  loop_.TurnOnce();
  EXPECT_EQ(log_, "ac");
}

TEST_F(LoopPoolTest, TakesAFewQuickJobsInTheirOrder) {
  pool_->Add(MakeJob("a", 1));
  loop_.TurnOnce();
  size_t taken = 0;
  while (threads_->jobs.empty()) {
    pool_->Add(MakeJob("b", 2, std::chrono::microseconds(1)));
    ASSERT_LT(++taken, 1000u);
  }
  EXPECT_GT(taken, 2u);
  pool_->Add(MakeJob("x", 1));  // full, so to the threads
  EXPECT_EQ(threads_->jobs.size(), 2u);
  while (!loop_.tasks.empty()) {
    loop_.TurnOnce();
  }
  EXPECT_EQ(log_, "a" + std::string(2 * (taken - 1), 'b'));
}

TEST_F(LoopPoolTest, SlowStepGivesAwayAllJobsOfTheLoop) {
  pool_->Add(MakeJob("a", 1));
  loop_.TurnOnce();
  pool_->Add(MakeJob("b", 2, std::chrono::milliseconds(1)));
  pool_->Add(MakeJob("c", 1));
  loop_.TurnOnce();
  EXPECT_EQ(threads_->jobs.size(), 2u);
  EXPECT_TRUE(loop_.tasks.empty());
  EXPECT_EQ(log_, "ab");
}

TEST_F(LoopPoolTest, JobsOfOtherThreadsGoToTheThreads) {
  loop_.current = false;
  pool_->Add(MakeJob("a", 1));
  EXPECT_EQ(threads_->jobs.size(), 1u);
  EXPECT_TRUE(loop_.tasks.empty() && other_.tasks.empty());
}

TEST_F(LoopPoolTest, EachLoopHasItsOwnJob) {
  pool_->Add(MakeJob("a", 1));
  std::swap(loop_.current, other_.current);
  pool_->Add(MakeJob("b", 1));
  EXPECT_EQ(other_.tasks.size(), 1u);
  EXPECT_TRUE(threads_->jobs.empty());
}

TEST_F(LoopPoolTest, SlowJobIsGivenAwayWithTheNextOnes) {
  pool_->Add(MakeJob("a", 3, std::chrono::milliseconds(1)));
  loop_.TurnOnce();
  EXPECT_TRUE(loop_.tasks.empty());
  ASSERT_EQ(threads_->jobs.size(), 1u);
  EXPECT_EQ(threads_->jobs[0]->Step(), Job::Progress::kMore);  // where the loop left it
  EXPECT_EQ(threads_->jobs[0]->Step(), Job::Progress::kDone);
  size_t given = 0;
  while (loop_.tasks.empty()) {
    pool_->Add(MakeJob("b", 1));
    ASSERT_LT(++given, 1000u);
  }
  EXPECT_GE(given, 4u);  // a try now and then costs little
  EXPECT_EQ(threads_->jobs.size(), given);
}

TEST_F(LoopPoolTest, UnfinishedJobIsDestroyedWithTheLoopsTasks) {
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  class Holder final : public Job {
   public:
    explicit Holder(std::shared_ptr<int> held) : held_(std::move(held)) {}
    Progress Step() override { return Progress::kMore; }

   private:
    std::shared_ptr<int> held_;
  };
  pool_->Add(std::make_unique<Holder>(std::move(held)));
  loop_.TurnOnce();
  pool_.reset();
  loop_.tasks.clear();
  EXPECT_TRUE(watched.expired());
}

// One of many jobs of an operation.
class StreamJob final : public Job {
 public:
  Progress Step() override { return Progress::kDone; }
  Load load() const override { return LoadOf(uint64_t{64} << 20); }
};

TEST_F(LoopPoolTest, StreamGoesToTheThreadsWhereProcessorsArePlenty) {
  MakePool(Processors::kPlenty);
  pool_->Add(std::make_unique<StreamJob>());
  pool_->Add(MakeJob("a", 1));
  EXPECT_EQ(threads_->jobs.size(), 1u);
  loop_.TurnOnce();
  EXPECT_EQ(log_, "a");
}

TEST_F(LoopPoolTest, StreamStaysOnTheLoopWhereTheyAreScarce) {
  pool_->Add(std::make_unique<StreamJob>());
  EXPECT_TRUE(threads_->jobs.empty());
  EXPECT_EQ(loop_.tasks.size(), 1u);
}

// On a machine with many a process may be confined to one.
TEST(ProcessorsForTest, CountsThoseThatThisThreadMayUse) {
  Processors confined = Processors::kPlenty;
  std::thread([&confined] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(AllowedCpus().front(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    confined = ProcessorsFor(0);
  }).join();
  EXPECT_EQ(confined, Processors::kScarce);
}

TEST(ProcessorsForTest, ManyLoopsLeaveNone) {
  EXPECT_EQ(ProcessorsFor(AllowedCpus().size()), Processors::kScarce);
}

TEST(JobTest, AnOperationOnManyBytesIsAStream) {
  EXPECT_EQ(LoadOf(0), Job::Load::kSingle);
  EXPECT_EQ(LoadOf(uint64_t{1} << 20), Job::Load::kSingle);
  EXPECT_EQ(LoadOf(uint64_t{4} << 20), Job::Load::kStream);
}

}  // namespace
}  // namespace tokura
