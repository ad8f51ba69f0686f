#include "client-lib/src/client_metrics.h"

#include <utility>

#include "common/metrics.h"
#include "kernels/codec.h"

namespace tokura {
namespace {

constexpr std::array<const char*, kOperationKinds> kOperationNames = {"lookup", "acquire", "get",
                                                                      "put",    "remove",  "stat"};
constexpr std::array<const char*, kResultLabels> kResultNames = {"ok",
                                                                 "partial",
                                                                 "miss",
                                                                 "deadline_exceeded",
                                                                 "unavailable",
                                                                 "cancelled",
                                                                 "resource_exhausted",
                                                                 "data_loss",
                                                                 "error"};
constexpr std::array<const char*, 2> kDirectionNames = {"encode", "decode"};
constexpr std::array<const char*, 3> kBreakerNames = {"closed", "open", "half_open"};
constexpr std::array<const char*, kCoordinatorOps> kCoordinatorOpNames = {"locate", "plan",
                                                                          "watch"};
constexpr std::array<const char*, kSuspectResults> kSuspectNames = {"removed", "sound", "gone",
                                                                    "unanswered"};
constexpr char kOtherCodec[] = "other";

prometheus::Counter* OneCounter(prometheus::Registry& registry, const char* name,
                                const char* help) {
  return &prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Gauge* OneGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return &prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Histogram::BucketBoundaries ErrorBuckets() {
  return {0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1};
}

}  // namespace

ResultLabel LabelOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ResultLabel::kOk;
    case absl::StatusCode::kNotFound:
      return ResultLabel::kMiss;
    case absl::StatusCode::kDeadlineExceeded:
      return ResultLabel::kDeadline;
    case absl::StatusCode::kUnavailable:
      return ResultLabel::kUnavailable;
    case absl::StatusCode::kCancelled:
      return ResultLabel::kCancelled;
    case absl::StatusCode::kResourceExhausted:
      return ResultLabel::kExhausted;
    case absl::StatusCode::kDataLoss:
      return ResultLabel::kDataLoss;
    default:
      return ResultLabel::kError;
  }
}

ClientMetrics::ClientMetrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(registry ? std::move(registry) : std::make_shared<prometheus::Registry>()) {
  RegisterOperations();
  RegisterTotals();
  RegisterCodecs();
}

void ClientMetrics::RegisterOperations() {
  auto& requests = prometheus::BuildCounter()
                       .Name("tokura_client_requests_total")
                       .Help("Operations by how they ended.")
                       .Register(*registry_);
  auto& durations = prometheus::BuildHistogram()
                        .Name("tokura_client_request_duration_seconds")
                        .Help("From the call to the callback.")
                        .Register(*registry_);
  for (size_t op = 0; op < kOperationKinds; ++op) {
    durations_[op] = &durations.Add({{"op", kOperationNames[op]}}, LatencyBuckets());
    for (size_t result = 0; result < kResultLabels; ++result) {
      requests_[op][result] =
          &requests.Add({{"op", kOperationNames[op]}, {"result", kResultNames[result]}});
    }
  }
  auto& blocks = prometheus::BuildCounter()
                     .Name("tokura_client_blocks_total")
                     .Help("Blocks got and put by how they ended.")
                     .Register(*registry_);
  for (size_t result = 0; result < kResultLabels; ++result) {
    blocks_[0][result] = &blocks.Add({{"op", "get"}, {"result", kResultNames[result]}});
    blocks_[1][result] = &blocks.Add({{"op", "put"}, {"result", kResultNames[result]}});
  }
  inflight_ = OneGauge(*registry_, "tokura_client_inflight_requests", "Operations under way.");
}

