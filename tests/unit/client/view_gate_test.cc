#include "client-lib/src/view_gate.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/host.h"

namespace tokura {
namespace {

class ViewGateTest : public ::testing::Test {
 protected:
  sim::SimScheduler scheduler_{1};
  sim::SimHost host_{scheduler_, {.name = "h", .ip = "10.0.0.1"}};
  Executor& executor_ = host_.loop();
};

TEST_F(ViewGateTest, ClosesInlineWhenNobodyIsInside) {
  ViewGate gate;
  EXPECT_TRUE(gate.Enter());
  gate.Leave();
  bool quiet = false;
  gate.Close(executor_, [&] { quiet = true; });
  EXPECT_TRUE(quiet);
  EXPECT_FALSE(gate.Enter());
}

TEST_F(ViewGateTest, LastOneOutTells) {
  ViewGate gate;
  EXPECT_TRUE(gate.Enter());
  EXPECT_TRUE(gate.Enter());
  bool quiet = false;
  gate.Close(executor_, [&] { quiet = true; });
  EXPECT_FALSE(gate.Enter());
  gate.Leave();
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_FALSE(quiet);
  gate.Leave();
  EXPECT_FALSE(quiet) << "not on the codec's thread";
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_TRUE(quiet);
}

// Many threads write inside; once the gate is quiet nothing changes any more.
TEST_F(ViewGateTest, NoThreadIsInsideOnceItIsQuiet) {
  for (int round = 0; round < 50; ++round) {
    ViewGate gate;
    std::atomic<int> inside = 0;
    std::atomic<int> entered = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (gate.Enter()) {
          ++inside;
          ++entered;
          --inside;
          gate.Leave();
        }
      });
    }
    while (entered < 100) {
      std::this_thread::yield();
    }
    std::atomic<bool> quiet = false;
    // The simulated executor belongs to this thread; a leaver's post is made once, by one thread.
    gate.Close(executor_, [&] {
      EXPECT_EQ(inside, 0);
      quiet = true;
    });
    for (std::thread& thread : threads) {
      thread.join();
    }
    scheduler_.RunFor(std::chrono::seconds(1));
    EXPECT_TRUE(quiet);
  }
}

}  // namespace
}  // namespace tokura
