// The lease state table, and that pins live exactly as long as leases and their uses.

#include "cache-node/lease.h"

#include <gtest/gtest.h>

#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

// Ascending tokens.
class CountingRandom final : public RandomSource {
 public:
  void Fill(std::span<std::byte> out) override {
    ++count_;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::byte>(i < 8 ? count_ >> (56 - 8 * i) : 0);
    }
  }

 private:
  uint64_t count_ = 0;
};

class LeaseTest : public ::testing::Test {
 protected:
  LeaseTest() : store_(MakeStore({.host_bytes = 4 << 20})) {
    for (uint64_t key = 1; key <= 4; ++key) {
      TOKURA_CHECK(PutBlock(*store_, {.key = key}, At(0)).ok());
    }
  }
  LeaseToken Acquire(uint64_t owner, double seconds, std::vector<BlockKey> keys = {Key(1)}) {
    auto token = table_.Acquire("t", owner, PinKeys(*store_, keys, At(seconds)), At(seconds));
    TOKURA_CHECK(token.ok());
    return *token;
  }
  uint64_t pinned() { return store_->stats().pinned_forms; }

  CountingRandom random_;
  std::unique_ptr<BlockStore> store_;
  LeaseTable table_{{.leases_max = 3}, random_};
};

TEST_F(LeaseTest, HoldsPinsUntilReleased) {
  const LeaseToken token = Acquire(1, 0, {Key(1), Key(2)});
  EXPECT_EQ(pinned(), 2u);
  EXPECT_TRUE(table_.Release(token, "t", At(1)));
  EXPECT_EQ(pinned(), 0u);
  EXPECT_FALSE(table_.Release(token, "t", At(1)));
  EXPECT_FALSE(table_.Renew(token, "t", At(1)));
  EXPECT_EQ(table_.Use(token, "t", 1, At(1)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(LeaseTest, ThePlantedBugReleasesWhatAnotherLeaseHolds) {
  LeaseTable broken({.release_twice = true}, random_);
  const auto first = broken.Acquire("t", 1, PinKeys(*store_, {Key(1), Key(2)}, At(0)), At(0));
  const auto second = broken.Acquire("t", 2, PinKeys(*store_, {Key(2), Key(3)}, At(0)), At(0));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(broken.Release(*first, "t", At(1)));
  EXPECT_EQ(pinned(), 2u);
  EXPECT_FALSE(broken.Release(*first, "t", At(1)));
  EXPECT_EQ(pinned(), 1u) << "block 2 is the second lease's";
  EXPECT_EQ(broken.stats().pins, 1u);
  broken.ReleaseOwner(2);
  EXPECT_EQ(broken.stats().pins, 0u);
}

TEST_F(LeaseTest, AnyConnectionOfTheTenantMayUseItAndNoOther) {
  const LeaseToken token = Acquire(1, 0);
  EXPECT_TRUE(table_.Use(token, "t", 2, At(1)).ok());
  EXPECT_FALSE(table_.Use(token, "other", 1, At(1)).ok());
  EXPECT_FALSE(table_.Renew(token, "other", At(1)));
  EXPECT_FALSE(table_.Release(token, "other", At(1)));
  EXPECT_EQ(pinned(), 1u);
}

TEST_F(LeaseTest, UseFindsTheLeasesPins) {
  const LeaseToken token = Acquire(1, 0, {Key(3), Key(1), Key(2)});
  auto use = table_.Use(token, "t", 2, At(1));
  ASSERT_TRUE(use.ok());
  ASSERT_EQ(use->pins().size(), 3u);
  EXPECT_EQ(use->pins()[0].key(), Key(3));
  EXPECT_EQ(use->Find(Space(), Key(2)), &use->pins()[2]);
  EXPECT_EQ(use->Find(Space(), Key(4)), nullptr);
  EXPECT_EQ(use->Find(Space(1), Key(2)), nullptr);
}

TEST_F(LeaseTest, EndsAtLeaseAgeWithoutRenewalOrProgress) {
  Acquire(1, 0);
  EXPECT_TRUE(table_.Sweep(At(9.9)).empty());
  EXPECT_EQ(pinned(), 1u);
  EXPECT_TRUE(table_.Sweep(At(10)).empty());  // nothing under way: gone at once
  EXPECT_EQ(pinned(), 0u);
  EXPECT_EQ(table_.stats().expired_total, 1u);
  EXPECT_EQ(table_.stats().leases, 0u);
}

TEST_F(LeaseTest, IsRefusedPastItsAgeEvenBeforeTheSweep) {
  const LeaseToken token = Acquire(1, 0);
  EXPECT_FALSE(table_.Renew(token, "t", At(10)));
  EXPECT_FALSE(table_.Use(token, "t", 1, At(10)).ok());
  EXPECT_FALSE(table_.Release(token, "t", At(10)));
  table_.Sweep(At(10));
}

TEST_F(LeaseTest, RenewalAndProgressExtendItUpToTheMaximumAge) {
  const LeaseToken token = Acquire(1, 0);
  for (int second = 5; second < 60; second += 5) {
    EXPECT_TRUE(second % 10 == 0 ? table_.Renew(token, "t", At(second))
                                 : table_.Use(token, "t", 1, At(second)).ok());
    EXPECT_TRUE(table_.Sweep(At(second)).empty());
    EXPECT_EQ(pinned(), 1u);
  }
  table_.Sweep(At(60));
  EXPECT_EQ(pinned(), 0u);
}

TEST_F(LeaseTest, ProgressOfATransferKeepsItAlive) {
  const LeaseToken token = Acquire(1, 0);
  auto use = table_.Use(token, "t", 1, At(0));
  for (int second = 6; second < 60; second += 6) {
    use->Progress(At(second));
    EXPECT_TRUE(table_.Sweep(At(second + 5)).empty());
  }
  EXPECT_EQ(table_.Sweep(At(60)).size(), 1u);
}

TEST_F(LeaseTest, ExpiryReportsTransfersAndUnpinsOnlyWhenTheyHaveEnded) {
  const LeaseToken token = Acquire(1, 0);
  auto a = table_.Use(token, "t", 5, At(0));
  auto b = table_.Use(token, "t", 3, At(0));
  auto c = table_.Use(token, "t", 3, At(0));
  std::vector<LeaseTable::Expired> expired = table_.Sweep(At(10));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].token, token);
  EXPECT_EQ(expired[0].owner, 1u);
  EXPECT_EQ(expired[0].connections, (std::vector<uint64_t>{3, 5}));
  EXPECT_EQ(table_.stats().closing, 1u);
  EXPECT_FALSE(table_.Use(token, "t", 5, At(10)).ok());
  b->Reset();
  c->Progress(At(11));  // too late to bring it back
  expired = table_.Sweep(At(11));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].connections, (std::vector<uint64_t>{3, 5}));
  c->Reset();
  EXPECT_EQ(table_.Sweep(At(12))[0].connections, std::vector<uint64_t>{5});
  EXPECT_EQ(pinned(), 1u);
  EXPECT_TRUE(BytesAreRight(a->pins()[0], 1, 1));
  a->Reset();
  EXPECT_EQ(pinned(), 0u);
  EXPECT_TRUE(table_.Sweep(At(13)).empty());
  EXPECT_EQ(table_.stats().leases, 0u);
  EXPECT_EQ(table_.stats().expired_total, 1u);
}

