#pragma once

// Faults of a simulated cluster: what they do, how long they last, and which states of operations
// they hit.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/coverage.h"
#include "tests/sim/memory_audit.h"
#include "tests/sim/wire_witness.h"

namespace tokura::sim {

class FaultInjector {
 public:
  // Tells which operations client `index` has outstanding, as a mask of 1 << Stage.
  using StagesOf = std::function<uint32_t(size_t index)>;
  FaultInjector(Cluster& cluster, Checker& checker, MemoryAudit& audit, const WireWitness& witness,
                StagesOf stages_of)
      : cluster_(cluster),
        checker_(checker),
        audit_(audit),
        witness_(witness),
        stages_of_(std::move(stages_of)) {}

  // Inject a random fault; it ends by itself.
  void Inject();
  const Coverage& coverage() const { return coverage_; }
  uint64_t injected() const { return injected_; }
  uint64_t memory_flips() const { return memory_flips_; }
  // Whether bits are, or were since `since`, flipped anywhere.
  bool FlippedSince(TimePoint since) const { return flips_until_ >= since; }

 private:
  // What a fault is about, drawn for each.
  struct Target {
    size_t node = 0;
    size_t client = 0;
    size_t coordinator = 0;
  };
  bool Possible(Fault fault, const Target& target) const;
  void Hit(Fault fault, size_t client);
  void HitAll(Fault fault);
  void Strike(Fault fault, const Target& target);
  void InjectNodeFault(Fault fault, size_t node);
  void InjectClientFault(Fault fault, size_t client);
  void InjectCoordinatorFault(Fault fault, const Target& target);
  void InjectLinkFault(Fault fault, const Target& target);
  void PauseHost(SimHost& host, Duration length, std::function<void()> then);
  void StartZombie(size_t node);
  void SplitViews(size_t node);
  void CrashClient(size_t index);
  void PausePool(SimHost& host, Duration length);
  enum class Directions { kOne, kBoth };
  void Cut(const std::string& one, const std::string& other, Directions directions,
           Duration length);
  Duration Downtime();
  void Later(Duration delay, std::function<void()> task);

  Cluster& cluster_;
  Checker& checker_;
  MemoryAudit& audit_;
  const WireWitness& witness_;
  StagesOf stages_of_;
  Coverage coverage_{};
  uint64_t injected_ = 0;
  uint64_t memory_flips_ = 0;
  TimePoint flips_until_ = TimePoint::min();
};

}  // namespace tokura::sim
