#include "common/stop_signals.h"

#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

namespace tokura {
namespace {

bool Blocked(int number) {
  sigset_t set;
  pthread_sigmask(SIG_BLOCK, nullptr, &set);
  return sigismember(&set, number) == 1;
}

TEST(StopSignalsTest, OnlyTheMainThreadGetsThemUntilTheyAreWaitedFor) {
  const StopSignals signals;
  bool start_blocked = false;
  bool thread_blocked = false;
  signals.RunBlocked([&] {
    start_blocked = Blocked(SIGTERM) && Blocked(SIGINT);
    std::thread([&] { thread_blocked = Blocked(SIGTERM) && Blocked(SIGINT); }).join();
  });
  EXPECT_TRUE(start_blocked);
  EXPECT_TRUE(thread_blocked);
  EXPECT_FALSE(Blocked(SIGTERM)) << "a signal during the start would wait for its end";
  signals.Block();
  raise(SIGTERM);
  EXPECT_EQ(signals.WaitForOne(), SIGTERM);
  EXPECT_TRUE(Blocked(SIGTERM));
  signals.LetThrough();
  EXPECT_FALSE(Blocked(SIGTERM));
}

TEST(StopSignalsDeathTest, OneDuringTheStartEndsTheProcess) {
  EXPECT_EXIT(StopSignals().RunBlocked([] {
    kill(getpid(), SIGTERM);
    alarm(5);  // Should the signal wait.
    pause();
  }),
              ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace tokura
