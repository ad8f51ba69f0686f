#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

namespace tokura::node {

// What became of asking a coordinator to register this node.
enum class RegisterResult : uint8_t {
  kAdmitted = 0,
  kAdopted = 1,     // admitted under a higher incarnation than it had
  kSuperseded = 2,  // a newer process has the name
  kFailed = 3,      // no answer, or an error
};
inline constexpr size_t kRegisterResults = 4;

enum class BatchKind : uint8_t { kChanges = 0, kSnapshot = 1 };
inline constexpr size_t kBatchKinds = 2;

// Whether a batch of touches or orphans was about this life of the node.
enum class NoteLife : uint8_t { kThis = 0, kOther = 1 };
inline constexpr size_t kNoteLives = 2;

// The node's metrics of its links to coordinators. Every label combination exists from the start,
// at 0. Thread-safe.
class ClusterMetrics {
 public:
  explicit ClusterMetrics(std::shared_ptr<prometheus::Registry> registry);

  void LinkRegistered() { links_->Increment(); }
  void LinkLost() { links_->Decrement(); }
  void RegisterEnded(RegisterResult result) {
    registrations_[static_cast<size_t>(result)]->Increment();
  }
  void BatchDelivered(BatchKind kind, size_t records);
  void SnapshotStarted() { snapshots_->Increment(); }
  // Of the coordinator that lags most.
  void Lag(uint64_t changes) { lag_->Set(static_cast<double>(changes)); }
  void Touched(NoteLife life, size_t keys) {
    touches_[static_cast<size_t>(life)]->Increment(static_cast<double>(keys));
  }
  void Orphaned(NoteLife life, size_t keys) {
    orphans_[static_cast<size_t>(life)]->Increment(static_cast<double>(keys));
  }
  void PlacementRefused() { placements_refused_->Increment(); }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;  // owners: the process's admin server, too
  // Owned by the registry.
  prometheus::Gauge* links_ = nullptr;
  prometheus::Counter* registrations_[kRegisterResults] = {};
  prometheus::Counter* batches_[kBatchKinds] = {};
  prometheus::Counter* records_[kBatchKinds] = {};
  prometheus::Counter* snapshots_ = nullptr;
  prometheus::Gauge* lag_ = nullptr;
  prometheus::Counter* touches_[kNoteLives] = {};
  prometheus::Counter* orphans_[kNoteLives] = {};
  prometheus::Counter* placements_refused_ = nullptr;
};

}  // namespace tokura::node
