// The simulated cluster's own tests: nothing is wrong under any seed, every kind of fault met every
// state, runs repeat, and planted bugs are found.

#include "tests/sim/cluster_sim.h"

#include <cstdio>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log.h"

namespace tokura::sim {
namespace {

using ::testing::IsEmpty;

class ClusterSimTest : public ::testing::Test {
 protected:
  // Refusals, lost nodes and flipped bits are what these runs are made of; they warn.
  ClusterSimTest() { SetLogLevel(LogLevel::kError); }
};

constexpr uint64_t kSeeds = 2000;

TEST_F(ClusterSimTest, NothingIsWrongUnderFaults) {
  const uint64_t errors = LogCounts().errors;
  ClusterSimResult total;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ClusterSimOptions options;
    options.seed = seed;
    const ClusterSimResult result = RunClusterSim(options);
    ASSERT_THAT(result.violations, IsEmpty()) << "reproduce: tokura-sim --seed " << seed;
    ASSERT_GE(result.operations, 500u);
    ASSERT_GE(result.faults, 10u);
    total.Add(result);
  }
  std::printf("%s", FormatCoverage(total.coverage).c_str());
  EXPECT_THAT(MissingCoverage(total.coverage), IsEmpty());
  EXPECT_EQ(LogCounts().errors, errors);
  // The runs did what they are for: hits, misses, refusals, cancels, detected flips.
  EXPECT_GT(total.blocks_verified, 100 * kSeeds);
  EXPECT_GT(total.blocks_missed, kSeeds);
  EXPECT_GT(total.blocks_refused, kSeeds);
  EXPECT_GT(total.blocks_cancelled, kSeeds);
  EXPECT_GT(total.data_losses, kSeeds / 20);
}

TEST_F(ClusterSimTest, SameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ClusterSimOptions options;
    options.seed = seed;
    const ClusterSimResult one = RunClusterSim(options);
    const ClusterSimResult two = RunClusterSim(options);
    ASSERT_EQ(one.hash, two.hash) << "seed " << seed;
    ASSERT_EQ(one.events, two.events);
  }
}

struct Planted {
  const char* name;
  std::function<void(ClusterSimOptions*)> plant;
};

TEST_F(ClusterSimTest, PlantedBugsAreFound) {
  const Planted bugs[] = {
      {"node skip_crc", [](ClusterSimOptions* o) { o->node_bugs.skip_crc = true; }},
      {"node evict_pinned", [](ClusterSimOptions* o) { o->node_bugs.evict_pinned = true; }},
      {"node accept_late_write",
       [](ClusterSimOptions* o) { o->node_bugs.accept_late_write = true; }},
      {"client skip_crc", [](ClusterSimOptions* o) { o->client_bugs.skip_crc = true; }},
      {"client write_after_deadline",
       [](ClusterSimOptions* o) { o->client_bugs.write_after_deadline = true; }},
      {"client accept_lower_incarnation",
       [](ClusterSimOptions* o) { o->client_bugs.accept_lower_incarnation = true; }},
  };
  constexpr uint64_t kSeedsMax = 1000;
  for (const Planted& bug : bugs) {
    uint64_t seed = 0;
    bool found = false;
    while (!found && ++seed <= kSeedsMax) {
      ClusterSimOptions options;
      options.seed = seed;
      bug.plant(&options);
      found = !RunClusterSim(options).violations.empty();
    }
    EXPECT_TRUE(found) << bug.name;
    std::printf("%s: found by seed %llu\n", bug.name, static_cast<unsigned long long>(seed));
  }
}

}  // namespace
}  // namespace tokura::sim
