#include "cache-node/server_transfers.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A source of `count` transfers of `bytes` each that writes its name into a log when one starts.
class FakeSource : public TransferSource {
 public:
  struct Options {
    std::string name;
    uint64_t bytes = 0;
    int count = 0;
  };
  FakeSource(Options options, std::vector<std::string>* log)
      : options_(std::move(options)), log_(log) {}

  uint64_t next_bytes() override { return options_.count > 0 ? options_.bytes : 0; }
  Started StartNext() override {
    --options_.count;
    if (on_start) {
      on_start();
    }
    if (skip > 0) {
      --skip;
      return Started::kNo;
    }
    log_->push_back(options_.name);
    return Started::kYes;
  }
  void set_count(int count) { options_.count = count; }

  int skip = 0;
  std::function<void()> on_start;

 private:
  Options options_;
  std::vector<std::string>* log_;
};

class TransferGateTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeSource> Source(const std::string& name, uint64_t bytes, int count) {
    return std::make_shared<FakeSource>(FakeSource::Options{name, bytes, count}, &log_);
  }
  std::vector<std::string> log_;
};

TEST_F(TransferGateTest, OneConnectionMayUseHalfOfTheLimit) {
  TransferGate gate(100);
  TransferGate::Slot a(gate);
  a.Add(Source("a", 10, 20));
  EXPECT_EQ(gate.bytes_under_way(), 50u);
  EXPECT_EQ(gate.waiting(), 1u);
  a.Finish(10);
  EXPECT_EQ(gate.bytes_under_way(), 50u);
  EXPECT_EQ(log_.size(), 6u);
  a.Clear();
  for (int i = 0; i < 5; ++i) {
    a.Finish(10);
  }
  EXPECT_EQ(gate.bytes_under_way(), 0u);
  EXPECT_EQ(log_.size(), 6u);
}

TEST_F(TransferGateTest, StoppedPeersLeaveRoomForOthers) {
  TransferGate gate(1000);
  TransferGate::Slot stopped_1(gate), stopped_2(gate), live(gate);
  stopped_1.Add(Source("s", 10, 1000));
  stopped_2.Add(Source("t", 10, 1000));
  EXPECT_LE(gate.bytes_under_way(), 750u);
  log_.clear();
  live.Add(Source("live", 10, 3));
  EXPECT_THAT(log_, ElementsAre("live", "live", "live"));
  stopped_1.Clear();
  stopped_2.Clear();
  while (stopped_1.bytes_under_way() > 0) {
    stopped_1.Finish(10);
  }
  while (stopped_2.bytes_under_way() > 0) {
    stopped_2.Finish(10);
  }
  for (int i = 0; i < 3; ++i) {
    live.Finish(10);
  }
}

TEST_F(TransferGateTest, ConnectionsTakeTurns) {
  TransferGate gate(40);
  TransferGate::Slot a(gate), b(gate), c(gate);
  a.Add(Source("a", 40, 2));  // Fills the limit, so that the others queue.
  b.Add(Source("b", 40, 2));
  c.Add(Source("c", 40, 2));
  EXPECT_THAT(log_, ElementsAre("a"));
  a.Finish(40);
  b.Finish(40);
  c.Finish(40);
  a.Finish(40);
  b.Finish(40);
  c.Finish(40);
  EXPECT_THAT(log_, ElementsAre("a", "b", "c", "a", "b", "c"));
  EXPECT_EQ(gate.waiting(), 0u);
}

TEST_F(TransferGateTest, SourcesOfOneConnectionGoInOrder) {
  TransferGate gate(10);
  TransferGate::Slot a(gate);
  a.Add(Source("first", 10, 2));
  a.Add(Source("second", 10, 1));
  a.Finish(10);
  a.Finish(10);
  a.Finish(10);
  EXPECT_THAT(log_, ElementsAre("first", "first", "second"));
}

TEST_F(TransferGateTest, TransferLargerThanTheLimitGoesAlone) {
  TransferGate gate(10);
  TransferGate::Slot a(gate), b(gate);
  a.Add(Source("large", 64, 1));
  b.Add(Source("small", 1, 1));
  EXPECT_THAT(log_, ElementsAre("large"));
  a.Finish(64);
  EXPECT_THAT(log_, ElementsAre("large", "small"));
  b.Finish(1);
}

TEST_F(TransferGateTest, LargeTransferIsNotStarvedBySmallOnes) {
  TransferGate gate(100);
  TransferGate::Slot a(gate), b(gate);
  a.Add(Source("small", 10, 1000));
  b.Add(Source("large", 90, 1));
  EXPECT_EQ(b.bytes_under_way(), 90u);
  a.Clear();
  while (a.bytes_under_way() > 0) {
    a.Finish(10);
  }
  b.Finish(90);
}

TEST_F(TransferGateTest, UnwantedTransfersCountNothing) {
  TransferGate gate(10);
  TransferGate::Slot a(gate);
  auto source = Source("a", 10, 3);
  source->skip = 2;
  a.Add(source);
  EXPECT_THAT(log_, ElementsAre("a"));
  EXPECT_EQ(gate.bytes_under_way(), 10u);
  a.Finish(10);
  EXPECT_EQ(gate.bytes_under_way(), 0u);
}

TEST_F(TransferGateTest, ClearingWhileStartingIsHarmless) {
  TransferGate gate(100);
  TransferGate::Slot a(gate);
  auto source = Source("a", 10, 5);
  source->skip = 1;
  source->on_start = [&] { a.Clear(); };
  a.Add(source);
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(gate.bytes_under_way(), 0u);
}

TEST_F(TransferGateTest, SourceIsHeldOnlyWhileItHasSomethingToStart) {
  TransferGate gate(100);
  TransferGate::Slot a(gate);
  auto source = Source("a", 10, 1);
  a.Add(source);
  a.Finish(10);
  EXPECT_EQ(source.use_count(), 1);
  source->set_count(1);
  a.Add(source);  // New transfers queue it again.
  a.Finish(10);
  EXPECT_THAT(log_, ElementsAre("a", "a"));
}

TEST_F(TransferGateTest, LeavingConnectionsKeepTheOthersTurns) {
  TransferGate gate(10);
  auto a = std::make_unique<TransferGate::Slot>(gate);
  TransferGate::Slot b(gate), c(gate);
  b.Add(Source("b", 10, 2));
  c.Add(Source("c", 10, 1));
  a.reset();
  b.Finish(10);
  c.Finish(10);
  b.Finish(10);
  EXPECT_THAT(log_, ElementsAre("b", "c", "b"));
}

TEST_F(TransferGateTest, ConnectionThatEndsWithoutFinishingGivesBackItsShare) {
  TransferGate gate(100);
  {
    TransferGate::Slot gone(gate);
    gone.Add(Source("gone", 60, 1));
    EXPECT_EQ(gate.bytes_under_way(), 60u);
  }
  EXPECT_EQ(gate.bytes_under_way(), 0u);
}

TEST_F(TransferGateTest, OneStoppedPeerWithALargestPartLeavesRoomForAnothers) {
  TransferGate gate(200);  // twice the largest part, as every thread has
  TransferGate::Slot stopped(gate);
  TransferGate::Slot live(gate);
  stopped.Add(Source("s", 100, 5));
  EXPECT_EQ(stopped.bytes_under_way(), 100u);
  live.Add(Source("l", 100, 1));
  EXPECT_EQ(live.bytes_under_way(), 100u);
  stopped.Finish(100);
  live.Finish(100);
}

}  // namespace
}  // namespace tokura::node