TEST_F(LeaseTest, ReleaseWithATransferUnderWayWaitsForIt) {
  const LeaseToken token = Acquire(1, 0);
  auto use = table_.Use(token, "t", 2, At(1));
  EXPECT_TRUE(table_.Release(token, "t", At(1)));
  EXPECT_FALSE(table_.Release(token, "t", At(1)));
  EXPECT_EQ(pinned(), 1u);
  EXPECT_TRUE(table_.Sweep(At(5)).empty());
  EXPECT_EQ(table_.Sweep(At(11)).size(), 1u);
  LeaseUse moved = std::move(*use);
  EXPECT_FALSE(use->valid());
  moved.Reset();
  EXPECT_EQ(pinned(), 0u);
}

TEST_F(LeaseTest, GoesWithTheConnectionThatAcquiredIt) {
  Acquire(1, 0, {Key(1)});
  const LeaseToken used = Acquire(1, 0, {Key(2)});
  const LeaseToken others = Acquire(2, 0, {Key(3)});
  auto use = table_.Use(used, "t", 2, At(0));
  table_.ReleaseOwner(1);
  EXPECT_EQ(pinned(), 2u);  // the transfer's and the other connection's
  EXPECT_FALSE(table_.Renew(used, "t", At(1)));
  EXPECT_TRUE(table_.Renew(others, "t", At(1)));
  use->Reset();
  EXPECT_EQ(pinned(), 1u);
}

TEST_F(LeaseTest, FullTableRefusesAndDropsThePins) {
  for (uint64_t i = 1; i <= 3; ++i) {
    Acquire(1, 0, {Key(i)});
  }
  const auto refused = table_.Acquire("t", 1, PinKeys(*store_, {Key(4)}, At(0)), At(0));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pinned(), 3u);
}

TEST(LeaseLimitsTest, PinsAndLeasesAreBoundedInAllAndPerOwner) {
  CountingRandom random;
  const std::unique_ptr<BlockStore> store = MakeStore({.host_bytes = 4 << 20});
  for (uint64_t key = 1; key <= 4; ++key) {
    ASSERT_TRUE(PutBlock(*store, {.key = key}, At(0)).ok());
  }
  LeaseTable::Options options;
  options.pins_max = 5;
  options.owner_pins_max = 3;
  options.owner_leases_max = 2;
  LeaseTable table(options, random);
  const auto acquire = [&](uint64_t owner, std::vector<BlockKey> keys) {
    return table.Acquire("t", owner, PinKeys(*store, keys, At(0)), At(0));
  };
  const auto first = acquire(1, {Key(1), Key(2)});
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(acquire(1, {Key(3), Key(4)}).status())) << "4 of 3 pins";
  EXPECT_TRUE(acquire(1, {Key(3)}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(acquire(1, {Key(4)}).status())) << "a third lease";
  EXPECT_TRUE(absl::IsResourceExhausted(acquire(2, {Key(1), Key(2), Key(3)}).status()));
  EXPECT_TRUE(acquire(2, {Key(1), Key(2)}).ok());
  EXPECT_EQ(table.stats().pins, 5u);
  EXPECT_TRUE(table.Release(*first, "t", At(0)));
  EXPECT_EQ(table.stats().pins, 3u);
  EXPECT_TRUE(acquire(1, {Key(1), Key(2)}).ok());
  table.ReleaseOwner(1);
  table.ReleaseOwner(2);
  EXPECT_EQ(table.stats().pins, 0u);
  EXPECT_EQ(store->stats().pinned_forms, 0u);
}

