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
  const RingWindowRef all_ = std::make_shared<RingWindow>(kBytes);
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
      RingSlot slot = ring_->TryTake(bytes, all_);
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
    EXPECT_TRUE(ring_->TryTake(kBytes, all_).valid()) << "free neighbours are merged";
  });
}

TEST_F(RingTest, TrimGivesTheTailBack) {
  OnLoop([this] {
    RingSlot slot = ring_->TryTake(kBytes, all_);
    slot.Trim(100);
    EXPECT_EQ(slot.span().size, 128u);
    EXPECT_EQ(ring_->used(), 128u);
    EXPECT_TRUE(ring_->TryTake(kBytes - 128, all_).valid());
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
    RingSlot all = ring_->TryTake(kBytes, all_);
    EXPECT_EQ(ring_->Wait(kBytes + 1, all_, grant(9)), 0u) << "never fits";
    EXPECT_NE(ring_->Wait(kBytes, all_, grant(1)), 0u);
    EXPECT_NE(ring_->Wait(64, all_, grant(2)), 0u);
    EXPECT_EQ(ring_->Wait(64, all_, grant(3)), 0u) << "the queue is full";
    all.Trim(64);
    EXPECT_FALSE(ring_->TryTake(64, all_).valid()) << "no overtaking";
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
    half = ring_->TryTake(kBytes / 2, all_);
    const Ring::Ticket big = ring_->Wait(kBytes, all_, [](RingSlot) { FAIL(); });
    EXPECT_NE(ring_->Wait(64, all_, [&](RingSlot) { ++served; }), 0u);
    ring_->CancelWait(big);
    ring_->CancelWait(big);
    EXPECT_EQ(served, 0) << "never inline";
  });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, 1);
  OnLoop([&] { half.Reset(); });
}

TEST_F(RingTest, WindowBoundsWhatOnePeerHoldsButForTwoSlots) {
  OnLoop([this] {
    const auto narrow = std::make_shared<RingWindow>(1024);
    RingSlot first = ring_->TryTake(4096, narrow);
    RingSlot second = ring_->TryTake(4096, narrow);
    EXPECT_TRUE(first.valid());
    EXPECT_TRUE(second.valid()) << "two are allowed, whatever their size";
    EXPECT_FALSE(ring_->TryTake(64, narrow).valid());
    EXPECT_TRUE(ring_->TryTake(64, all_).valid()) << "others have their own";
    first.Trim(256);
    second.Trim(256);
    EXPECT_TRUE(ring_->TryTake(512, narrow).valid()) << "what is given back counts no longer";
    EXPECT_FALSE(ring_->TryTake(576, narrow).valid());
  });
}

TEST_F(RingTest, WaitersOfAFullWindowLetOthersPassAndKeepTheirOrder) {
  std::vector<int> served;
  std::vector<RingSlot> granted;
  const auto grant = [&](int who) {
    return [&, who](RingSlot slot) {
      served.push_back(who);
      granted.push_back(std::move(slot));
    };
  };
  std::vector<RingSlot> stuck;
  OnLoop([&] {
    auto narrow = std::make_shared<RingWindow>(64);
    stuck.push_back(ring_->TryTake(64, narrow));
    stuck.push_back(ring_->TryTake(64, narrow));
    EXPECT_NE(ring_->Wait(64, narrow, grant(1)), 0u);
    EXPECT_NE(ring_->Wait(64, narrow, grant(2)), 0u);
    // The window is kept by those who use it, whoever made it.
    narrow.reset();
  });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, std::vector<int>());
  OnLoop([&] {
    EXPECT_TRUE(ring_->TryTake(kBytes / 2, all_).valid()) << "memory is free";
    stuck.pop_back();
  });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, (std::vector<int>{1}));
  OnLoop([&] { stuck.clear(); });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, (std::vector<int>{1, 2}));
  OnLoop([&] { granted.clear(); });
}

TEST_F(RingTest, WaiterForMemoryIsNotOvertakenByAnotherWindow) {
  int served = 0;
  RingSlot most;
  OnLoop([&] {
    most = ring_->TryTake(kBytes - 128, all_);
    const auto other = std::make_shared<RingWindow>(kBytes);
    EXPECT_NE(ring_->Wait(kBytes / 2, other, [&](RingSlot) { ++served; }), 0u);
    EXPECT_FALSE(ring_->TryTake(64, all_).valid()) << "before the queue was looked at";
  });
  scheduler_.RunFor(std::chrono::seconds(1));
  OnLoop([&] {
    EXPECT_FALSE(ring_->TryTake(64, all_).valid()) << "after";
    most.Reset();
  });
  scheduler_.RunFor(std::chrono::seconds(1));
  EXPECT_EQ(served, 1);
  OnLoop([&] { EXPECT_TRUE(ring_->TryTake(64, all_).valid()); });
}

}  // namespace
}  // namespace tokura
