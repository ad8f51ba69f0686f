// Sequences of events that random runs seldom meet in the order that matters, each under many
// seeds.

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "tests/sim/scenario.h"

namespace tokura::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kSeeds = 20;

class ClusterScenarioTest : public ::testing::Test {
 protected:
  // Lost processes are what these runs are made of; they warn.
  ClusterScenarioTest() { SetLogLevel(LogLevel::kError); }
};

// ---- one lease, three processes ----

// The scheduler process acquires, each worker loads its shard, one of them dies meanwhile.
void ShareALease(uint64_t seed) {
  Scenario scenario({.seed = seed, .shape = ClusterShape{.clients = 3, .host_bytes = 64 * 1024}});
  constexpr size_t kEngine = 0, kWorker = 1, kVictim = 2;
  ASSERT_EQ(scenario.Put(kEngine, {.codec = "raw"}).stored(), kChainBlocks);
  ASSERT_TRUE(scenario.RunUntil(
      [&] { return scenario.Lookup(kEngine, 0).blocks() == kChainBlocks; }, seconds(2)));
  const Match held = scenario.Acquire(kEngine, 0, scenario.Lookup(kEngine, 0));
  ASSERT_EQ(held.blocks(), kChainBlocks);
  const absl::StatusOr<Match> carried = Match::Parse(held.Serialize());
  ASSERT_TRUE(carried.ok()) << carried.status();

  const Scenario::GetRef one =
      scenario.StartGet(kWorker, *carried, {.first_shard = 0, .shards = 1, .held = true});
  scenario.StartGet(kVictim, *carried, {.first_shard = 1, .shards = 1});
  scenario.RunFor(scenario.cluster().random().Between(Duration{0}, milliseconds(3)));
  scenario.cluster().CrashClient(kVictim);
  ASSERT_TRUE(scenario.RunUntil([&] { return one->has_value(); }, seconds(3)));
  EXPECT_EQ((*one)->prefix_ok(), kChainBlocks);
  EXPECT_GT(scenario.leases(), 0u) << "it is not the worker's";
  EXPECT_GE(scenario.pinned_forms(), kChainBlocks);
  EXPECT_EQ(scenario.Get(kWorker, *carried, {.held = true}).prefix_ok(), kChainBlocks);

  // Not by age: it has been used just now.
  scenario.cluster().CrashClient(kEngine);
  scenario.RunFor(milliseconds(100));
  EXPECT_EQ(scenario.leases(), 0u);
  EXPECT_EQ(scenario.pinned_forms(), 0u);
  EXPECT_THAT(scenario.End(), IsEmpty());
}

TEST_F(ClusterScenarioTest, ALeaseOutlivesItsWorkersAndEndsWithItsScheduler) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ASSERT_NO_FATAL_FAILURE(ShareALease(seed));
  }
}

// ---- what is looked up stays ----

constexpr uint32_t kHot = 0;
constexpr uint32_t kCold[] = {2, 3};

constexpr uint64_t kFillSeeds = 10;  // each a minute of the cluster's time

// What a block of the hot chain takes of a node's memory.
uint64_t BlockBytes() {
  Scenario scenario({.seed = 1, .shape = ClusterShape{}});
  EXPECT_EQ(scenario.Put(0, {.chain = kHot, .codec = "raw"}).stored(), kChainBlocks);
  const uint64_t bytes = scenario.used_bytes() / kChainBlocks;
  EXPECT_THAT(scenario.End(), IsEmpty());
  return bytes;
}

// Of one node, with room for the hot chain and some more, not for the cold ones as well. All blocks
// are of one size, so that what goes is what is worth least, and not what lies in the way.
ClusterOptions SmallCluster(uint64_t seed, uint64_t block_bytes) {
  return {.seed = seed, .shape = ClusterShape{.nodes = 1, .host_bytes = 29 * block_bytes / 2}};
}

// Others put the ends of two cold chains in turn, piece by piece, so that at each time one that is
// not in use could go; meanwhile the hot chain is looked up, or not.
void Fill(Scenario& scenario, Scenario::Touch lookups) {
  constexpr uint32_t kPieces = 16;
  constexpr uint32_t kPiece = 2;
  constexpr uint32_t kShared = 2;  // first blocks of both
  scenario.Put(0, {.chain = kCold[0], .variant = 2, .codec = "raw"});
  for (uint32_t piece = 0; piece < kPieces; ++piece) {
    // Nodes hear of a block's lookups about once in a second.
    for (int i = 0; i < 6; ++i) {
      scenario.RunFor(milliseconds(400));
      if (lookups == Scenario::Touch::kYes) {
        scenario.Lookup(1, kHot, Scenario::Touch::kYes);
      }
    }
    scenario.Put(0, {.chain = kCold[1 - piece / 2 % 2],
                     .variant = 3 + piece,
                     .first_block = kShared + piece % 2 * kPiece,
                     .blocks = kPiece,
                     .codec = "raw"});
  }
}

