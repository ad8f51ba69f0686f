#include "cli/cpu_pin.h"

#include <future>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/child_process.h"
#include "common/cpus.h"

namespace tokura::cli {
namespace {

TEST(CpuPinTest, MovesEveryThreadAndPutsThemBack) {
  const std::vector<int> before = AllowedCpus();
  ASSERT_FALSE(before.empty());
  std::promise<void> pinned, unpinned;
  std::promise<std::vector<int>> during, after;
  std::promise<void> running;
  std::thread other([&] {
    running.set_value();
    pinned.get_future().wait();
    during.set_value(AllowedCpus());
    unpinned.get_future().wait();
    after.set_value(AllowedCpus());
  });
  running.get_future().wait();
  {
    const auto pin = CpuPin::Create(getpid(), {before.back()});
    ASSERT_TRUE(pin.ok()) << pin.status();
    EXPECT_EQ(AllowedCpus(), std::vector<int>{before.back()});
    pinned.set_value();
    EXPECT_EQ(during.get_future().get(), std::vector<int>{before.back()});
  }
  unpinned.set_value();
  EXPECT_EQ(AllowedCpus(), before);
  EXPECT_EQ(after.get_future().get(), before);
  other.join();
}

TEST(CpuPinTest, NoSuchProcessIsUnavailable) {
  constexpr pid_t kNobody = 0x7fffffff;
  EXPECT_TRUE(absl::IsUnavailable(CpuPin::Create(kNobody, {0}).status()));
}

std::vector<int> CpusOf(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(process, sizeof(set), &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) {
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

TEST(CpuSplitTest, ServersGetTheLastCpuAndTheClientTheOthers) {
  const std::vector<int> before = AllowedCpus();
  ASSERT_FALSE(before.empty());
  const std::vector<int> last = {before.back()};
  const std::vector<int> others(before.begin(), before.end() - 1);
  const auto server = ChildProcess::Start({.command = {"/bin/cat"}, .error_path = ""});
  ASSERT_TRUE(server.ok()) << server.status();
  {
    const auto split = CpuSplit::Create({(*server)->pid()});
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ(CpusOf((*server)->pid()), last);
    EXPECT_EQ(AllowedCpus(), others.empty() ? last : others);
  }
  EXPECT_EQ(CpusOf((*server)->pid()), before);
  EXPECT_EQ(AllowedCpus(), before);
}

TEST(CpuSplitTest, NothingIsPinnedWhenAServerIsGone) {
  constexpr pid_t kNobody = 0x7fffffff;
  const std::vector<int> before = AllowedCpus();
  EXPECT_TRUE(absl::IsUnavailable(CpuSplit::Create({getpid(), kNobody}).status()));
  EXPECT_EQ(AllowedCpus(), before);
}

}  // namespace
}  // namespace tokura::cli
