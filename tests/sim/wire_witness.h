#pragma once

// Reads what a cluster's processes say to each other, as it lies on the wire, and says when one of
// them breaks the protocol (proto/WIRE.md, section 7), whatever its own view is.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/ids.h"
#include "common/net/frame.h"
#include "proto/cluster.pb.h"
#include "tests/sim/checker.h"
#include "tests/sim/transport.h"

namespace tokura::sim {

class WireWitness final : public NetworkWitness {
 public:
  // Both outlive it.
  WireWitness(const SimScheduler& scheduler, Checker& checker)
      : scheduler_(scheduler), checker_(checker) {}

  void OnSent(const Message& message) override;
  void OnDelivered(const Message& message) override;
  // Nothing is under way with this process any more.
  void OnDeath(const SimHost& host);

  // Whether some node's inventory is not complete at a coordinator that has registered it.
  bool SnapshotUnderWay() const { return !incomplete_.empty(); }
  // Whether a holder has admitted this process of a node, and it has heard so.
  bool Admitted(const SimHost& node) const { return admitted_nodes_.count(&node) != 0; }
  // The highest epoch that this process has named; 0: none.
  uint64_t EpochOf(const SimHost& host) const;

  uint64_t snapshots() const { return snapshots_; }
  uint64_t snapshot_chunks() const { return snapshot_chunks_; }
  uint64_t orphans_told() const { return orphans_told_; }
  uint64_t touches_told() const { return touches_told_; }
  uint64_t incarnations_raised() const { return incarnations_raised_; }
  uint64_t old_placements_refused() const { return old_placements_refused_; }

 private:
  using Request = std::pair<uint64_t, uint64_t>;             // connection and number
  using Stream = std::pair<const SimHost*, const SimHost*>;  // node, coordinator
  using Admission = std::pair<const SimHost*, std::string>;  // coordinator, node's name
  struct Life {
    uint64_t incarnation = 0;
    std::set<BlockKey> announced;
  };

  void OnWatchSent(const Message& message);
  void OnRegisterAnswered(const Message& message, const net::FrameHeader& frame);
  void OnPutAnswered(const Message& message, const net::FrameHeader& frame);
  void OnPut(const Message& message, const net::FrameHeader& frame);
  void OnInventory(const Message& message);
  void OnRegistered(const Message& message);
  void OnReported(const Message& message, const net::FrameHeader& frame);
  void CheckNotes(const Message& message, const char* what, uint64_t incarnation,
                  const std::string& keys);

  const SimScheduler& scheduler_;
  Checker& checker_;
  // Keyed by addresses: only looked up, counted and cleared, never walked for what they say.
  std::map<Stream, Life> lives_;
  std::set<Stream> incomplete_;
  std::map<const SimHost*, uint64_t> known_epochs_;  // named in WATCH
  std::map<const SimHost*, uint64_t> refuse_below_;  // that a node has been told
  std::map<Request, uint64_t> old_puts_;             // placed below that, not answered
  std::map<Request, TimePoint> reports_;             // when they end unanswered
  std::map<Request, proto::RegisterRequest> registers_;
  std::map<Admission, uint64_t> admitted_;
  std::set<const SimHost*> admitted_nodes_;
  uint64_t snapshots_ = 0;
  uint64_t snapshot_chunks_ = 0;
  uint64_t orphans_told_ = 0;
  uint64_t touches_told_ = 0;
  uint64_t incarnations_raised_ = 0;
  uint64_t old_placements_refused_ = 0;
};

}  // namespace tokura::sim
