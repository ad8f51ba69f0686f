#include "tests/sim/cluster_sim.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/workload.h"

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClusterSim {
 public:
  explicit ClusterSim(const ClusterSimOptions& options)
      : options_(options),
        cluster_({options.seed, options.node_bugs, options.client_bugs}),
        checker_(universe_),
        workload_(cluster_, universe_, checker_),
        faults_(cluster_, [this](size_t client) { return workload_.StagesOf(client); }) {
    workload_.set_faults(&faults_);
    cluster_.scheduler().set_tracing(options.trace == ClusterSimOptions::Trace::kOn);
  }

  ClusterSimResult Run() {
    cluster_.scheduler().RunFor(milliseconds(20));
    RunOperations();
    cluster_.Heal();
    if (WaitUntil([this] { return workload_.idle(); }, seconds(12))) {
      CheckEnd();
    } else {
      checker_.Violation("operations remain");
    }
    return Result();
  }

 private:
  void RunOperations() {
    SimRandom& random = cluster_.random();
    // A fault about every so many operations, in bursts of load and of quiet.
    const uint64_t gap = std::max<uint64_t>(1, options_.operations / (options_.faults_min + 6));
    while (workload_.started() < options_.operations || faults_.injected() < options_.faults_min) {
      const uint64_t burst = random.Between(1, 6);
      for (uint64_t i = 0; i < burst; ++i) {
        workload_.StartRandom();
      }
      if (random.Below(gap) < burst) {
        cluster_.scheduler().RunFor(random.Between(Duration{0}, milliseconds(3)));
        faults_.Inject();
      }
      const bool quiet = random.Permille(100);
      cluster_.scheduler().RunFor(random.Between(Duration{0}, milliseconds(quiet ? 400 : 20)));
      workload_.Check();
    }
  }

  template <typename Condition>
  bool WaitUntil(Condition condition, Duration limit) {
    const TimePoint end = cluster_.scheduler().Now() + limit;
    while (!condition() && cluster_.scheduler().Now() < end) {
      cluster_.scheduler().RunFor(milliseconds(20));
      workload_.Check();
    }
    return condition();
  }

  // Nothing pinned, nothing leased, nothing incomplete, and an arena that empties.
  void CheckEnd() {
    cluster_.StopClients();
    // Everything whose age is limited is over after this.
    cluster_.scheduler().RunFor(seconds(4));
    workload_.Check();
    for (size_t i = 0; i < cluster_.nodes(); ++i) {
      const node::Node::Accounting got = cluster_.node(i).node->accounting();
      if (got.pinned_forms + got.leases + got.incomplete_blocks + got.connections != 0) {
        checker_.Violation(absl::StrCat("at the end node ", i, " has ", got.pinned_forms,
                                        " pinned forms, ", got.leases, " leases, ",
                                        got.incomplete_blocks, " incomplete blocks, ",
                                        got.connections, " connections"));
      }
    }
    RemoveEverything();
    for (size_t i = 0; i < cluster_.nodes(); ++i) {
      const node::Node::Accounting got = cluster_.node(i).node->accounting();
      if (got.used_bytes != 0 || got.blocks != 0) {
        checker_.Violation(absl::StrCat("node ", i, " is empty but holds ", got.used_bytes,
                                        " bytes, ", got.blocks, " blocks"));
      }
    }
    cluster_.StopClients();
    cluster_.scheduler().RunFor(milliseconds(50));
    cluster_.StopNodes();
    if (!WaitUntil([this] { return cluster_.AllEnded(); }, seconds(10))) {
      checker_.Violation("a process does not end");
    }
  }

  void RemoveEverything() {
    cluster_.StartAuditor();
    ClientProcess& auditor = cluster_.client(0);
    cluster_.scheduler().RunFor(seconds(3));
    int waiting = 0;
    for (uint32_t chain = 0; chain < kChains; ++chain) {
      const auto keys = universe_.chain(chain).keys();
      ++waiting;
      auditor.host->loop().Enter([&] {
        auditor.core->Remove(universe_.ns(), {keys.begin(), keys.end()},
                             [&waiting](const RemoveResult&) { --waiting; });
      });
    }
    if (!WaitUntil([&] { return waiting == 0; }, seconds(5))) {
      checker_.Violation("the final removal does not end");
    }
  }

  ClusterSimResult Result() {
    ClusterSimResult result;
    result.violations = checker_.violations();
    result.hash = cluster_.scheduler().hash();
    result.events = cluster_.scheduler().events();
    result.operations = workload_.started();
    result.faults = faults_.injected();
    result.blocks_verified = checker_.blocks_verified();
    result.blocks_missed = checker_.blocks_missed();
    result.blocks_stored = workload_.stored();
    result.blocks_refused = workload_.refused();
    result.blocks_cancelled = workload_.cancelled();
    result.flipped_bits = cluster_.network().flipped_bits();
    result.data_losses = workload_.data_losses();
    result.coverage = faults_.coverage();
    return result;
  }

  const ClusterSimOptions options_;
  KvUniverse universe_;
  Cluster cluster_;
  Checker checker_;
  Workload workload_;
  FaultInjector faults_;
};

}  // namespace

ClusterSimResult RunClusterSim(const ClusterSimOptions& options) {
  return ClusterSim(options).Run();
}

void ClusterSimResult::Add(const ClusterSimResult& other) {
  violations.insert(violations.end(), other.violations.begin(), other.violations.end());
  events += other.events;
  operations += other.operations;
  faults += other.faults;
  blocks_verified += other.blocks_verified;
  blocks_missed += other.blocks_missed;
  blocks_stored += other.blocks_stored;
  blocks_refused += other.blocks_refused;
  blocks_cancelled += other.blocks_cancelled;
  flipped_bits += other.flipped_bits;
  data_losses += other.data_losses;
  for (size_t fault = 0; fault < kFaults; ++fault) {
    for (size_t stage = 0; stage < kStages; ++stage) {
      coverage[fault][stage] += other.coverage[fault][stage];
    }
  }
}

std::string FormatCoverage(const Coverage& coverage) {
  std::string text = absl::StrFormat("%-18s", "fault x state");
  for (size_t stage = 0; stage < kStages; ++stage) {
    absl::StrAppendFormat(&text, "%9s", StageName(static_cast<Stage>(stage)));
  }
  text += "\n";
  for (size_t fault = 0; fault < kFaults; ++fault) {
    absl::StrAppendFormat(&text, "%-18s", FaultName(static_cast<Fault>(fault)));
    for (size_t stage = 0; stage < kStages; ++stage) {
      absl::StrAppendFormat(&text, "%9d", coverage[fault][stage]);
    }
    text += "\n";
  }
  return text;
}

std::vector<std::string> MissingCoverage(const Coverage& coverage) {
  std::vector<std::string> missing;
  for (size_t fault = 0; fault < kFaults; ++fault) {
    for (size_t stage = 0; stage < kStages; ++stage) {
      if (coverage[fault][stage] == 0) {
        missing.push_back(absl::StrCat(FaultName(static_cast<Fault>(fault)), " x ",
                                       StageName(static_cast<Stage>(stage))));
      }
    }
  }
  return missing;
}

}  // namespace tokura::sim
