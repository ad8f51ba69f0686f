#include "cache-node/check_budget.h"

#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

CheckBudget::Block Block(uint64_t number) {
  return {Space(), Key(number)};
}

TEST(CheckBudgetTest, ABlockIsCheckedOnceAtATime) {
  CheckBudget budget;
  CheckBudget::Leave first = budget.Take(Block(1), 100, At(1));
  EXPECT_TRUE(first.valid());
  EXPECT_FALSE(budget.Take(Block(1), 100, At(1)).valid());
  CheckBudget::Leave moved = std::move(first);
  EXPECT_FALSE(budget.Take(Block(1), 100, At(1)).valid()) << "moving ends nothing";
  moved.End();
  EXPECT_TRUE(budget.Take(Block(1), 100, At(1)).valid());
  EXPECT_TRUE(budget.Take(Block(1), 100, At(1)).valid()) << "a leave that is dropped is over";
}

TEST(CheckBudgetTest, FewBlocksAreCheckedAtTheSameTime) {
  CheckBudget budget({.at_once = 2});
  CheckBudget::Leave one = budget.Take(Block(1), 100, At(1));
  CheckBudget::Leave two = budget.Take(Block(2), 100, At(1));
  EXPECT_FALSE(budget.Take(Block(3), 100, At(1)).valid());
  one.End();
  EXPECT_TRUE(budget.Take(Block(3), 100, At(1)).valid());
}

TEST(CheckBudgetTest, SoundBytesArePaidForAndDamagedOnesAreNot) {
  CheckBudget budget({.burst_bytes = 1000, .sound_bytes_per_second = 100});
  for (int i = 0; i < 100; ++i) {
    CheckBudget::Leave damaged = budget.Take(Block(1), 900, At(1));
    ASSERT_TRUE(damaged.valid()) << i;
    damaged.Refund(900);
  }
  EXPECT_TRUE(budget.Take(Block(1), 900, At(1)).valid());
  EXPECT_TRUE(budget.Take(Block(1), 300, At(1)).valid()) << "while some is left, of any size";
  EXPECT_FALSE(budget.Take(Block(1), 1, At(2)).valid()) << "200 are owed, 100 have been earned";
  EXPECT_FALSE(budget.Take(Block(1), 1, At(1)).valid()) << "another loop's clock";
  EXPECT_TRUE(budget.Take(Block(1), 1, At(3.5)).valid());
  // Time earns no more than the burst.
  EXPECT_TRUE(budget.Take(Block(1), 1000, At(100'000)).valid());
  EXPECT_FALSE(budget.Take(Block(1), 1, At(100'000)).valid());
}

}  // namespace
}  // namespace tokura::node
