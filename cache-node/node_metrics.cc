#include "cache-node/node_metrics.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace tokura::node {
namespace {

constexpr net::Op kOps[] = {net::Op::kLookup,  net::Op::kAcquire, net::Op::kRenew,
                            net::Op::kRelease, net::Op::kGet,     net::Op::kPut,
                            net::Op::kRemove,  net::Op::kStat,    net::Op::kCancel};

// Every code that a request or a connection can end with. Anything else is counted as UNKNOWN.
constexpr absl::StatusCode kResults[] = {
    absl::StatusCode::kOk,
    absl::StatusCode::kInvalidArgument,
    absl::StatusCode::kNotFound,
    absl::StatusCode::kResourceExhausted,
    absl::StatusCode::kDeadlineExceeded,
    absl::StatusCode::kCancelled,
    absl::StatusCode::kAborted,
    absl::StatusCode::kUnavailable,
    absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kDataLoss,
    absl::StatusCode::kUnimplemented,
    absl::StatusCode::kUnauthenticated,
    absl::StatusCode::kInternal,
    absl::StatusCode::kUnknown,
};

constexpr const char* kPutPartNames[kPutPartResults] = {"stored",  "held",    "no_space",
                                                        "corrupt", "invalid", "aborted"};
constexpr const char* kConnectionEndNames[kConnectionEnds] = {"limit", "refused", "stuck",
                                                              "violation", "new_life"};
constexpr const char* kFullQueueNames[kFullQueues] = {"offers", "blocks", "leases"};

std::string CodeName(absl::StatusCode code) {
  std::string name = absl::StatusCodeToString(code);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// The counter of `code`, or of UNKNOWN for codes that are not in the table.
template <typename Map>
auto* OfCode(const Map& map, absl::StatusCode code) {
  auto it = map.find(code);
  return it == map.end() ? map.at(absl::StatusCode::kUnknown) : it->second;
}

void Raise(prometheus::Counter* counter, uint64_t now, uint64_t before) {
  if (now > before) {
    counter->Increment(static_cast<double>(now - before));
  }
}

}  // namespace

NodeMetrics::NodeMetrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)) {
  AddRequests();
  AddBlocks();
  AddTier();
  AddConnections();
}

prometheus::Family<prometheus::Counter>& NodeMetrics::Counters(const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
}

prometheus::Family<prometheus::Gauge>& NodeMetrics::Gauges(const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
}

void NodeMetrics::AddRequests() {
  inflight_ = &Gauges("tokura_node_inflight_requests", "Requests under way.").Add({});
  auto& requests =
      Counters("tokura_node_requests_total", "Requests that ended, by operation and result.");
  auto& durations = prometheus::BuildHistogram()
                        .Name("tokura_node_request_duration_seconds")
                        .Help("From the arrival of a request to its reply.")
                        .Register(*registry_);
  for (net::Op op : kOps) {
    for (absl::StatusCode code : kResults) {
      requests_[{op, code}] = &requests.Add({{"op", net::OpName(op)}, {"result", CodeName(code)}});
    }
    durations_[op] = &durations.Add({{"op", net::OpName(op)}}, LatencyBuckets());
  }
  received_ =
      &Counters("tokura_node_received_bytes_total", "Payload bytes received from clients.").Add({});
  sent_ = &Counters("tokura_node_sent_bytes_total", "Payload bytes delivered to clients.").Add({});
}

void NodeMetrics::AddBlocks() {
  auto& lookups = Counters("tokura_tier_lookups_total",
                           "Blocks looked up, by the tier that holds them; misses have none.");
  lookup_hits_ = &lookups.Add({{"tier", "host"}, {"result", "hit"}});
  lookup_misses_ = &lookups.Add({{"tier", "none"}, {"result", "miss"}});
  auto& gets = Counters("tokura_node_get_blocks_total", "Blocks of gets, by result.");
  for (absl::StatusCode code : kResults) {
    get_blocks_[code] = &gets.Add({{"result", CodeName(code)}});
  }
  auto& suspects = Counters("tokura_node_suspect_blocks_total",
                            "Blocks that clients had checked for damage, by result: ok, damaged "
                            "and removed; failed_precondition, sound.");
  for (absl::StatusCode code : kResults) {
    suspects_[code] = &suspects.Add({{"result", CodeName(code)}});
  }
  auto& parts = Counters("tokura_node_put_parts_total", "Parts of puts, by what became of them.");
  for (size_t i = 0; i < kPutPartResults; ++i) {
    put_parts_[i] = &parts.Add({{"result", kPutPartNames[i]}});
  }
  auto& corruption = Counters("tokura_node_checksum_failures_total",
                              "Parts whose bytes did not match their checksum or identity.");
  received_corruption_ = &corruption.Add({{"where", "received"}});
  stored_corruption_ = &corruption.Add({{"where", "stored"}});
}

