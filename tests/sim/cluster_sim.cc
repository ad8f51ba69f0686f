#include "tests/sim/cluster_sim.h"

#include <algorithm>
#include <functional>

#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/memory_audit.h"
#include "tests/sim/quiescence.h"
#include "tests/sim/wire_witness.h"
#include "tests/sim/workload.h"

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ClusterSim {
 public:
  explicit ClusterSim(const ClusterSimOptions& options)
      : options_(options),
        cluster_({.seed = options.seed,
                  .node_bugs = options.node_bugs,
                  .client_bugs = options.client_bugs,
                  .coordinator_bugs = options.coordinator_bugs}),
        checker_(universe_),
        audit_(cluster_, checker_),
        witness_(cluster_.scheduler(), checker_),
        workload_(cluster_, universe_, checker_, audit_),
        faults_(cluster_, checker_, audit_, witness_,
                [this](size_t client) { return workload_.StagesOf(client); }),
        quiescence_(cluster_, universe_, checker_, audit_,
                    [this](const std::function<bool()>& condition, Duration limit) {
                      return WaitUntil(condition, limit);
                    }) {
    workload_.set_faults(&faults_);
    cluster_.network().set_witness(&witness_);
    cluster_.set_on_death([this](const SimHost& host) { witness_.OnDeath(host); });
    cluster_.scheduler().set_tracing(options.trace == ClusterSimOptions::Trace::kOn);
  }

  ClusterSimResult Run() {
    cluster_.scheduler().RunFor(milliseconds(cluster_.coordinated() ? 100 : 20));
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

  bool WaitUntil(const std::function<bool()>& condition, Duration limit) {
    const TimePoint end = cluster_.scheduler().Now() + limit;
    while (!condition() && cluster_.scheduler().Now() < end) {
      cluster_.scheduler().RunFor(milliseconds(20));
      Check();
    }
    return condition();
  }

  // Everybody agrees, everything is found, everything is let go of.
  void CheckEnd() {
    cluster_.scheduler().RunFor(cluster_.settling());
    Check();
    quiescence_.CheckMembership(witness_);
    cluster_.StopClients();
    cluster_.scheduler().RunFor(milliseconds(500));
    audit_.CheckAll();
    quiescence_.CheckNodesIdle();
    quiescence_.CheckIndexes();
    for (size_t i = 0; i < std::max<size_t>(2, cluster_.coordinators()); ++i) {
      cluster_.StartAuditor(cluster_.coordinated() ? i % cluster_.coordinators() : 0);
    }
    cluster_.scheduler().RunFor(milliseconds(500));
    quiescence_.CheckLookups();
    quiescence_.CheckHealing();
    quiescence_.CheckIndexes();
    quiescence_.CheckLeases();
    quiescence_.CheckRemoval();
    cluster_.StopClients();
    cluster_.scheduler().RunFor(milliseconds(50));
    cluster_.StopNodes();
    cluster_.scheduler().RunFor(milliseconds(100));
    cluster_.StopCoordinators();
    if (!WaitUntil([this] { return cluster_.AllEnded(); }, seconds(10))) {
      checker_.Violation("a process does not end");
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
    counts.direct_runs = direct_ ? 1 : 0;
    counts.blocks_verified = checker_.blocks_verified();
    counts.joint_verified = checker_.joint_blocks_verified();
    counts.sharded_puts = workload_.sharded();
    counts.half_puts = workload_.halves();
    counts.contested_puts = workload_.contested();
    counts.shared_leases = workload_.shared_leases();
    counts.carried_gets = workload_.carried();
    counts.parts_audited = audit_.parts_checked();
    counts.writers_gone = audit_.writers_gone();
    counts.wire_flips = cluster_.network().flipped_bits();
    counts.memory_flips = faults_.memory_flips();
    counts.memory_flips_met = checker_.memory_flips_found();
    counts.blocks_healed = quiescence_.healed();
    counts.probes = quiescence_.lookups();
    counts.leases_probed = quiescence_.leases();
    counts.snapshots = witness_.snapshots();
    counts.snapshot_chunks = witness_.snapshot_chunks();
    counts.orphans_told = witness_.orphans_told();
    counts.touches_told = witness_.touches_told();
    counts.incarnations_raised = witness_.incarnations_raised();
    counts.old_placements = witness_.old_placements_refused();
    counts.superseded = cluster_.superseded();
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
  WireWitness witness_;
  Workload workload_;
  FaultInjector faults_;
  Quiescence quiescence_;
  const bool direct_ = !cluster_.coordinated();
};

}  // namespace

ClusterSimResult RunClusterSim(const ClusterSimOptions& options) {
  return ClusterSim(options).Run();
}

}  // namespace tokura::sim