TEST_F(ClusterScenarioTest, APrefixThatIsOnlyLookedUpIsNotEvictedAsCold) {
  const uint64_t block_bytes = BlockBytes();
  uint64_t evicted = 0;
  for (uint64_t seed = 1; seed <= kFillSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    for (const Scenario::Touch lookups : {Scenario::Touch::kNo, Scenario::Touch::kYes}) {
      Scenario scenario(SmallCluster(seed, block_bytes));
      ASSERT_EQ(scenario.Put(0, {.chain = kHot, .codec = "raw"}).stored(), kChainBlocks);
      Fill(scenario, lookups);
      const size_t left = scenario.Lookup(1, kHot).blocks();
      if (lookups == Scenario::Touch::kYes) {
        EXPECT_EQ(left, kChainBlocks);
      } else {
        evicted += kChainBlocks - left;
      }
      EXPECT_THAT(scenario.End(), IsEmpty());
    }
  }
  EXPECT_GT(evicted, kFillSeeds) << "without lookups it would have to go";
}

// The first block stays looked up, the second goes.
constexpr uint32_t kGap = 1;
constexpr uint32_t kOrphans = kChainBlocks - kGap - 1;

void MakeOrphans(Scenario& scenario) {
  ASSERT_EQ(scenario.Put(0, {.chain = kHot, .codec = "raw"}).stored(), kChainBlocks);
  scenario.Lookup(1, kHot, Scenario::Touch::kYes);
  scenario.RunFor(milliseconds(300));
  ASSERT_EQ(scenario.orphaned_blocks(), 0u);
  scenario.Remove(0, kHot, kGap);
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.orphaned_blocks() == kOrphans; }, seconds(3)))
      << scenario.orphaned_blocks() << " orphans";
}

TEST_F(ClusterScenarioTest, OrphansAreMarkedWhereverTheyLie) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Scenario scenario({.seed = seed, .shape = ClusterShape{.nodes = 3}});
    ASSERT_NO_FATAL_FAILURE(MakeOrphans(scenario));
    // The gap is filled, and who looks the chain up takes them back.
    ASSERT_EQ(scenario.Put(0, {.chain = kHot, .codec = "raw"}).stored(), kChainBlocks);
    EXPECT_TRUE(scenario.RunUntil(
        [&] {
          scenario.Lookup(1, kHot, Scenario::Touch::kYes);
          return scenario.orphaned_blocks() == 0;
        },
        seconds(5)));
    EXPECT_EQ(scenario.Lookup(1, kHot).blocks(), kChainBlocks);
    EXPECT_THAT(scenario.End(), IsEmpty());
  }
}

TEST_F(ClusterScenarioTest, OrphansGoBeforeWhatIsLookedUp) {
  const uint64_t block_bytes = BlockBytes();
  for (uint64_t seed = 1; seed <= kFillSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Scenario scenario(SmallCluster(seed, block_bytes));
    ASSERT_NO_FATAL_FAILURE(MakeOrphans(scenario));
    Fill(scenario, Scenario::Touch::kYes);
    EXPECT_THAT(scenario.Held(kHot), ElementsAre(0u));
    EXPECT_THAT(scenario.End(), IsEmpty());
  }
}

// ---- holes ----

// Both nodes hold the chain whole; each loses other blocks of its middle, and then both the same.
void LoseTheMiddle(uint64_t seed, uint32_t chain) {
  constexpr uint32_t kLostByFirst = 4, kLostBySecond = 2, kLostByBoth = 3;
  constexpr size_t kReader = 0;
  Scenario scenario(
      {.seed = seed,
       .shape = ClusterShape{.coordinators = 2, .clients = 1, .host_bytes = 64 * 1024}});
  Cluster& cluster = scenario.cluster();
  const size_t at[] = {cluster.StartNodeClient(0), cluster.StartNodeClient(1)};
  scenario.RunFor(milliseconds(500));  // They meet their nodes.
  for (const size_t writer : at) {
    ASSERT_EQ(scenario.Put(writer, {.chain = chain, .codec = "raw"}).stored(), kChainBlocks);
  }
  ASSERT_EQ(scenario.blocks(), 2 * kChainBlocks);
  const auto found = [&] { return scenario.Lookup(kReader, chain); };
  // Every coordinator has heard of everything.
  const auto settle = [&] { scenario.RunFor(seconds(1)); };
  const auto holder_is = [&](uint32_t block, size_t node) {
    const Match match = found();
    return match.blocks() == kChainBlocks && match.HolderOf(block)->node == cluster.node(node).name;
  };
  const auto got = [&](const Match& match) {
    return scenario.Get(kReader, match, {.chain = chain}).prefix_ok();
  };
  settle();
  ASSERT_EQ(found().blocks(), kChainBlocks);

  // The coordinators have not heard of it yet: another copy is found, or the prefix is shorter.
  const Match before = found();
  scenario.Remove(at[1], chain, kLostBySecond);
  EXPECT_GE(got(before), kLostBySecond);
  scenario.Remove(at[0], chain, kLostByFirst);
  ASSERT_EQ(scenario.blocks(), 2 * kChainBlocks - 2);
  settle();
  EXPECT_TRUE(holder_is(kLostBySecond, 0));
  EXPECT_TRUE(holder_is(kLostByFirst, 1));
  EXPECT_EQ(got(found()), kChainBlocks) << "each has what the other lost";

  const Match whole = found();
  scenario.Remove(at[0], chain, kLostByBoth);
  scenario.Remove(at[1], chain, kLostByBoth);
  EXPECT_EQ(got(whole), kLostByBoth) << "what follows the hole is no prefix";
  settle();
  EXPECT_EQ(found().blocks(), kLostByBoth);
  EXPECT_EQ(got(found()), kLostByBoth);
  scenario.Put(kReader, {.chain = chain, .variant = 2, .codec = "raw"});
  settle();
  EXPECT_EQ(found().blocks(), kChainBlocks) << "the hole is closed";
  EXPECT_EQ(got(found()), kChainBlocks);
  EXPECT_THAT(scenario.End(), IsEmpty());
}