void NodeMetrics::AddTier() {
  const prometheus::Labels host = {{"tier", "host"}};
  capacity_ = &Gauges("tokura_tier_capacity_bytes", "Size of the tier.").Add(host);
  used_ = &Gauges("tokura_tier_used_bytes", "In use, headers and rounding included.").Add(host);
  largest_free_ =
      &Gauges("tokura_tier_largest_free_bytes", "Largest part that fits without evicting.")
           .Add(host);
  pinned_ = &Gauges("tokura_tier_pinned_bytes", "Stored bytes that readers pin.").Add(host);
  reserved_ =
      &Gauges("tokura_tier_reserved_bytes", "Reserved for parts that are arriving.").Add(host);
  stored_ = &Gauges("tokura_tier_stored_bytes", "Encoded bytes of complete blocks.").Add(host);
  logical_ =
      &Gauges("tokura_tier_logical_bytes", "The same blocks in the engines' dtype.").Add(host);
  blocks_ = &Gauges("tokura_tier_blocks", "Complete blocks.").Add(host);
  incomplete_blocks_ =
      &Gauges("tokura_tier_incomplete_blocks", "Blocks that wait for parts.").Add(host);
  codec_bytes_family_ = &Gauges("tokura_codec_held_bytes",
                                "Bytes of complete blocks by codec, as stored and as the engines "
                                "know them.");
  leases_ = &Gauges("tokura_node_leases", "Leases held.").Add({});
  leases_expired_ =
      &Counters("tokura_node_leases_expired_total", "Leases that ended by age.").Add({});
  reservations_overdue_ = &Counters("tokura_node_reservations_overdue_total",
                                    "Reservations that made no progress for lease_age.")
                               .Add({});
  auto& evictions = Counters("tokura_evictions_total", "Forms that left a tier, by reason.");
  auto& evicted = Counters("tokura_evicted_bytes_total", "Stored bytes of the forms that left.");
  for (size_t i = 0; i < kEvictReasons; ++i) {
    const char* reason = EvictReasonName(static_cast<EvictReason>(i));
    evictions_[i] = &evictions.Add({{"tier", "host"}, {"reason", reason}});
    evicted_bytes_[i] = &evicted.Add({{"tier", "host"}, {"reason", reason}});
  }
  residence_ = &prometheus::BuildHistogram()
                    .Name("tokura_block_residence_seconds")
                    .Help("How long complete forms stayed in the tier.")
                    .Register(*registry_)
                    .Add(host, prometheus::Histogram::BucketBoundaries(kResidenceSeconds.begin(),
                                                                       kResidenceSeconds.end()));
}

void NodeMetrics::AddConnections() {
  open_endpoints_ =
      &Gauges("tokura_transport_endpoints", "Connections by state.").Add({{"state", "open"}});
  auto& errors = Counters("tokura_transport_errors_total",
                          "Connections that ended otherwise than by an orderly close of ours.");
  for (absl::StatusCode code : kResults) {
    if (code != absl::StatusCode::kOk) {
      transport_errors_[code] = &errors.Add({{"status", CodeName(code)}});
    }
  }
  auto& ends =
      Counters("tokura_node_connections_ended_total", "Connections refused or ended by this node.");
  for (size_t i = 0; i < kConnectionEnds; ++i) {
    connection_ends_[i] = &ends.Add({{"reason", kConnectionEndNames[i]}});
  }
  auto& rejected =
      Counters("tokura_queue_rejected_total", "Work turned away because a queue was full.");
  for (size_t i = 0; i < kFullQueues; ++i) {
    rejected_[i] = &rejected.Add({{"queue", kFullQueueNames[i]}});
  }
  transfers_waiting_family_ = &Gauges("tokura_queue_depth", "Entries that wait, by queue.");
  verify_depth_ = &transfers_waiting_family_->Add({{"queue", "verify"}});
  transfers_waiting_family_->Add({{"queue", "transfers-0"}});
}

