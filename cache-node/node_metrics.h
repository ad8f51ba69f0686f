#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cache-node/block_store.h"
#include "cache-node/lease.h"
#include "common/metrics.h"
#include "common/net/frame.h"
#include "common/time.h"

namespace tokura::node {

// What became of one part of a put.
enum class PutPartResult : uint8_t {
  kStored = 0,   // verified and committed
  kHeld = 1,     // there already in that form: success without a transfer
  kNoSpace = 2,  // RESOURCE_EXHAUSTED
  kCorrupt = 3,  // a checksum or the identity did not match what was announced
  kInvalid = 4,  // the offer did not match the announcement
  kAborted = 5,  // deadline, cancel, lost connection, or given up meanwhile
};
inline constexpr size_t kPutPartResults = 6;

// Why this node refused or ended a connection.
enum class ConnectionEnd : uint8_t {
  kLimit = 0,      // connections_max, or draining: no place for a new one
  kRefused = 1,    // versions, another node expected, fenced, a malformed HELLO
  kStuck = 2,      // transfers, reservations or leases without progress for lease_age
  kViolation = 3,  // it broke the protocol behind a sound HELLO
  kNewLife = 4,    // this node goes on under another incarnation, or another process has its name
};
inline constexpr size_t kConnectionEnds = 5;

// What was turned away because a bounded queue was full.
enum class FullQueue : uint8_t {
  kOffers = 0,  // payloads of requests not announced yet
  kBlocks = 1,  // blocks of one connection's requests under way
  kLeases = 2,
};
inline constexpr size_t kFullQueues = 3;

// The node's metrics; every label combination exists from the start, at 0. Thread-safe but for
// Sample, which one thread calls.
class NodeMetrics {
 public:
  explicit NodeMetrics(std::shared_ptr<prometheus::Registry> registry);

  void RequestStarted() { inflight_->Increment(); }
  void RequestEnded(net::Op op, absl::StatusCode result, Duration took);
  void Connected() { open_endpoints_->Increment(); }
  // `why` as ServerChannelOwner::OnClosed gives it.
  void Disconnected(const absl::Status& why);
  void ConnectionEnded(ConnectionEnd why);
  void PutPartEnded(PutPartResult result);
  void GetBlockEnded(absl::StatusCode result);
  void LookedUp(uint64_t hits, uint64_t misses);
  void Received(uint64_t bytes) { received_->Increment(static_cast<double>(bytes)); }
  void Sent(uint64_t bytes) { sent_->Increment(static_cast<double>(bytes)); }
  // A block that a client suspects: OK, damaged and removed; FAILED_PRECONDITION, sound;
  // RESOURCE_EXHAUSTED, not checked; NOT_FOUND; or why the request ended.
  void SuspectEnded(absl::StatusCode result);
  // Stored bytes that no longer match their checksum.
  void StoredCorruption() { stored_corruption_->Increment(); }
  void Rejected(FullQueue queue);
  void VerifyQueued() { verify_depth_->Increment(); }
  void VerifyEnded() { verify_depth_->Decrement(); }
  // Requests with transfers that wait for their turn on I/O thread `thread`.
  void TransfersWaiting(size_t thread, size_t waiting);

  // Copy the store's and the leases' numbers.
  void Sample(const StoreStats& stats, const StoreCounters& counters,
              const LeaseTable::Stats& leases);

 private:
  struct Codec {
    prometheus::Gauge* stored = nullptr;
    prometheus::Gauge* logical = nullptr;
  };

  void AddRequests();
  void AddBlocks();
  void AddTier();
  void AddConnections();
  void SampleCounters(const StoreCounters& counters, const LeaseTable::Stats& leases);

  prometheus::Family<prometheus::Counter>& Counters(const char* name, const char* help);
  prometheus::Family<prometheus::Gauge>& Gauges(const char* name, const char* help);

  const std::shared_ptr<prometheus::Registry> registry_;  // owners: the process's admin server, too

  // All pointers below are owned by the registry.
  prometheus::Gauge* inflight_ = nullptr;
  std::map<std::pair<net::Op, absl::StatusCode>, prometheus::Counter*> requests_;
  std::map<net::Op, prometheus::Histogram*> durations_;
  prometheus::Counter* received_ = nullptr;
  prometheus::Counter* sent_ = nullptr;
  prometheus::Counter* put_parts_[kPutPartResults] = {};
  std::map<absl::StatusCode, prometheus::Counter*> get_blocks_;
  std::map<absl::StatusCode, prometheus::Counter*> suspects_;
  prometheus::Counter* lookup_hits_ = nullptr;
  prometheus::Counter* lookup_misses_ = nullptr;
  prometheus::Counter* received_corruption_ = nullptr;
  prometheus::Counter* stored_corruption_ = nullptr;
  prometheus::Gauge* open_endpoints_ = nullptr;
  std::map<absl::StatusCode, prometheus::Counter*> transport_errors_;
  prometheus::Counter* connection_ends_[kConnectionEnds] = {};
  prometheus::Counter* rejected_[kFullQueues] = {};
  prometheus::Gauge* verify_depth_ = nullptr;
  prometheus::Family<prometheus::Gauge>* transfers_waiting_family_ = nullptr;

  prometheus::Gauge* capacity_ = nullptr;
  prometheus::Gauge* used_ = nullptr;
  prometheus::Gauge* largest_free_ = nullptr;
  prometheus::Gauge* pinned_ = nullptr;
  prometheus::Gauge* reserved_ = nullptr;
  prometheus::Gauge* stored_ = nullptr;
  prometheus::Gauge* logical_ = nullptr;
  prometheus::Gauge* blocks_ = nullptr;
  prometheus::Gauge* incomplete_blocks_ = nullptr;
  prometheus::Gauge* leases_ = nullptr;
  prometheus::Counter* leases_expired_ = nullptr;
  prometheus::Counter* reservations_overdue_ = nullptr;
  prometheus::Counter* evictions_[kEvictReasons] = {};
  prometheus::Counter* evicted_bytes_[kEvictReasons] = {};
  prometheus::Histogram* residence_ = nullptr;
  prometheus::Family<prometheus::Gauge>* codec_bytes_family_ = nullptr;
  std::map<std::string, Codec> codecs_;

  StoreCounters sampled_;  // what the counters above already contain
  uint64_t sampled_leases_expired_ = 0;
};

}  // namespace tokura::node
