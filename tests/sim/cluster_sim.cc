#include "tests/sim/cluster_sim.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/memory_audit.h"
#include "tests/sim/workload.h"

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct NamedCount {
  const char* name;
  uint64_t ClusterSimCounts::*member;
};

constexpr NamedCount kCounts[] = {
    {"runs", &ClusterSimCounts::runs},
    {"events", &ClusterSimCounts::events},
    {"operations", &ClusterSimCounts::operations},
    {"faults", &ClusterSimCounts::faults},
    {"two_loop_runs", &ClusterSimCounts::two_loop_runs},
    {"blocks_verified", &ClusterSimCounts::blocks_verified},
    {"joint_verified", &ClusterSimCounts::joint_verified},
    {"sharded_puts", &ClusterSimCounts::sharded_puts},
    {"half_puts", &ClusterSimCounts::half_puts},
    {"contested_puts", &ClusterSimCounts::contested_puts},
    {"parts_audited", &ClusterSimCounts::parts_audited},
    {"writers_gone", &ClusterSimCounts::writers_gone},
    {"wire_flips", &ClusterSimCounts::wire_flips},
    {"memory_flips", &ClusterSimCounts::memory_flips},
    {"memory_flips_met", &ClusterSimCounts::memory_flips_met},
    {"probes", &ClusterSimCounts::probes},
};

std::string FormatStatuses(const char* what, const Workload::Statuses& statuses) {
  std::string text = absl::StrFormat("%-18s", what);
  for (size_t code = 0; code < statuses.size(); ++code) {
    if (statuses[code] > 0) {
      absl::StrAppend(&text, " ", absl::StatusCodeToString(static_cast<absl::StatusCode>(code)),
                      " ", statuses[code]);
    }
  }
  return text + "\n";
}

class ClusterSim {
 public:
  explicit ClusterSim(const ClusterSimOptions& options)
      : options_(options),
        cluster_({options.seed, options.node_bugs, options.client_bugs}),
        checker_(universe_),
        audit_(cluster_, checker_),
        workload_(cluster_, universe_, checker_, audit_),
        faults_(cluster_, checker_, audit_,
                [this](size_t client) { return workload_.StagesOf(client); }) {
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
      Check();
    }
  }

  void Check() {
    workload_.Check();
    audit_.Check();
  }

  template <typename Condition>
  bool WaitUntil(Condition condition, Duration limit) {
    const TimePoint end = cluster_.scheduler().Now() + limit;
    while (!condition() && cluster_.scheduler().Now() < end) {
      cluster_.scheduler().RunFor(milliseconds(20));
      Check();
    }
    return condition();
  }

  // Nothing pinned, nothing leased, nothing incomplete, and an arena that empties.
  void CheckEnd() {
    cluster_.StopClients();
    // Everything whose age is limited is over after this.
    cluster_.scheduler().RunFor(seconds(4));
    Check();
    audit_.CheckAll();
    for (size_t i = 0; i < cluster_.nodes(); ++i) {
      const node::Node::Accounting got = cluster_.node(i).node->accounting();
      if (got.pinned_forms + got.leases + got.incomplete_blocks + got.connections != 0) {
        checker_.Violation(absl::StrCat("at the end node ", i, " has ", got.pinned_forms,
                                        " pinned forms, ", got.leases, " leases, ",
                                        got.incomplete_blocks, " incomplete blocks, ",
                                        got.connections, " connections"));
      }
    }
    cluster_.StartAuditor();
    cluster_.scheduler().RunFor(seconds(3));
    Probe();
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

  // Lookups, touching or not, pin nothing and lease nothing.
  void Probe() {
    ClientProcess& auditor = cluster_.client(0);
    int waiting = 0;
    for (int i = 0; i < 10; ++i) {
      LookupOptions options;
      options.touch = i % 2 == 0;
      ++waiting;
      auditor.host->loop().Enter([&] {
        auditor.core->Lookup(universe_.ns(), universe_.chain(static_cast<uint32_t>(i) % kChains),
                             options, [&](const absl::StatusOr<Match>&) {
                               --waiting;
                               ++probes_;
                               CheckNothingPinned();
                             });
      });
    }
    if (!WaitUntil([&] { return waiting == 0; }, seconds(5))) {
      checker_.Violation("a probe does not end");
    }
  }

  void CheckNothingPinned() {
    for (size_t i = 0; i < cluster_.nodes(); ++i) {
      const node::Node::Accounting got = cluster_.node(i).node->accounting();
      if (got.pinned_forms + got.leases != 0) {
        checker_.Violation(absl::StrCat("after a probe node ", i, " has ", got.pinned_forms,
                                        " pinned forms, ", got.leases, " leases"));
      }
    }
  }

  void RemoveEverything() {
    ClientProcess& auditor = cluster_.client(0);
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
    ClusterSimCounts& counts = result.counts;
    counts.runs = 1;
    counts.events = cluster_.scheduler().events();
    counts.operations = workload_.started();
    counts.faults = faults_.injected();
    counts.two_loop_runs = cluster_.node_loops() == 2 ? 1 : 0;
    counts.blocks_verified = checker_.blocks_verified();
    counts.joint_verified = checker_.joint_blocks_verified();
    counts.sharded_puts = workload_.sharded();
    counts.half_puts = workload_.halves();
    counts.contested_puts = workload_.contested();
    counts.parts_audited = audit_.parts_checked();
    counts.writers_gone = audit_.writers_gone();
    counts.wire_flips = cluster_.network().flipped_bits();
    counts.memory_flips = faults_.memory_flips();
    counts.memory_flips_met = checker_.memory_flips_found();
    counts.probes = probes_;
    counts.puts = workload_.put_statuses();
    counts.gets = workload_.get_statuses();
    counts.coverage = faults_.coverage();
    return result;
  }

  const ClusterSimOptions options_;
  KvUniverse universe_;
  Cluster cluster_;
  Checker checker_;
  MemoryAudit audit_;
  Workload workload_;
  uint64_t probes_ = 0;
  FaultInjector faults_;
};

}  // namespace

ClusterSimResult RunClusterSim(const ClusterSimOptions& options) {
  return ClusterSim(options).Run();
}

void ClusterSimCounts::Add(const ClusterSimCounts& other) {
  for (const NamedCount& count : kCounts) {
    this->*count.member += other.*count.member;
  }
  for (size_t code = 0; code < puts.size(); ++code) {
    puts[code] += other.puts[code];
    gets[code] += other.gets[code];
  }
  for (size_t fault = 0; fault < kFaults; ++fault) {
    for (size_t stage = 0; stage < kStages; ++stage) {
      coverage[fault][stage] += other.coverage[fault][stage];
    }
  }
}

std::string ClusterSimCounts::Format() const {
  std::string text;
  for (const NamedCount& count : kCounts) {
    absl::StrAppendFormat(&text, "%-18s%12d\n", count.name, this->*count.member);
  }
  absl::StrAppend(&text, FormatStatuses("blocks put", puts), FormatStatuses("blocks got", gets));
  absl::StrAppendFormat(&text, "%-18s", "fault x state");
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

std::vector<std::string> ClusterSimCounts::Missing() const {
  std::vector<std::string> missing;
  for (const NamedCount& count : kCounts) {
    if (this->*count.member == 0) {
      missing.push_back(count.name);
    }
  }
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
