// tokura-sim: run seeds of the simulated cluster and say which of them go wrong.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/config.h"
#include "common/log.h"
#include "tests/sim/cluster_sim.h"

namespace tokura::sim {
namespace {

constexpr int64_t kJobsMax = 64;

struct Arguments {
  int64_t seed = 1;
  int64_t seeds = 1;
  int64_t operations = 500;
  int64_t jobs = 1;
  bool trace = false;
  std::string bug = "none";
};

ClusterSimOptions OptionsOf(const Arguments& arguments, uint64_t seed) {
  ClusterSimOptions options;
  options.seed = seed;
  options.operations = static_cast<uint32_t>(arguments.operations);
  options.trace = arguments.trace ? ClusterSimOptions::Trace::kOn : ClusterSimOptions::Trace::kOff;
  options.node_bugs.skip_crc = arguments.bug == "node-skip-crc";
  options.node_bugs.evict_pinned = arguments.bug == "node-evict-pinned";
  options.node_bugs.accept_late_write = arguments.bug == "node-accept-late-write";
  options.client_bugs.skip_crc = arguments.bug == "client-skip-crc";
  options.client_bugs.write_after_deadline = arguments.bug == "client-write-after-deadline";
  options.client_bugs.accept_lower_incarnation = arguments.bug == "client-accept-lower-incarnation";
  return options;
}

void PrintFailure(const Arguments& arguments, uint64_t seed) {
  std::printf("reproduce: tokura-sim --seed %llu --ops %lld --bug %s\n",
              static_cast<unsigned long long>(seed), static_cast<long long>(arguments.operations),
              arguments.bug.c_str());
}

// Runs one seed, adds to `counts`; whether nothing went wrong.
bool RunSeed(const Arguments& arguments, uint64_t seed, ClusterSimCounts* counts) {
  const ClusterSimResult result = RunClusterSim(OptionsOf(arguments, seed));
  counts->Add(result.counts);
  if (arguments.seeds == 1) {
    std::printf("hash %016llx\n", static_cast<unsigned long long>(result.hash));
  }
  for (const std::string& violation : result.violations) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), violation.c_str());
  }
  if (!result.violations.empty()) {
    PrintFailure(arguments, seed);
  }
  return result.violations.empty();
}

// One process's share, in memory that all share: what it did survives its crash.
struct Share {
  uint64_t seed = 0;  // under way; 0: none
  uint64_t failed = 0;
  ClusterSimCounts counts;
};

struct Board {
  std::atomic<int64_t> done{0};
  Share shares[kJobsMax];
};

void RunShare(const Arguments& arguments, int64_t job, Board* board) {
  Share& share = board->shares[job];
  const int64_t mark = std::max<int64_t>(arguments.seeds / 20, 100);
  for (int64_t i = job; i < arguments.seeds; i += arguments.jobs) {
    share.seed = static_cast<uint64_t>(arguments.seed + i);
    share.failed += RunSeed(arguments, share.seed, &share.counts) ? 0 : 1;
    share.seed = 0;
    const int64_t done = board->done.fetch_add(1) + 1;
    if (done % mark == 0) {
      std::printf("%lld of %lld seeds\n", static_cast<long long>(done),
                  static_cast<long long>(arguments.seeds));
    }
  }
}

// Forks one process for each job, so that a broken invariant, which ends a process, costs one
// process and is told with its seed.
uint64_t RunJobs(const Arguments& arguments, Board* board) {
  std::vector<pid_t> children;
  for (int64_t job = 0; job < arguments.jobs; ++job) {
    const pid_t child = fork();
    if (child == 0) {
      RunShare(arguments, job, board);
      std::fflush(stdout);
      _exit(0);
    }
    TOKURA_CHECK(child > 0);
    children.push_back(child);
  }
  uint64_t failed = 0;
  for (size_t job = 0; job < children.size(); ++job) {
    int status = 0;
    TOKURA_CHECK(waitpid(children[job], &status, 0) == children[job]);
    failed += board->shares[job].failed;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      ++failed;
      std::printf("seed %llu: the process died\n",
                  static_cast<unsigned long long>(board->shares[job].seed));
      PrintFailure(arguments, board->shares[job].seed);
    }
  }
  return failed;
}

int Run(const Arguments& arguments) {
  SetLogLevel(LogLevel::kError);
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TOKURA_CHECK(memory != MAP_FAILED);
  auto* const board = new (memory) Board;
  uint64_t failed = 0;
  if (arguments.seeds == 1) {
    RunShare(arguments, 0, board);
    failed = board->shares[0].failed;
  } else {
    failed = RunJobs(arguments, board);
  }
  ClusterSimCounts total;
  for (const Share& share : board->shares) {
    total.Add(share.counts);
  }
  std::printf("%sfailed %llu\n", total.Format().c_str(), static_cast<unsigned long long>(failed));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tokura::sim

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // What was found survives a kill by a time limit.
  tokura::sim::Arguments arguments;
  tokura::OptionTable table("tokura-sim", "Run a simulated cluster under faults from a seed.");
  table.AddInt("seed", &arguments.seed, "first seed");
  table.AddInt("seeds", &arguments.seeds, "number of seeds");
  table.AddInt("jobs", &arguments.jobs, "processes that share the seeds, 1 to 64");
  table.AddInt("ops", &arguments.operations, "operations per seed, at least");
  table.AddBool("trace", &arguments.trace, "print every recorded event");
  table.AddChoice(
      "bug", &arguments.bug,
      {"none", "node-skip-crc", "node-evict-pinned", "node-accept-late-write", "client-skip-crc",
       "client-write-after-deadline", "client-accept-lower-incarnation"},
      "plant a bug, which the checker should find");
  table.AddExample("tokura-sim --seed 42 --ops 500", "runs one seed");
  const auto outcome = table.Parse({argv + 1, argv + argc});
  if (!outcome.run) {
    return outcome.exit_code;
  }
  if (arguments.jobs < 1 || arguments.jobs > tokura::sim::kJobsMax || arguments.seeds < 1) {
    std::fprintf(stderr, "tokura-sim: --jobs takes 1 to 64, --seeds at least 1\n");
    return 2;
  }
  return tokura::sim::Run(arguments);
}
