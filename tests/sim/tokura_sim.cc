// tokura-sim: run seeds of the simulated cluster and say which of them go wrong.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/config.h"
#include "common/log.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/sim_jobs.h"

namespace tokura::sim {
namespace {

constexpr char kNoBug[] = "none";

struct Arguments {
  int64_t seed = 1;
  int64_t seeds = 1;
  int64_t operations = 500;
  int64_t jobs = 1;
  bool trace = false;
  std::string bug = kNoBug;
};

std::vector<std::string> BugNames() {
  std::vector<std::string> names = {kNoBug};
  for (const PlantedBug& bug : AllPlantedBugs()) {
    names.emplace_back(bug.name);
  }
  return names;
}

void PrintResult(const Arguments& arguments, uint64_t seed, const ClusterSimResult& result) {
  const auto number = static_cast<unsigned long long>(seed);
  if (arguments.seeds == 1) {
    std::printf("hash %016llx\n", static_cast<unsigned long long>(result.hash));
  }
  for (const std::string& violation : result.violations) {
    std::printf("seed %llu: %s\n", number, violation.c_str());
  }
  if (!result.violations.empty()) {
    std::printf("reproduce: tokura-sim --seed %llu --ops %lld --bug %s\n", number,
                static_cast<long long>(arguments.operations), arguments.bug.c_str());
  }
  const auto done = static_cast<int64_t>(seed) - arguments.seed + 1;
  if (arguments.seeds > 1 && done % std::max<int64_t>(arguments.seeds / 20, 100) == 0) {
    std::printf("%lld of %lld seeds\n", static_cast<long long>(done),
                static_cast<long long>(arguments.seeds));
  }
}

int Run(const Arguments& arguments) {
  SetLogLevel(arguments.trace ? LogLevel::kInfo : LogLevel::kError);
  SimJobs jobs;
  jobs.options.operations = static_cast<uint32_t>(arguments.operations);
  jobs.options.trace =
      arguments.trace ? ClusterSimOptions::Trace::kOn : ClusterSimOptions::Trace::kOff;
  for (const PlantedBug& bug : AllPlantedBugs()) {
    if (arguments.bug == bug.name) {
      bug.plant(jobs.options);
    }
  }
  jobs.first_seed = static_cast<uint64_t>(arguments.seed);
  jobs.seeds = arguments.seeds;
  jobs.jobs = arguments.jobs;
  jobs.on_result = [&](uint64_t seed, const ClusterSimResult& result) {
    PrintResult(arguments, seed, result);
  };
  const SimJobsResult result = RunSimJobs(jobs);
  std::printf("%sfailed %llu\n", result.counts.Format().c_str(),
              static_cast<unsigned long long>(result.failed));
  return result.failed == 0 ? 0 : 1;
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
  table.AddBool("trace", &arguments.trace, "print every recorded event, and the processes' logs");
  table.AddChoice("bug", &arguments.bug, tokura::sim::BugNames(),
                  "plant a bug, which the checker should find");
  table.AddExample("tokura-sim --seed 42 --ops 500", "runs one seed");
  const auto outcome = table.Parse({argv + 1, argv + argc});
  if (!outcome.run) {
    return outcome.exit_code;
  }
  if (arguments.jobs < 1 || arguments.jobs > tokura::sim::kSimJobsMax || arguments.seeds < 1) {
    std::fprintf(stderr, "tokura-sim: --jobs takes 1 to 64, --seeds at least 1\n");
    return 2;
  }
  return tokura::sim::Run(arguments);
}
