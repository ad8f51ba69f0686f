// tokura-sim: run seeds of the simulated cluster and say which of them go wrong.

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "common/config.h"
#include "common/log.h"
#include "tests/sim/cluster_sim.h"

namespace tokura::sim {
namespace {

struct Arguments {
  int64_t seed = 1;
  int64_t seeds = 1;
  int64_t operations = 500;
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

void PrintTotals(const ClusterSimResult& total, int64_t seeds, int64_t failed) {
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%s", FormatCoverage(total.coverage).c_str());
  std::printf(
      "seeds %lld failed %lld operations %llu faults %llu events %llu\n"
      "blocks verified %llu missed %llu stored %llu refused %llu cancelled %llu\n"
      "bits flipped %llu losses detected %llu\n",
      static_cast<long long>(seeds), static_cast<long long>(failed), number(total.operations),
      number(total.faults), number(total.events), number(total.blocks_verified),
      number(total.blocks_missed), number(total.blocks_stored), number(total.blocks_refused),
      number(total.blocks_cancelled), number(total.flipped_bits), number(total.data_losses));
}

int Run(const Arguments& arguments) {
  SetLogLevel(LogLevel::kError);
  ClusterSimResult total;
  int64_t failed = 0;
  for (int64_t i = 0; i < arguments.seeds; ++i) {
    const auto seed = static_cast<uint64_t>(arguments.seed + i);
    const ClusterSimResult result = RunClusterSim(OptionsOf(arguments, seed));
    total.Add(result);
    if (arguments.seeds == 1) {
      std::printf("hash %016llx\n", static_cast<unsigned long long>(result.hash));
    }
    if (result.violations.empty()) {
      continue;
    }
    ++failed;
    for (const std::string& violation : result.violations) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), violation.c_str());
    }
    std::printf("reproduce: tokura-sim --seed %llu --ops %lld --bug %s\n",
                static_cast<unsigned long long>(seed), static_cast<long long>(arguments.operations),
                arguments.bug.c_str());
  }
  PrintTotals(total, arguments.seeds, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tokura::sim

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // What was found survives a kill by a time limit.
  tokura::sim::Arguments arguments;
  tokura::OptionTable table("tokura-sim", "Run a simulated cluster under faults from a seed.");
  table.AddInt("seed", &arguments.seed, "first seed");
  table.AddInt("seeds", &arguments.seeds, "number of seeds, one after another");
  table.AddInt("ops", &arguments.operations, "operations per seed, at least");
  table.AddBool("trace", &arguments.trace, "print every recorded event");
  table.AddChoice(
      "bug", &arguments.bug,
      {"none", "node-skip-crc", "node-evict-pinned", "node-accept-late-write", "client-skip-crc",
       "client-write-after-deadline", "client-accept-lower-incarnation"},
      "plant a bug, which the checker should find");
  table.AddExample("tokura-sim --seed 42 --ops 500", "runs one seed");
  const auto outcome = table.Parse({argv + 1, argv + argc});
  return outcome.run ? tokura::sim::Run(arguments) : outcome.exit_code;
}