void ClientMetrics::RegisterTotals() {
  prometheus::Registry& r = *registry_;
  received_bytes =
      OneCounter(r, "tokura_client_received_bytes_total", "Payload bytes received from nodes.");
  sent_bytes = OneCounter(r, "tokura_client_sent_bytes_total", "Payload bytes nodes took.");
  auto& logical = prometheus::BuildCounter()
                      .Name("tokura_client_logical_bytes_total")
                      .Help("Raw size of the blocks got and put.")
                      .Register(r);
  logical_received_bytes = &logical.Add({{"op", "get"}});
  logical_sent_bytes = &logical.Add({{"op", "put"}});
  retries = OneCounter(r, "tokura_client_retries_total", "Blocks asked again of another node.");
  data_loss = OneCounter(r, "tokura_client_data_loss_total",
                         "Blocks whose bytes were not what was asked for; each is a miss.");
  auto& suspects =
      prometheus::BuildCounter()
          .Name("tokura_client_suspects_total")
          .Help(
              "Blocks that nodes were asked to check because bytes of them were wrong, "
              "by what the node said.")
          .Register(r);
  for (size_t result = 0; result < kSuspectResults; ++result) {
    suspects_[result] = &suspects.Add({{"result", kSuspectNames[result]}});
  }
  missing_profile = OneCounter(
      r, "tokura_client_missing_profile_total",
      "Blocks not decoded because they need a model profile that is not here; each is a miss, "
      "unless another node has another form.");
  late_payloads = OneCounter(r, "tokura_client_late_payloads_total",
                             "Payloads that arrived after their operation had ended.");
  fenced = OneCounter(r, "tokura_client_fenced_total",
                      "Nodes refused because a higher incarnation is known.");
  raw_fallbacks = OneCounter(r, "tokura_client_raw_fallback_layers_total",
                             "Layers stored raw because they had non-finite values.");
  links_lost = OneCounter(r, "tokura_client_links_lost_total", "Connections to nodes lost.");
  refused = OneCounter(r, "tokura_client_refused_total", "Connections that nodes refused.");
  queue_rejected = OneCounter(r, "tokura_client_queue_rejected_total",
                              "Requests that found the queue for ring memory full.");
  operations_rejected =
      OneCounter(r, "tokura_client_operations_rejected_total", "Operations beyond operations_max.");
  ring_capacity_bytes =
      OneGauge(r, "tokura_client_ring_capacity_bytes", "Registered payload memory.");
  ring_used_bytes = OneGauge(r, "tokura_client_ring_used_bytes", "Payload memory in use.");
  ring_waiters = OneGauge(r, "tokura_client_ring_waiters", "Requests waiting for payload memory.");
  declared_error = &prometheus::BuildHistogram()
                        .Name("tokura_client_declared_error_ratio")
                        .Help(
                            "Declared attention-output error of blocks got, mean over layers; "
                            "without those that nobody measured.")
                        .Register(r)
                        .Add({}, ErrorBuckets());
  breaker_opens_ = OneCounter(r, "tokura_client_breaker_opens_total", "Circuit breakers opened.");
  auto& nodes = prometheus::BuildGauge()
                    .Name("tokura_client_nodes")
                    .Help("Listed nodes by the state of their circuit breaker.")
                    .Register(r);
  for (size_t state = 0; state < kBreakerNames.size(); ++state) {
    peers_[static_cast<size_t>(PeerKind::kNode)][state] =
        &nodes.Add({{"breaker", kBreakerNames[state]}});
  }
}

void ClientMetrics::RegisterCluster() {
  prometheus::Registry& r = *registry_;
  auto& coordinators = prometheus::BuildGauge()
                           .Name("tokura_client_coordinators")
                           .Help("Listed coordinators by the state of their circuit breaker.")
                           .Register(r);
  for (size_t state = 0; state < kBreakerNames.size(); ++state) {
    peers_[static_cast<size_t>(PeerKind::kCoordinator)][state] =
        &coordinators.Add({{"breaker", kBreakerNames[state]}});
  }
  auto& requests = prometheus::BuildCounter()
                       .Name("tokura_client_coordinator_requests_total")
                       .Help("Requests to coordinators by how they ended.")
                       .Register(r);
  for (size_t op = 0; op < kCoordinatorOps; ++op) {
    for (size_t result = 0; result < kResultLabels; ++result) {
      coordinator_[op][result] =
          &requests.Add({{"op", kCoordinatorOpNames[op]}, {"result", kResultNames[result]}});
    }
  }
  failovers = OneCounter(r, "tokura_client_coordinator_failovers_total",
                         "Times another coordinator became the one that is asked first.");
  auto& planned = prometheus::BuildCounter()
                      .Name("tokura_client_plan_blocks_total")
                      .Help("Blocks of puts by what the plan said: held already, or sent to nodes.")
                      .Register(r);
  plan_blocks_held = &planned.Add({{"plan", "held"}});
  plan_blocks_sent = &planned.Add({{"plan", "sent"}});
  plans_renewed = OneCounter(r, "tokura_client_plans_renewed_total",
                             "Puts planned again because a node refused an old placement.");
  relocations = OneCounter(r, "tokura_client_relocations_total",
                           "Gets that asked a coordinator again where their blocks are.");
  policy_codec_unusable = OneCounter(
      r, "tokura_client_policy_codec_unusable_total",
      "Puts in the client's own codec because the policy's is unknown here, or needs a model "
      "profile and none fits.");
  epoch = OneGauge(r, "tokura_client_cluster_epoch", "Epoch of the cluster state in use.");
}