TEST(LeaseLimitsTest, OneOwnerCannotTakeEveryLease) {
  CountingRandom random;
  const std::unique_ptr<BlockStore> store = MakeStore({.host_bytes = 4 << 20});
  ASSERT_TRUE(PutBlock(*store, {.key = 1}, At(0)).ok());
  LeaseTable::Options options;
  options.owner_leases_max = 2;
  LeaseTable table(options, random);
  const auto acquire = [&](uint64_t owner) {
    return table.Acquire("t", owner, PinKeys(*store, {Key(1)}, At(0)), At(0));
  };
  EXPECT_TRUE(acquire(1).ok());
  EXPECT_TRUE(acquire(1).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(acquire(1).status()));
  EXPECT_TRUE(acquire(2).ok());
  table.ReleaseOwner(1);
  EXPECT_TRUE(acquire(1).ok());
}

// What the table does under its lock follows what is due or the owner's, not all that is held.
class LeaseWorkTest : public LeaseTest {
 protected:
  static constexpr int kOthers = 500;
  LeaseWorkTest() {
    for (int i = 0; i < kOthers; ++i) {
      Take(1, 5);
    }
  }
  LeaseToken Take(uint64_t owner, double seconds) {
    auto token = many_.Acquire("t", owner, PinKeys(*store_, {Key(1)}, At(seconds)), At(seconds));
    TOKURA_CHECK(token.ok());
    return *token;
  }
  uint64_t visited() { return many_.stats().visited_total; }

  LeaseTable many_{{}, random_};
};

TEST_F(LeaseWorkTest, AnOwnersEndVisitsItsOwnLeases) {
  Take(2, 5);
  Take(2, 5);
  many_.ReleaseOwner(3);
  EXPECT_EQ(visited(), 0u);
  many_.ReleaseOwner(2);
  EXPECT_EQ(visited(), 2u);
  EXPECT_EQ(many_.stats().leases, uint64_t{kOthers});
}

TEST_F(LeaseWorkTest, ASweepVisitsWhatIsDue) {
  Take(2, 0);
  many_.Sweep(At(9));
  EXPECT_EQ(visited(), 0u);
  many_.Sweep(At(10));
  EXPECT_EQ(visited(), 1u);
  EXPECT_EQ(many_.stats().leases, uint64_t{kOthers});
  many_.Sweep(At(15));
  EXPECT_EQ(visited(), 1u + kOthers);
  EXPECT_EQ(many_.stats().leases, 0u);
}

TEST_F(LeaseWorkTest, ALeaseThatIsKeptAliveIsVisitedOnceAnAge) {
  const LeaseToken kept = Take(2, 0);
  for (int tenth = 1; tenth < 140; ++tenth) {
    EXPECT_TRUE(many_.Renew(kept, "t", At(tenth / 10.0)));
    many_.Sweep(At(tenth / 10.0));
  }
  EXPECT_EQ(visited(), 1u);
  EXPECT_EQ(many_.stats().leases, 1u + kOthers);
}

TEST_F(LeaseWorkTest, ProgressThatArrivesLateDoesNotShortenALease) {
  const LeaseToken kept = Take(2, 0);
  EXPECT_TRUE(many_.Renew(kept, "t", At(4)));
  EXPECT_TRUE(many_.Renew(kept, "t", At(3)));
  many_.Sweep(At(13.5));
  EXPECT_TRUE(many_.Renew(kept, "t", At(13.5)));
}

TEST_F(LeaseWorkTest, ClosingLeasesAreCountedOnce) {
  const LeaseToken token = Take(2, 0);
  auto use = many_.Use(token, "t", 7, At(1));
  ASSERT_TRUE(use.ok());
  EXPECT_TRUE(many_.Release(token, "t", At(1)));
  many_.ReleaseOwner(2);
  EXPECT_EQ(many_.Sweep(At(11)).size(), 1u);
  EXPECT_EQ(many_.stats().closing, 1u);
  use->Reset();
  EXPECT_EQ(many_.stats().closing, 0u);
}

TEST_F(LeaseTest, PinsABlockOnce) {
  const auto twice =
      table_.Acquire("t", 1, PinKeys(*store_, {Key(1), Key(2), Key(1)}, At(0)), At(0));
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pinned(), 0u);
}

}  // namespace
}  // namespace tokura::node
