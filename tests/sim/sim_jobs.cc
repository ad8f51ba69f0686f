#include "tests/sim/sim_jobs.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/log.h"

namespace tokura::sim {
namespace {

// One process's share, in memory that all share: what it did survives its crash.
struct Share {
  uint64_t seed = 0;  // under way; 0: none
  SimJobsResult result;
};

struct Board {
  std::atomic<int64_t> next{0};  // seeds are handed out in order
  std::atomic<uint64_t> failed{0};
  Share shares[kSimJobsMax];
};

void Fail(SimJobsResult& result, uint64_t seed) {
  ++result.failed;
  result.first_bad = result.first_bad == 0 ? seed : std::min(result.first_bad, seed);
}

void RunShare(const SimJobs& jobs, Board& board, Share& share) {
  const uint64_t errors = LogCounts().errors;
  while (board.failed < jobs.failures_max) {
    const int64_t index = board.next.fetch_add(1);
    if (index >= jobs.seeds) {
      break;
    }
    share.seed = jobs.first_seed + static_cast<uint64_t>(index);
    ClusterSimOptions options = jobs.options;
    options.seed = share.seed;
    const ClusterSimResult result = RunClusterSim(options);
    share.result.counts.Add(result.counts);
    share.result.errors = LogCounts().errors - errors;
    if (!result.violations.empty()) {
      Fail(share.result, share.seed);
      ++board.failed;
    }
    if (jobs.on_result) {
      jobs.on_result(share.seed, result);
    }
    share.seed = 0;
  }
}

// A process that was killed or ended by a broken invariant is one seed that went wrong.
void WaitFor(pid_t child, Share& share) {
  int status = 0;
  TOKURA_CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::printf("seed %llu: the process died\n", static_cast<unsigned long long>(share.seed));
    Fail(share.result, share.seed);
  }
}

}  // namespace

SimJobsResult RunSimJobs(const SimJobs& jobs) {
  TOKURA_CHECK(jobs.jobs >= 1 && jobs.jobs <= kSimJobsMax);
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TOKURA_CHECK(memory != MAP_FAILED);
  Board& board = *new (memory) Board;
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int64_t job = 0; job < jobs.jobs; ++job) {
    const pid_t child = fork();
    if (child == 0) {
      RunShare(jobs, board, board.shares[job]);
      std::fflush(stdout);
      _exit(0);
    }
    TOKURA_CHECK(child > 0);
    children.push_back(child);
  }
  SimJobsResult total;
  for (size_t job = 0; job < children.size(); ++job) {
    Share& share = board.shares[job];
    WaitFor(children[job], share);
    total.counts.Add(share.result.counts);
    total.failed += share.result.failed;
    total.errors += share.result.errors;
    const uint64_t bad = share.result.first_bad;
    if (bad != 0) {
      total.first_bad = total.first_bad == 0 ? bad : std::min(total.first_bad, bad);
    }
  }
  TOKURA_CHECK(munmap(memory, sizeof(Board)) == 0);
  return total;
}

}  // namespace tokura::sim