void ClientMetrics::RegisterCodecs() {
  auto& duration = prometheus::BuildHistogram()
                       .Name("tokura_client_codec_duration_seconds")
                       .Help("Time to encode or decode one part.")
                       .Register(*registry_);
  auto& input = prometheus::BuildCounter()
                    .Name("tokura_client_codec_input_bytes_total")
                    .Help("Bytes read by codecs.")
                    .Register(*registry_);
  auto& output = prometheus::BuildCounter()
                     .Name("tokura_client_codec_output_bytes_total")
                     .Help("Bytes written by codecs.")
                     .Register(*registry_);
  const auto add = [&](const std::string& name) {
    Codec& codec = codecs_[name];
    for (size_t d = 0; d < 2; ++d) {
      const prometheus::Labels labels{{"codec", name}, {"op", kDirectionNames[d]}};
      codec.duration[d] = &duration.Add(labels, LatencyBuckets());
      codec.input[d] = &input.Add(labels);
      codec.output[d] = &output.Add(labels);
    }
  };
  for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
    add(std::string(preset.name));
  }
  add(kOtherCodec);
}

void ClientMetrics::OperationStarted() {
  inflight_->Increment();
}

void ClientMetrics::OperationEnded(OperationKind kind, ResultLabel result, Duration took) {
  const size_t op = static_cast<size_t>(kind);
  inflight_->Decrement();
  requests_[op][static_cast<size_t>(result)]->Increment();
  durations_[op]->Observe(Seconds(took));
}

void ClientMetrics::BlockEnded(OperationKind kind, const absl::Status& status) {
  blocks_[kind == OperationKind::kPut ? 1 : 0][static_cast<size_t>(LabelOf(status))]->Increment();
}

void ClientMetrics::SuspectEnded(SuspectResult result) {
  suspects_[static_cast<size_t>(result)]->Increment();
}

void ClientMetrics::Coded(const std::string& codec, const CodecSample& sample) {
  auto entry = codecs_.find(codec);
  if (entry == codecs_.end()) {
    entry = codecs_.find(kOtherCodec);
  }
  const size_t d = static_cast<size_t>(sample.direction);
  entry->second.duration[d]->Observe(Seconds(sample.took));
  entry->second.input[d]->Increment(static_cast<double>(sample.input_bytes));
  entry->second.output[d]->Increment(static_cast<double>(sample.output_bytes));
}

void ClientMetrics::BreakerMoved(PeerKind peer, net::Breaker::State from, net::Breaker::State to) {
  if (from == to) {
    return;
  }
  PeerForgotten(peer, from);
  PeerListed(peer, to);
  if (to == net::Breaker::State::kOpen) {
    breaker_opens_->Increment();
  }
}

void ClientMetrics::PeerListed(PeerKind peer, net::Breaker::State state) {
  peers_[static_cast<size_t>(peer)][static_cast<size_t>(state)]->Increment();
}

void ClientMetrics::PeerForgotten(PeerKind peer, net::Breaker::State state) {
  peers_[static_cast<size_t>(peer)][static_cast<size_t>(state)]->Decrement();
}

void ClientMetrics::CoordinatorAnswered(CoordinatorOp op, const absl::Status& status) {
  coordinator_[static_cast<size_t>(op)][static_cast<size_t>(LabelOf(status))]->Increment();
}

}  // namespace tokura