TEST_F(ClusterScenarioTest, AMiddleThatOneNodeLostComesFromTheOther) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const uint32_t chain : {0u, kFirstSlidingChain}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", chain ", chain));
      ASSERT_NO_FATAL_FAILURE(LoseTheMiddle(seed, chain));
    }
  }
}

// ---- the policy ----

class PolicyFile {
 public:
  explicit PolicyFile(const std::string& text)
      : path_(absl::StrCat(::testing::TempDir(), "/policy-", getpid(), ".yaml")) {
    std::ofstream(path_) << text;
  }
  ~PolicyFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

void LiveByThePolicy(uint64_t seed, const std::string& policy) {
  constexpr uint32_t kExact = kFirstSlidingChain;  // of the namespace that takes exact forms only
  const auto hit = [](size_t blocks) { return blocks == kChainBlocks; };
  Scenario scenario({.seed = seed,
                     .shape = ClusterShape{.coordinators = 2, .host_bytes = 64 * 1024},
                     .policy_file = policy});
  for (int life = 0; life < 2; ++life) {
    const auto variant = static_cast<Variant>(1 + 10 * life);
    ASSERT_EQ(scenario.Put(0, {.chain = 0, .variant = variant, .expected = "int8"}).stored(),
              kChainBlocks);
    scenario.Put(0, {.chain = kExact, .variant = variant + 1, .codec = "int8", .expected = "int8"});
    ASSERT_TRUE(scenario.RunUntil([&] { return hit(scenario.Lookup(1, 0).blocks()); }, seconds(1)));
    const GetResult got = scenario.Get(1, scenario.Lookup(1, 0), {.chain = 0});
    EXPECT_EQ(got.prefix_ok(), kChainBlocks);
    EXPECT_THAT(got.codecs, Each(std::string("int8")));
    if (life == 0) {
      EXPECT_EQ(scenario.Lookup(1, kExact).blocks(), 0u) << "it is there, and not exact";
      ASSERT_EQ(scenario.Put(0, {.chain = kExact, .variant = variant + 2, .codec = "raw"}).stored(),
                kChainBlocks);
      ASSERT_TRUE(
          scenario.RunUntil([&] { return hit(scenario.Lookup(1, kExact).blocks()); }, seconds(1)));
    }
    const GetResult exact = scenario.Get(1, scenario.Lookup(1, kExact), {.chain = kExact});
    EXPECT_THAT(exact.codecs, Each(std::string("raw")));
    scenario.RunFor(milliseconds(2500));
    EXPECT_EQ(scenario.Lookup(1, 0).blocks(), 0u) << "it has had its time";
    EXPECT_EQ(scenario.blocks(), kChainBlocks) << "nodes let go of it";
    EXPECT_EQ(scenario.Lookup(1, kExact).blocks(), kChainBlocks) << "it has no such limit";
    // Whoever follows in the holder's place has the same rules.
    scenario.cluster().CrashCoordinator(0, milliseconds(200));
    scenario.RunFor(seconds(3));
  }
  EXPECT_THAT(scenario.End(), IsEmpty());
}

TEST_F(ClusterScenarioTest, ClientsAndNodesLiveByThePolicy) {
  const PolicyFile policy(
      "rules:\n"
      "  - model: simulated\n"
      "    ingest_codec: int8\n"
      "    ttl: 2s\n"
      "  - model: sliding\n"
      "    max_error: 0\n");
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ASSERT_NO_FATAL_FAILURE(LiveByThePolicy(seed, policy.path()));
  }
}

}  // namespace
}  // namespace tokura::sim
