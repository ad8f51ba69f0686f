#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "absl/status/status.h"
#include "common/net/breaker.h"
#include "common/time.h"

namespace tokura {

enum class OperationKind : uint8_t { kLookup, kAcquire, kGet, kPut, kRemove, kStat };
inline constexpr size_t kOperationKinds = 6;
// Whom a connection leads to.
enum class PeerKind : uint8_t { kNode, kCoordinator };
// What coordinators are asked.
enum class CoordinatorOp : uint8_t { kLocate, kPlan, kWatch };
inline constexpr size_t kCoordinatorOps = 3;
// What a node says of a block that it sent wrong bytes of.
enum class SuspectResult : uint8_t {
  kRemoved,     // it was damaged there, and is gone
  kSound,       // it was damaged on the way, or here
  kGone,        // it is not held any more
  kUnanswered,  // not asked, not answered or not checked
};
inline constexpr size_t kSuspectResults = 4;
enum class CodecDirection : uint8_t { kEncode, kDecode };

// How an operation or a block ended, as one label value.
enum class ResultLabel : uint8_t {
  kOk,
  kPartial,  // operations only: some blocks OK
  kMiss,
  kDeadline,
  kUnavailable,
  kCancelled,
  kExhausted,
  kDataLoss,
  kError,
};
inline constexpr size_t kResultLabels = 9;
ResultLabel LabelOf(const absl::Status& status);

// The client's metrics (tokura_client_*), every label combination present from the start.
// Thread-safe: prometheus objects are. Several clients of one process add up in the same families.
class ClientMetrics {
 public:
  explicit ClientMetrics(std::shared_ptr<prometheus::Registry> registry);
  // Add the families of a client of a cluster. Before anything else of theirs is counted.
  void RegisterCluster();

  void OperationStarted();
  // Counted when an operation ends.
  void OperationEnded(OperationKind kind, ResultLabel result, Duration took);
  void BlockEnded(OperationKind kind, const absl::Status& status);
  // One part coded: bytes in, bytes out and the time on the thread that did it.
  struct CodecSample {
    CodecDirection direction;
    uint64_t input_bytes;
    uint64_t output_bytes;
    Duration took;
  };
  void Coded(const std::string& codec, const CodecSample& sample);
  void BreakerMoved(PeerKind peer, net::Breaker::State from, net::Breaker::State to);
  void PeerListed(PeerKind peer, net::Breaker::State state);
  void PeerForgotten(PeerKind peer, net::Breaker::State state);
  void SuspectEnded(SuspectResult result);
  // One request to one coordinator, by how it ended.
  void CoordinatorAnswered(CoordinatorOp op, const absl::Status& status);

  prometheus::Counter* received_bytes;
  prometheus::Counter* sent_bytes;
  prometheus::Counter* logical_received_bytes;  // raw size of OK blocks
  prometheus::Counter* logical_sent_bytes;
  prometheus::Counter* retries;          // blocks asked again of another node
  prometheus::Counter* missing_profile;  // forms that need a model profile that is not here
  prometheus::Counter* data_loss;        // blocks whose bytes were not what was asked for
  prometheus::Counter* late_payloads;    // arrived after their operation ended
  prometheus::Counter* fenced;           // nodes refused because a higher incarnation is known
  prometheus::Counter* raw_fallbacks;    // layers stored raw because of non-finite values
  prometheus::Counter* links_lost;
  prometheus::Counter* refused;              // connections refused by a node
  prometheus::Counter* queue_rejected;       // no place in the ring's queue
  prometheus::Counter* operations_rejected;  // operations_max
  prometheus::Gauge* ring_capacity_bytes;
  prometheus::Gauge* ring_used_bytes;
  prometheus::Gauge* ring_waiters;
  prometheus::Histogram* declared_error;  // of OK blocks got
  // Of clients of a cluster only.
  prometheus::Counter* failovers = nullptr;         // another coordinator became the preferred one
  prometheus::Counter* plan_blocks_held = nullptr;  // held already, so not sent
  prometheus::Counter* plan_blocks_sent = nullptr;  // placed on a node
  prometheus::Counter* plans_renewed = nullptr;     // a node refused an old placement
  prometheus::Counter* relocations = nullptr;       // gets that asked again where blocks are
  prometheus::Counter* policy_codec_unusable = nullptr;  // puts in the client's own codec instead
  prometheus::Gauge* epoch = nullptr;                    // of the cluster state in use

 private:
  struct Codec {
    std::array<prometheus::Histogram*, 2> duration;
    std::array<prometheus::Counter*, 2> input;
    std::array<prometheus::Counter*, 2> output;
  };
  void RegisterOperations();
  void RegisterTotals();
  void RegisterCodecs();

  // Owners: this and the process's admin server.
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Gauge* inflight_;
  std::array<std::array<prometheus::Counter*, kResultLabels>, kOperationKinds> requests_;
  std::array<prometheus::Histogram*, kOperationKinds> durations_;
  std::array<std::array<prometheus::Counter*, kResultLabels>, 2> blocks_;  // get, put
  std::map<std::string, Codec> codecs_;                                    // presets and "other"
  prometheus::Counter* breaker_opens_;
  std::array<prometheus::Counter*, kSuspectResults> suspects_;
  // By peer, then by breaker state; those of coordinators in clients of a cluster only.
  std::array<std::array<prometheus::Gauge*, 3>, 2> peers_{};
  std::array<std::array<prometheus::Counter*, kResultLabels>, kCoordinatorOps> coordinator_{};
};

}  // namespace tokura
