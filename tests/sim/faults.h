#pragma once

// Faults of a simulated cluster: what they do, how long they last, and which states of operations
// they hit.

#include <array>
#include <cstdint>
#include <functional>

#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/memory_audit.h"

namespace tokura::sim {

enum class Fault : uint8_t {
  kNodeCrash,
  kNodePause,
  kClientCrash,
  kClientPause,
  kPartitionBoth,
  kPartitionOneWay,
  kReset,
  kZombie,
  kBitFlips,
  kLossyFrames,
  kPoolPause,
  kMemoryFlip,
};
inline constexpr size_t kFaults = 12;
const char* FaultName(Fault fault);

// What a client was in the middle of when a fault hit it.
enum class Stage : uint8_t {
  kIdle,
  kLookup,
  kAcquire,
  kGet,
  kPut,
  kOther,     // remove, stat
  kLease,     // holds one
  kOffer,     // a payload waits to be taken
  kTransfer,  // a payload is under way
  kCodec,     // between two layers of an encode or decode
};
inline constexpr size_t kStages = 10;
const char* StageName(Stage stage);

// Times each fault hit each stage.
using Coverage = std::array<std::array<uint64_t, kStages>, kFaults>;

class FaultInjector {
 public:
  // Tells which operations client `index` has outstanding, as a mask of 1 << Stage.
  using StagesOf = std::function<uint32_t(size_t index)>;
  FaultInjector(Cluster& cluster, Checker& checker, MemoryAudit& audit, StagesOf stages_of)
      : cluster_(cluster), checker_(checker), audit_(audit), stages_of_(std::move(stages_of)) {}

  // Inject a random fault; it ends by itself.
  void Inject();
  const Coverage& coverage() const { return coverage_; }
  uint64_t injected() const { return injected_; }
  uint64_t memory_flips() const { return memory_flips_; }
  // Whether bits are, or were since `since`, flipped anywhere.
  bool FlippedSince(TimePoint since) const { return flips_until_ >= since; }

 private:
  void Hit(Fault fault, size_t client);
  void HitAll(Fault fault);
  void InjectNodeFault(Fault fault, size_t node);
  void InjectClientFault(Fault fault, size_t client);
  void InjectLinkFault(Fault fault, size_t node, size_t client);
  void PauseHost(SimHost& host, Duration length, std::function<void()> then);
  void StartZombie(size_t node);
  void CrashClient(size_t index);
  void PausePool(SimHost& host, Duration length);
  void Later(Duration delay, std::function<void()> task);

  Cluster& cluster_;
  Checker& checker_;
  MemoryAudit& audit_;
  StagesOf stages_of_;
  Coverage coverage_{};
  uint64_t injected_ = 0;
  uint64_t memory_flips_ = 0;
  TimePoint flips_until_ = TimePoint::min();
};

}  // namespace tokura::sim
