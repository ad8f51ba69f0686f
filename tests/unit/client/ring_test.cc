#include "client-lib/src/ring.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/part.h"
#include "tests/sim/transport.h"

namespace tokura {
namespace {

constexpr uint64_t kBytes = uint64_t{64} << 10;

class RingTest : public ::testing::Test {
 protected:
  RingTest() {
    host_.loop().Enter([this] {
      ring_ = std::move(*Ring::Create(transport_, {.bytes = kBytes, .waiters_max = 2}));
    });
  }
  void OnLoop(const std::function<void()>& f) { host_.loop().Enter(f); }

  sim::SimScheduler scheduler_{1};
  sim::SimNetwork network_{scheduler_, {}};
  sim::SimHost host_{scheduler_, {.name = "h", .ip = "10.0.0.1"}};
  sim::SimTransport transport_{network_, host_.loop()};
  std::unique_ptr<Ring> ring_;
};

TEST_F(RingTest, SlotsAreAlignedAndNeverOverlapWhateverTheOrder) {
  OnLoop([this] {
    std::mt19937 random(1);
    std::vector<RingSlot> slots;
    for (int i = 0; i < 20000; ++i) {
      if (!slots.empty() && random() % 2 == 0) {
        slots.erase(slots.begin() + random() % slots.size());
        continue;
      }
      const size_t bytes = 1 + random() % 9000;
      RingSlot slot = ring_->TryTake(bytes);
      if (!slot.valid()) {
        continue;
      }
      ASSERT_GE(slot.span().size, bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(slot.span().data) % kernels::kPartAlignment, 0u);
      for (const RingSlot& other : slots) {
        ASSERT_TRUE(slot.span().data + slot.span().size <= other.span().data ||
                    other.span().data + other.span().size <= slot.span().data);
      }
      slots.push_back(std::move(slot));
    }
    slots.clear();
    EXPECT_EQ(ring_->used(), 0u);
    EXPECT_TRUE(ring_->TryTake(kBytes).valid()) << "free neighbours are merged";
  });
}

TEST_F(RingTest, TrimGivesTheTailBack) {
  OnLoop([this] {
    RingSlot slot = ring_->TryTake(kBytes);
    slot.Trim(100);
    EXPECT_EQ(slot.span().size, 128u);
    EXPECT_EQ(ring_->used(), 128u);
    EXPECT_TRUE(ring_->TryTake(kBytes - 128).valid());
  });
}

TEST_F(RingTest, WaitersAreServedInOrderAndBounded) {
  std::vector<int> served;
  std::vector<RingSlot> granted;
  const auto grant = [&](int who) {
    return [&, who](RingSlot slot) {
      served.push_back(who);
      granted.push_back(std::move(slot));
    };
  };
  OnLoop([&] {
    RingSlot all = ring_->TryTake(kBytes);
    EXPECT_EQ(ring_->Wait(kBytes + 1, grant(9)), 0u) << "never fits";
    EXPECT_NE(ring_->Wait(kBytes, grant(1)), 0u);
    EXPECT_NE(ring_->Wait(64, grant(2)), 0u);
    EXPECT_EQ(ring_->Wait(64, grant(3)), 0u) << "the queue is full";
    all.Trim(64);
    EXPECT_FALSE(ring_->TryTake(64).valid()) << "no overtaking";
  });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, (std::vector<int>{1}));
  OnLoop([&] { granted.clear(); });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, (std::vector<int>{1, 2}));
  OnLoop([&] { granted.clear(); });
}

TEST_F(RingTest, CancelledWaiterLetsTheNextOnePass) {
  int served = 0;
  RingSlot half;
  OnLoop([&] {
    half = ring_->TryTake(kBytes / 2);
    const Ring::Ticket big = ring_->Wait(kBytes, [](RingSlot) { FAIL(); });
    EXPECT_NE(ring_->Wait(64, [&](RingSlot) { ++served; }), 0u);
    ring_->CancelWait(big);
    ring_->CancelWait(big);
    EXPECT_EQ(served, 0) << "never inline";
  });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, 1);
  OnLoop([&] { half.Reset(); });
}

}  // namespace
}  // namespace tokura
