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

// Sanitizers slow a run by an order of magnitude.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOKURA_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TOKURA_SANITIZED 1
#endif
#endif
#ifdef TOKURA_SANITIZED
constexpr uint64_t kSeeds = 100;
constexpr uint64_t kRepeatedSeeds = 10;
constexpr bool kSanitized = true;
#else
constexpr uint64_t kSeeds = 2000;
constexpr uint64_t kRepeatedSeeds = 100;
constexpr bool kSanitized = false;
#endif

uint64_t Of(const Workload::Statuses& statuses, absl::StatusCode code) {
  return statuses.at(static_cast<size_t>(code));
}

TEST_F(ClusterSimTest, NothingIsWrongUnderFaults) {
  const uint64_t errors = LogCounts().errors;
  ClusterSimCounts total;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ClusterSimOptions options;
    options.seed = seed;
    const ClusterSimResult result = RunClusterSim(options);
    ASSERT_THAT(result.violations, IsEmpty()) << "reproduce: tokura-sim --seed " << seed;
    ASSERT_GE(result.counts.operations, 500u);
    ASSERT_GE(result.counts.faults, 10u);
    total.Add(result.counts);
  }
  std::printf("%s", total.Format().c_str());
  EXPECT_EQ(LogCounts().errors, errors);
  // The runs did what they are for: hits, misses, refusals, cancels, detected flips.
  EXPECT_GT(total.blocks_verified, 100 * kSeeds);
  EXPECT_GT(total.joint_verified, kSeeds);
  EXPECT_GT(total.half_puts, kSeeds);
  EXPECT_GT(total.contested_puts, kSeeds);
  EXPECT_GT(Of(total.puts, absl::StatusCode::kOk), 50 * kSeeds);
  EXPECT_GT(Of(total.puts, absl::StatusCode::kResourceExhausted), kSeeds);
  EXPECT_GT(Of(total.puts, absl::StatusCode::kCancelled), kSeeds);
  EXPECT_GT(Of(total.gets, absl::StatusCode::kNotFound), kSeeds / 2);
  EXPECT_GT(Of(total.gets, absl::StatusCode::kDataLoss), kSeeds / 10);
  EXPECT_GT(total.memory_flips_met, kSeeds / 10);
  // Few seeds may leave a rare state of a rare fault out.
  EXPECT_TRUE(kSanitized || total.Missing().empty()) << ::testing::PrintToString(total.Missing());
}

TEST_F(ClusterSimTest, SameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= kRepeatedSeeds; ++seed) {
    ClusterSimOptions options;
    options.seed = seed;
    const ClusterSimResult one = RunClusterSim(options);
    const ClusterSimResult two = RunClusterSim(options);
    ASSERT_EQ(one.hash, two.hash) << "seed " << seed;
    ASSERT_EQ(one.counts.events, two.counts.events);
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
  constexpr uint64_t kSeedsMax = 400;
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
