// The simulated cluster's own tests: nothing is wrong under any seed, every kind of fault met every
// state, runs repeat, and planted bugs are found.

#include "tests/sim/cluster_sim.h"

#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/sim_jobs.h"

namespace tokura::sim {
namespace {

using ::testing::IsEmpty;

class ClusterSimTest : public ::testing::Test {
 protected:
  // Refusals, lost nodes and flipped bits are what these runs are made of; they warn.
  ClusterSimTest() { SetLogLevel(LogLevel::kError); }
};

constexpr int64_t kJobs = 2;

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

uint64_t Of(const Statuses& statuses, absl::StatusCode code) {
  return statuses.at(static_cast<size_t>(code));
}

TEST_F(ClusterSimTest, NothingIsWrongUnderFaults) {
  SimJobs jobs;
  jobs.seeds = kSeeds;
  jobs.jobs = kJobs;
  jobs.failures_max = 5;
  jobs.on_result = [](uint64_t seed, const ClusterSimResult& result) {
    EXPECT_THAT(result.violations, IsEmpty()) << "reproduce: tokura-sim --seed " << seed;
  };
  const SimJobsResult result = RunSimJobs(jobs);
  const ClusterSimCounts& total = result.counts;
  std::printf("%s", total.Format().c_str());
  ASSERT_EQ(result.failed, 0u) << "reproduce: tokura-sim --seed " << result.first_bad;
  EXPECT_EQ(result.errors, total.superseded);  // What zombies end with, and nothing else.
  EXPECT_GE(total.operations, 500u * kSeeds);
  EXPECT_GE(total.faults, 10u * kSeeds);
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

TEST_F(ClusterSimTest, PlantedBugsAreFound) {
  for (const PlantedBug& bug : AllPlantedBugs()) {
    SimJobs jobs;
    bug.plant(jobs.options);
    jobs.seeds = bug.seeds_max;
    jobs.jobs = kJobs;
    jobs.failures_max = 1;
    const SimJobsResult result = RunSimJobs(jobs);
    EXPECT_GT(result.failed, 0u) << bug.name;
    std::printf("%s: found by seed %llu\n", bug.name,
                static_cast<unsigned long long>(result.first_bad));
  }
}

}  // namespace
}  // namespace tokura::sim