void NodeMetrics::RequestEnded(net::Op op, absl::StatusCode result, Duration took) {
  inflight_->Decrement();
  auto duration = durations_.find(op);
  if (duration == durations_.end()) {
    return;  // An operation of another version: answered UNIMPLEMENTED, not one of ours.
  }
  duration->second->Observe(Seconds(took));
  auto it = requests_.find({op, result});
  (it == requests_.end() ? requests_.at({op, absl::StatusCode::kUnknown}) : it->second)
      ->Increment();
}

void NodeMetrics::Disconnected(const absl::Status& why) {
  open_endpoints_->Decrement();
  if (!why.ok()) {
    OfCode(transport_errors_, why.code())->Increment();
  }
}

void NodeMetrics::ConnectionEnded(ConnectionEnd why) {
  connection_ends_[static_cast<size_t>(why)]->Increment();
}

void NodeMetrics::PutPartEnded(PutPartResult result) {
  put_parts_[static_cast<size_t>(result)]->Increment();
  if (result == PutPartResult::kCorrupt) {
    received_corruption_->Increment();
  }
}

void NodeMetrics::GetBlockEnded(absl::StatusCode result) {
  OfCode(get_blocks_, result)->Increment();
}

void NodeMetrics::SuspectEnded(absl::StatusCode result) {
  OfCode(suspects_, result)->Increment();
}

void NodeMetrics::LookedUp(uint64_t hits, uint64_t misses) {
  lookup_hits_->Increment(static_cast<double>(hits));
  lookup_misses_->Increment(static_cast<double>(misses));
}

void NodeMetrics::Rejected(FullQueue queue) {
  rejected_[static_cast<size_t>(queue)]->Increment();
}

void NodeMetrics::TransfersWaiting(size_t thread, size_t waiting) {
  transfers_waiting_family_->Add({{"queue", "transfers-" + std::to_string(thread)}})
      .Set(static_cast<double>(waiting));
}

void NodeMetrics::Sample(const StoreStats& stats, const StoreCounters& counters,
                         const LeaseTable::Stats& leases) {
  capacity_->Set(static_cast<double>(stats.capacity_bytes));
  used_->Set(static_cast<double>(stats.used_bytes));
  largest_free_->Set(static_cast<double>(stats.largest_free_bytes));
  pinned_->Set(static_cast<double>(stats.pinned_bytes));
  reserved_->Set(static_cast<double>(stats.reserved_bytes));
  stored_->Set(static_cast<double>(stats.stored_bytes));
  logical_->Set(static_cast<double>(stats.logical_bytes));
  blocks_->Set(static_cast<double>(stats.blocks));
  incomplete_blocks_->Set(static_cast<double>(stats.incomplete_blocks));
  leases_->Set(static_cast<double>(leases.leases));
  for (const CodecUsage& usage : stats.by_codec) {
    Codec& codec = codecs_[usage.codec];
    if (codec.stored == nullptr) {
      codec.stored = &codec_bytes_family_->Add({{"codec", usage.codec}, {"as", "stored"}});
      codec.logical = &codec_bytes_family_->Add({{"codec", usage.codec}, {"as", "logical"}});
    }
    codec.stored->Set(static_cast<double>(usage.stored_bytes));
    codec.logical->Set(static_cast<double>(usage.logical_bytes));
  }
  SampleCounters(counters, leases);
}

void NodeMetrics::SampleCounters(const StoreCounters& counters, const LeaseTable::Stats& leases) {
  for (size_t i = 0; i < kEvictReasons; ++i) {
    Raise(evictions_[i], counters.evicted_forms[i], sampled_.evicted_forms[i]);
    Raise(evicted_bytes_[i], counters.evicted_bytes[i], sampled_.evicted_bytes[i]);
  }
  std::vector<double> residence(counters.residence.size());
  for (size_t i = 0; i < residence.size(); ++i) {
    residence[i] = static_cast<double>(counters.residence[i] - sampled_.residence[i]);
  }
  residence_->ObserveMultiple(residence,
                              counters.residence_seconds_sum - sampled_.residence_seconds_sum);
  Raise(reservations_overdue_, counters.reservations_overdue, sampled_.reservations_overdue);
  Raise(leases_expired_, leases.expired_total, sampled_leases_expired_);
  sampled_ = counters;
  sampled_leases_expired_ = leases.expired_total;
}

}  // namespace tokura::node
