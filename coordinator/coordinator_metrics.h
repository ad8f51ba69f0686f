#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/metrics.h"
#include "common/net/frame.h"
#include "common/time.h"
#include "coordinator/inventory.h"
#include "coordinator/prefix_index.h"

namespace tokura::coordinator {

// Why this coordinator refused or ended a connection.
enum class ConnectionEnd : uint8_t {
  kLimit = 0,      // connections_max, or draining: no place for a new one
  kRefused = 1,    // versions, an unknown role, a malformed HELLO
  kViolation = 2,  // it broke the protocol behind a sound HELLO, or does not take its answers
};
inline constexpr size_t kConnectionEnds = 3;

// What became of a touch or an orphan for a node.
enum class NoteResult : uint8_t {
  kSent = 0,
  kDropped = 1,  // the node's queue was full
  kStale = 2,    // about a life of the node that has ended
};
inline constexpr size_t kNoteResults = 3;

// What a block of a plan needs.
enum class PlanResult : uint8_t {
  kPlaced = 0,
  kHeld = 1,      // an acceptable form exists where it should
  kUnplaced = 2,  // no node takes it
};
inline constexpr size_t kPlanResults = 3;

// What the coordinator's thread does at a stretch besides answering, and so keeps a lookup waiting.
enum class Turn : uint8_t {
  kInventory = 0,    // takes in one batch
  kMaintenance = 1,  // one slice
};
inline constexpr size_t kTurns = 2;

// Numbers that are copied now and then.
struct CoordinatorGauges {
  uint64_t epoch = 0;
  uint64_t policy_version = 0;
  uint64_t nodes_up = 0, nodes_suspect = 0, nodes_leaving = 0;
  uint64_t index_bytes = 0;
  uint64_t watches = 0;
  uint64_t touches_waiting = 0, orphans_waiting = 0;
};

// The coordinator's metrics; every label combination exists from the start, at 0. Thread-safe but
// for Sample, which one thread calls.
class CoordinatorMetrics {
 public:
  explicit CoordinatorMetrics(std::shared_ptr<prometheus::Registry> registry);

  void RequestStarted() { inflight_->Increment(); }
  void RequestEnded(net::Op op, absl::StatusCode result, Duration took);
  void Connected() { open_endpoints_->Increment(); }
  // `why` as ServerChannelOwner::OnClosed gives it.
  void Disconnected(const absl::Status& why);
  void ConnectionEnded(ConnectionEnd why);
  void LookedUp(uint64_t hits, uint64_t misses);
  void Planned(PlanResult result, uint64_t blocks);
  void TouchesEnded(NoteResult result, uint64_t keys);
  void OrphansEnded(NoteResult result, uint64_t keys);
  // A watch beyond the limit.
  void WatchRejected() { watches_rejected_->Increment(); }
  // `cpu` is the thread's CPU time that it took: how long the machine let it wait is not in it.
  void TurnEnded(Turn turn, Duration cpu);
  // Copy the gauges, and what the index and the inventory have counted.
  void Sample(const CoordinatorGauges& gauges, const PrefixIndexStats& index,
              const InventoryStats& inventory);

 private:
  void AddRequests();
  void AddConnections();
  void AddIndex();
  void AddCluster();
  void SampleInventory(const PrefixIndexStats& index, const InventoryStats& inventory);

  prometheus::Family<prometheus::Counter>& Counters(const char* name, const char* help);
  prometheus::Family<prometheus::Gauge>& Gauges(const char* name, const char* help);
  prometheus::Gauge* Single(const char* name, const char* help);

  const std::shared_ptr<prometheus::Registry> registry_;  // owners: the process's admin server, too

  // All pointers below are owned by the registry.
  prometheus::Gauge* inflight_ = nullptr;
  std::map<std::pair<net::Op, absl::StatusCode>, prometheus::Counter*> requests_;
  std::map<net::Op, prometheus::Histogram*> durations_;
  prometheus::Counter* lookup_hits_ = nullptr;
  prometheus::Counter* lookup_misses_ = nullptr;
  prometheus::Counter* planned_[kPlanResults] = {};
  prometheus::Gauge* longest_turns_[kTurns] = {};

  prometheus::Gauge* open_endpoints_ = nullptr;
  std::map<absl::StatusCode, prometheus::Counter*> transport_errors_;
  prometheus::Counter* connection_ends_[kConnectionEnds] = {};

  prometheus::Counter* batches_applied_ = nullptr;
  prometheus::Counter* batches_stale_ = nullptr;
  prometheus::Counter* batches_gap_ = nullptr;
  prometheus::Counter* batches_refused_ = nullptr;
  prometheus::Counter* records_ = nullptr;
  prometheus::Counter* snapshots_started_ = nullptr;
  prometheus::Counter* snapshots_finished_ = nullptr;
  prometheus::Counter* snapshots_restarted_ = nullptr;
  prometheus::Counter* refused_blocks_ = nullptr;
  prometheus::Counter* refused_forms_ = nullptr;
  prometheus::Counter* refused_classes_ = nullptr;
  prometheus::Gauge* blocks_ = nullptr;
  prometheus::Gauge* vanished_ = nullptr;
  prometheus::Gauge* forms_ = nullptr;
  prometheus::Gauge* index_bytes_ = nullptr;
  prometheus::Gauge* inventories_ = nullptr;
  prometheus::Gauge* inventories_incomplete_ = nullptr;
  prometheus::Gauge* inventories_swept_ = nullptr;
  PrefixIndexStats index_sampled_;  // what the counters above already contain
  InventoryStats inventory_sampled_;

  prometheus::Counter* touches_[kNoteResults] = {};
  prometheus::Counter* orphans_[kNoteResults] = {};
  prometheus::Gauge* touches_waiting_ = nullptr;
  prometheus::Gauge* orphans_waiting_ = nullptr;
  prometheus::Gauge* watches_ = nullptr;
  prometheus::Counter* watches_rejected_ = nullptr;

  prometheus::Gauge* epoch_ = nullptr;
  prometheus::Gauge* policy_version_ = nullptr;
  prometheus::Gauge* nodes_up_ = nullptr;
  prometheus::Gauge* nodes_suspect_ = nullptr;
  prometheus::Gauge* nodes_leaving_ = nullptr;
};

}  // namespace tokura::coordinator
