#pragma once

// What must be true of a cluster in which nothing is wrong any more and nothing goes on: everybody
// agrees, on what is.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/memory_audit.h"
#include "tests/sim/wire_witness.h"

namespace tokura::sim {

class Quiescence {
 public:
  // Runs the scheduler until the condition holds, or the time is up: then false.
  using WaitUntil = std::function<bool(const std::function<bool()>& condition, Duration limit)>;
  Quiescence(Cluster& cluster, KvUniverse& universe, Checker& checker, MemoryAudit& audit,
             WaitUntil wait_until)
      : cluster_(cluster),
        universe_(universe),
        checker_(checker),
        audit_(audit),
        wait_until_(std::move(wait_until)) {}

  // While the clients still run: everybody knows the same members, which are all nodes.
  void CheckMembership(const WireWitness& witness);
  // After the clients have gone: nothing is pinned, leased or incomplete.
  void CheckNodesIdle();
  // Every coordinator's index is what the nodes hold.
  void CheckIndexes();
  // What is held with its whole prefix is found, through every coordinator, and can be had.
  void CheckLookups();
  // Damage some of what is held. Everything is looked up and loaded, so that it is met; then what
  // cannot be had can be put, and be had again.
  void CheckHealing();
  // One process's lease is its own: another's double release of the same blocks does not end it,
  // and a third process loads under it.
  void CheckLeases();
  // Remove every block; then nothing is left.
  void CheckRemoval();

  uint64_t lookups() const { return lookups_; }
  uint64_t leases() const { return leases_; }
  uint64_t healed() const { return healed_; }

 private:
  // The groups of each form held of each block; of all nodes or one.
  using Holdings = std::map<BlockKey, std::vector<uint32_t>>;
  Holdings HoldingsOf(size_t first_node, size_t nodes) const;
  // Whether all coordinators and clients go by the same epoch.
  bool Agree(const WireWitness& witness) const;
  size_t Usable(uint32_t chain, const Holdings& holdings) const;
  size_t Expected(uint32_t chain) const;
  void Look(ClientProcess& auditor, uint32_t chain);
  void Load(ClientProcess& auditor, uint32_t chain, const Match& match);
  void CheckChecksEnded();
  // Put one block of a chain; it must be stored.
  void PutAgain(ClientProcess& writer, uint32_t chain, uint32_t block);
  absl::Status PutOnce(ClientProcess& writer, uint32_t chain, uint32_t block);
  std::optional<Match> Hold(ClientProcess& auditor, uint32_t chain);
  void Await();
  uint64_t PinnedForms();
  void CheckNothingPinned();
  void CheckEmpty();

  Cluster& cluster_;
  KvUniverse& universe_;
  Checker& checker_;
  MemoryAudit& audit_;
  const WaitUntil wait_until_;
  int waiting_ = 0;
  std::set<std::pair<uint32_t, uint32_t>> lost_;  // blocks of chains found and not had
  Variant last_variant_ = uint32_t{1} << 30;      // beyond those of the workload
  uint64_t lookups_ = 0;
  uint64_t leases_ = 0;
  uint64_t healed_ = 0;
};

}  // namespace tokura::sim
