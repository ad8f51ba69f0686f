#include "client-lib/src/get_operation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client-lib/src/fan_out.h"
#include "client-lib/src/policy.h"
#include "client-lib/src/sequence_plan.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/prefix_rule.h"

namespace tokura {
namespace {

// Of a part besides its coded values: header, record, table. Generous: it only bounds predictions.
constexpr uint64_t kPartOverheadBytes = uint64_t{64} << 10;
// Operations of more raw bytes write past the processor's caches.
constexpr uint64_t kCachedBytesMax = uint64_t{512} << 10;

absl::Status LostStatus(const absl::Status& why) {
  return absl::IsDeadlineExceeded(why) ? why : absl::UnavailableError(why.message());
}

}  // namespace

class GetOperation::GetCall final : public net::Call {
 public:
  GetCall(std::shared_ptr<GetOperation> operation, size_t batch)
      : operation_(std::move(operation)), batch_(batch) {}
  void OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) override {
    operation_->OnPayload(batch_, frame, std::move(payload));
  }
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    operation_->OnReply(batch_, status, body);
  }

 private:
  std::shared_ptr<GetOperation> operation_;  // owners: the core and the calls under way
  const size_t batch_;
};

// One payload under way. Owners: the transfer, the decode job, and what they post. Executor only.
struct GetOperation::Incoming {
  Arrival arrival;
  RingSlot slot;          // memory of transfer and decode, given back when neither needs it
  size_t available = 0;   // bytes that have arrived
  bool received = false;  // the transfer has ended
  bool opened = false;    // a decode was begun
  bool decoding = false;  // a job has it
  Duration took = Duration::zero();
  std::unique_ptr<PartDecode> decode;  // while no job has it
};

// Decodes what has arrived of one part, on the pool, and hands it back to the executor.
class GetOperation::DecodeJob final : public Job {
 public:
  DecodeJob(std::shared_ptr<GetOperation> operation, std::shared_ptr<Incoming> incoming,
            std::unique_ptr<PartDecode> decode)
      : operation_(std::move(operation)),
        incoming_(std::move(incoming)),
        decode_(std::move(decode)) {}
  Progress Step() override {
    Executor& executor = operation_->core_.executor;
    const TimePoint before = executor.Now();
    const Progress progress = decode_->Step();
    took_ += executor.Now() - before;
    if (progress == Progress::kDone) {
      executor.Post([operation = std::move(operation_), incoming = std::move(incoming_),
                     decode = std::move(decode_), took = took_]() mutable {
        operation->OnDecoded(incoming, std::move(decode), took);
      });
    }
    return progress;
  }
  Load load() const override { return load_; }

 private:
  std::shared_ptr<GetOperation> operation_;  // owners: the core and the jobs under way
  const Load load_ = LoadOf(operation_->raw_bytes_);
  std::shared_ptr<Incoming> incoming_;  // not looked into
  std::unique_ptr<PartDecode> decode_;
  Duration took_ = Duration::zero();
};

GetOperation::GetOperation(CoreContext& core, Identity identity, Request request,
                           ClientCore::GetCallback done)
    : Operation(core, std::move(identity)), request_(std::move(request)), done_(std::move(done)) {}

void GetOperation::Start() {
  acceptance_ = AcceptanceOf(core_, request_.ns->spec(), request_.options.accept);
  const absl::Status prepared = Prepare();
  StartClock(request_.options.deadline.value_or(PredictedTotal()));
  core_.codec.decode_backlog_bytes += raw_bytes_;
  core_.executor.Post([self = Self<GetOperation>(), prepared] {
    if (!self->ended_ && (!prepared.ok() || self->open_blocks_ == 0)) {
      self->End(prepared);
    }
  });
  if (prepared.ok()) {
    AskForPending();
  }
}

absl::Status GetOperation::Prepare() {
  GetOptions& options = request_.options;
  const size_t held = request_.match.blocks();
  const size_t first = std::min<size_t>(options.first_block, held);
  const bool inside = options.blocks <= held - first;
  const size_t count = options.blocks == 0 || !inside ? held - first : options.blocks;
  blocks_.resize(count);
  open_blocks_ = count;
  for (size_t i = 0; i < count; ++i) {
    blocks_[i].match_index = first + i;
  }
  scope_ = std::make_shared<DecodeScope>(std::move(request_.view), core_.bugs,
                                         std::move(options.on_layer), options.first_layer);
  if (count == 0) {
    return absl::OkStatus();
  }
  if (!inside) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks [", options.first_block, ", +", count, ") of a match of ", held));
  }
  if (request_.match.fingerprint != request_.ns->fingerprint()) {
    return absl::InvalidArgumentError("the match belongs to another namespace");
  }
  TOKURA_RETURN_IF_ERROR(
      CheckSequenceView(*request_.ns, scope_->view, {first, count}, ViewUse::kWrite));
  for (size_t g = 0; g < scope_->view.groups.size(); ++g) {
    const uint64_t layers = request_.ns->Shape(g).layers;
    const uint64_t end = uint64_t{options.first_layer} + std::max(options.layers, 1u);
    if (!scope_->view.groups[g].layers.empty() && end > layers) {
      return absl::InvalidArgumentError(absl::StrCat("layers [", options.first_layer, ", +",
                                                     options.layers, ") of ", layers, " in group ",
                                                     g));
    }
  }
  PrepareBlocks();
  return absl::OkStatus();
}

void GetOperation::PrepareBlocks() {
  const Match& match = request_.match;
  const uint32_t view_groups = ViewGroups(scope_->view);
  const PrefixRule rule(request_.ns->spec());
  for (Block& block : blocks_) {
    // An engine reads sliding groups only near the end of a prefix, and writers need not have
    // stored more.
    block.groups = view_groups & rule.Needed(block.match_index, match.blocks());
    uint64_t raw = 0;
    for (const PartId id : PartsOf(scope_->view, block.groups)) {
      const kernels::PartShape shape = request_.ns->Shape(id.group);
      const uint32_t layers = LayersAsked(id.group);
      raw += RawBytes(shape) / shape.layers * layers;
      Part part{.id = id};
      if (scope_->progress.enabled()) {
        part.progress_part = scope_->progress.AddPart(id.group, layers);
      }
      block.parts.push_back(part);
    }
    raw_bytes_ += raw;
    const uint64_t most = raw + block.parts.size() * kPartOverheadBytes;
    const bool known = match.stored_bytes.size() == match.blocks();
    block.wire_bytes = known ? std::min(match.stored_bytes[block.match_index], most) : most;
  }
}

Duration GetOperation::PredictedTotal() const {
  std::map<const Match::Holder*, uint64_t> wire_bytes;
  for (const Block& block : blocks_) {
    wire_bytes[request_.match.HolderOf(block.match_index)] += block.wire_bytes;
  }
  // The holders send at the same time.
  Duration wire = Duration::zero();
  for (const auto& [holder, bytes] : wire_bytes) {
    const NodeLink* maybe_link =
        holder == nullptr ? nullptr : core_.directory.Find(holder->node, holder->incarnation);
    if (maybe_link != nullptr) {
      wire = std::max(wire, maybe_link->rate().Predict(bytes + core_.ring.used()));
    }
  }
  const Duration codec = core_.codec.decode.Predict(raw_bytes_ + core_.codec.decode_backlog_bytes);
  return OperationDeadline::DefaultTotal(core_.options.progress_timeout, wire + codec);
}

uint32_t GetOperation::LayersAsked(size_t group) const {
  const uint32_t layers = request_.options.layers;
  return layers == 0 ? request_.ns->Shape(group).layers - request_.options.first_layer : layers;
}

void GetOperation::Pump() {
  if (ended_) {
    return;
  }
  AskForPending();
  if (open_blocks_ == 0) {
    End(absl::OkStatus());
  }
}

void GetOperation::AskForPending() {
  bool relocate = false;
  std::vector<Introductions::Node> expected;
  for (size_t i = 0; i < blocks_.size() && open_blocks_ > 0;) {
    Block& block = blocks_[i];
    if (block.state != Block::State::kPending || block.jobs > 0) {
      ++i;
      continue;
    }
    if (block.parts.empty()) {
      Finalize(i++, absl::OkStatus());  // no group of the view is needed in this block
      continue;
    }
    if (Seen(block)) {
      // Another attempt must not replace what the caller may have used.
      Finalize(i++, block.status);
      continue;
    }
    NodeLink* maybe_link = ChooseLink(block);
    if (maybe_link == nullptr && AwaitsNode(block, &expected)) {
      ++i;
      continue;
    }
    if (maybe_link == nullptr && AwaitsRelocation(block)) {
      relocate = true;
      ++i;
      continue;
    }
    if (maybe_link == nullptr) {
      Finalize(i++, block.tried.empty()
                        ? absl::UnavailableError("no node that may hold it is reachable")
                        : block.status);
      continue;
    }
    if (window_bytes_ > 0 && window_bytes_ + block.wire_bytes > core_.ring.capacity() / 2) {
      break;
    }
    const size_t end = BatchEnd(i, *maybe_link);
    Ask(i, end, *maybe_link);
    i = end;
  }
  if (!expected.empty() && wait_ == 0) {
    AwaitNodes(std::move(expected));
  }
  if (relocate && relocation_.state() == Relocation::State::kIdle) {
    Relocate();
  }
}

bool GetOperation::AwaitsNode(const Block& block, std::vector<Introductions::Node>* expected) {
  if (core_.maybe_cluster == nullptr || wait_over_) {
    return false;
  }
  const size_t before = expected->size();
  const Introductions& introductions = core_.maybe_cluster->introductions;
  introductions.AddExpectedHolders(request_.match, block.match_index, expected);
  introductions.AddExpectedHolders(relocation_.found(), block.match_index, expected);
  for (size_t i = before; i < expected->size(); ++i) {
    relocation_.Avoid((*expected)[i].name);  // should other blocks be asked for again meanwhile
  }
  return expected->size() > before;
}

void GetOperation::AwaitNodes(std::vector<Introductions::Node> expected) {
  wait_ = core_.maybe_cluster->introductions.Wait(std::move(expected), deadline(),
                                                  [self = Self<GetOperation>()] {
                                                    self->wait_ = 0;
                                                    self->wait_over_ = true;
                                                    self->Pump();
                                                  });
}

bool GetOperation::AwaitsRelocation(const Block& block) {
  if (core_.maybe_cluster == nullptr || relocation_.state() == Relocation::State::kDone) {
    return false;
  }
  for (const std::string& node : block.tried) {
    relocation_.Avoid(node);
  }
  const Match::Holder* maybe_holder = request_.match.HolderOf(block.match_index);
  if (maybe_holder != nullptr) {
    relocation_.Avoid(maybe_holder->node);
  }
  return true;
}

void GetOperation::Relocate() {
  relocation_.Ask(core_, {request_.ns, request_.match.keys, acceptance_, deadline()},
                  [self = Self<GetOperation>()] { self->Pump(); });
}

NodeLink* GetOperation::ChooseLink(const Block& block) const {
  const auto untried = [&block](const std::string& node) {
    return std::find(block.tried.begin(), block.tried.end(), node) == block.tried.end();
  };
  for (const Match* match : {&request_.match, &relocation_.found()}) {
    const Match::Holder* maybe_holder =
        ConnectedHolder(core_.directory, *match, block.match_index, untried);
    if (maybe_holder != nullptr) {
      return core_.directory.Find(maybe_holder->node, maybe_holder->incarnation);
    }
  }
  for (NodeLink* link : core_.directory.ForLookup(request_.match.keys.front())) {
    if (untried(link->node())) {
      return link;
    }
  }
  return nullptr;
}

LeaseToken GetOperation::LeaseAt(const Block& block, const NodeLink& link) const {
  const Match::Holder* maybe_holder = request_.match.HolderOf(block.match_index);
  const bool here = maybe_holder != nullptr && maybe_holder->node == link.node() &&
                    maybe_holder->incarnation == link.incarnation();
  return here ? maybe_holder->lease : LeaseToken{};
}

size_t GetOperation::BatchEnd(size_t first, const NodeLink& link) const {
  const uint64_t bytes_max = core_.ring.capacity() / 8;
  const size_t blocks_max =
      link.limits().blocks_max() == 0 ? blocks_.size() : link.limits().blocks_max();
  uint64_t bytes = 0;
  size_t end = first;
  while (end < blocks_.size() && end - first < blocks_max) {
    const Block& block = blocks_[end];
    const bool joins = block.state == Block::State::kPending && block.jobs == 0 &&
                       block.groups == blocks_[first].groups && ChooseLink(block) == &link &&
                       LeaseAt(block, link) == LeaseAt(blocks_[first], link);
    if (!joins || (end > first && bytes + block.wire_bytes > bytes_max)) {
      break;
    }
    bytes += block.wire_bytes;
    ++end;
  }
  return end;
}

void GetOperation::Ask(size_t first, size_t end, NodeLink& link) {
  const size_t index = batches_.size();
  Batch batch;
  batch.first = first;
  batch.maybe_link = &link;
  batch.node = link.node();
  for (size_t i = first; i < end; ++i) {
    Block& block = blocks_[i];
    if (!block.tried.empty()) {
      core_.metrics.retries->Increment();
    }
    block.state = Block::State::kRequested;
    block.tried.push_back(link.node());
    window_bytes_ += block.wire_bytes;
    batch.attempts.push_back(block.attempt);
  }
  batches_.push_back(std::move(batch));
  link.WhenCapacity([self = Self<GetOperation>(), index] { self->Send(index); });
}

void GetOperation::Send(size_t index) {
  Batch& batch = batches_[index];
  if (ended_ || batch.state != Batch::State::kQueued) {
    return;
  }
  const Match& match = request_.match;
  proto::GetRequest body;
  body.set_fingerprint(match.fingerprint.bytes.data(), Fingerprint::kBytes);
  const size_t first = blocks_[batch.first].match_index;
  const size_t count = batch.attempts.size();
  body.set_keys(ConcatKeys(std::span(match.keys).subspan(first, count)));
  if (const LeaseToken lease = LeaseAt(blocks_[batch.first], *batch.maybe_link); !lease.empty()) {
    body.set_lease(lease.bytes.data(), LeaseToken::kBytes);
  }
  *body.mutable_accept() = MakeAccept(acceptance_);
  body.set_group_mask(blocks_[batch.first].groups);
  body.set_first_shard(scope_->view.first_shard);
  body.set_shard_count(scope_->view.shards);
  body.set_first_layer(request_.options.first_layer);
  body.set_layer_count(request_.options.layers);
  for (size_t i = first; i < first + count && match.content_ids.size() == match.blocks(); ++i) {
    body.mutable_content_ids()->append(
        reinterpret_cast<const char*>(match.content_ids[i].bytes.data()), ContentId::kBytes);
  }
  batch.state = Batch::State::kSent;
  wire_.Begin(core_.executor.Now());
  Moved(batch);
  batch.request_id = batch.maybe_link->Send(net::Op::kGet, body, deadline(),
                                            std::make_shared<GetCall>(Self<GetOperation>(), index));
}

void GetOperation::OnPayload(size_t index, const net::FrameHeader& frame,
                             net::IncomingPayload payload) {
  Batch& batch = batches_[index];
  if (ended_ || batch.state != Batch::State::kSent) {
    core_.metrics.late_payloads->Increment();
    return;  // destroying the payload rejects it
  }
  if (frame.index >= batch.attempts.size()) {
    return;
  }
  Arrival arrival{.batch = index,
                  .block = batch.first + frame.index,
                  .part = 0,
                  .attempt = batch.attempts[frame.index],
                  .bytes = payload.size(),
                  .started = core_.executor.Now()};
  if (!Current(arrival)) {
    return;
  }
  Block& block = blocks_[arrival.block];
  const auto part = std::find_if(block.parts.begin(), block.parts.end(), [&](const Part& p) {
    return p.id.group == frame.group && p.id.shard == frame.shard;
  });
  if (part == block.parts.end() || part->state != Part::State::kExpected) {
    return;  // not asked for, or a second time
  }
  part->state = Part::State::kArrived;
  arrival.part = static_cast<size_t>(part - block.parts.begin());
  Moved(batch);
  TakeRoom(arrival, std::move(payload));
}

void GetOperation::TakeRoom(const Arrival& arrival, net::IncomingPayload payload) {
  if (arrival.bytes == 0 || arrival.bytes > core_.options.part_bytes_max) {
    payload.Reject();
    FailBlock(arrival.block,
              absl::ResourceExhaustedError(absl::StrCat("a part of ", arrival.bytes, " bytes")));
    Pump();
    return;
  }
  const RingWindowRef& window = batches_[arrival.batch].maybe_link->receive_window();
  if (RingSlot slot = core_.ring.TryTake(arrival.bytes, window); slot.valid()) {
    Receive(arrival, std::move(payload), std::move(slot));
    return;
  }
  auto ticket = std::make_shared<Ring::Ticket>(0);  // owners: this call and the waiter
  *ticket = core_.ring.Wait(arrival.bytes, window,
                            [self = Self<GetOperation>(), arrival, ticket,
                             payload = std::move(payload)](RingSlot slot) mutable {
                              self->tickets_.erase(*ticket);
                              Batch& waited = self->batches_[arrival.batch];
                              --waited.waiting;
                              self->Moved(waited);
                              if (!self->ended_ && self->Current(arrival)) {
                                self->Receive(arrival, std::move(payload), std::move(slot));
                              }
                            });
  if (*ticket == 0) {
    core_.metrics.queue_rejected->Increment();
    FailBlock(arrival.block, absl::ResourceExhaustedError("no room in the ring"));
    Pump();
    return;
  }
  tickets_.insert(*ticket);
  ++batches_[arrival.batch].waiting;
}

void GetOperation::Receive(Arrival arrival, net::IncomingPayload payload, RingSlot slot) {
  arrival.started = core_.executor.Now();
  Batch& batch = batches_[arrival.batch];
  ++batch.receiving;
  Moved(batch, 2 * batch.maybe_link->rate().Predict(arrival.bytes));
  const net::RegisteredSpan span = slot.span().Sub(0, arrival.bytes);
  auto incoming = std::make_shared<Incoming>();
  incoming->arrival = arrival;
  incoming->slot = std::move(slot);
  payload.Receive(
      span,
      [self = Self<GetOperation>(), incoming](size_t bytes) { self->OnArrived(incoming, bytes); },
      [self = Self<GetOperation>(), incoming](const absl::Status& status) {
        self->OnReceived(incoming, status);
      });
}

void GetOperation::OnArrived(const std::shared_ptr<Incoming>& incoming, size_t bytes) {
  if (ended_) {
    return;
  }
  Moved(batches_[incoming->arrival.batch]);
  incoming->available = bytes;
  Decode(incoming);
}

void GetOperation::OnReceived(const std::shared_ptr<Incoming>& incoming,
                              const absl::Status& status) {
  const Arrival& arrival = incoming->arrival;
  Batch& batch = batches_[arrival.batch];
  incoming->received = true;
  --batch.receiving;
  if (status.ok()) {
    bytes_moved_ += arrival.bytes;
    wire_.Extend(core_.executor.Now());
    core_.metrics.received_bytes->Increment(static_cast<double>(arrival.bytes));
    if (batch.maybe_link != nullptr) {
      batch.maybe_link->rate().Observe(arrival.bytes, core_.executor.Now() - arrival.started);
    }
  }
  if (ended_) {
    core_.metrics.late_payloads->Increment();
    return;
  }
  Moved(batch);
  if (!Current(arrival)) {
    return;
  }
  if (!status.ok()) {
    FailBlock(arrival.block, LostStatus(status));
    Pump();
    return;
  }
  incoming->available = arrival.bytes;
  Decode(incoming);
}

void GetOperation::Decode(const std::shared_ptr<Incoming>& incoming) {
  const Arrival& arrival = incoming->arrival;
  if (incoming->decoding || !Current(arrival)) {
    return;
  }
  std::unique_ptr<PartDecode> decode = std::move(incoming->decode);
  if (!std::exchange(incoming->opened, true)) {
    decode = std::make_unique<PartDecode>(
        MakeDecode(arrival, incoming->slot.span().bytes().first(arrival.bytes)));
  }
  decode->Grow(incoming->available);
  incoming->decoding = true;
  ++blocks_[arrival.block].jobs;
  ++jobs_;
  auto job = std::make_unique<DecodeJob>(Self<GetOperation>(), incoming, std::move(decode));
  if (raw_bytes_ > core_.options.inline_decode_bytes) {
    core_.pool.Add(std::move(job));
    return;
  }
  while (job->Step() == Job::Progress::kMore) {
  }
}

PartDecode GetOperation::MakeDecode(const Arrival& arrival,
                                    std::span<const std::byte> payload) const {
  const Block& block = blocks_[arrival.block];
  const Part& part = block.parts[arrival.part];
  const Match& match = request_.match;
  PartDecode::Request request;
  request.block = arrival.block;
  request.attempt = arrival.attempt;
  request.progress_part = part.progress_part;
  request.expected = {.fingerprint = match.fingerprint,
                      .key = match.keys[block.match_index],
                      .content_id = match.content_ids.size() == match.blocks()
                                        ? match.content_ids[block.match_index]
                                        : ContentId{},
                      .part = part.id};
  request.shape = request_.ns->Shape(part.id.group);
  request.first_layer = request_.options.first_layer;
  request.layers = LayersAsked(part.id.group);
  request.first_head = FirstHead(*request_.ns, scope_->view, part.id);
  request.first_token = FirstToken(*request_.ns, scope_->view, block.match_index);
  request.stores =
      raw_bytes_ > kCachedBytesMax ? kernels::PageStores::kStreaming : kernels::PageStores::kCached;
  request.profiles = &core_.profiles.store();
  return PartDecode(scope_, request, payload);
}

void GetOperation::OnDecoded(const std::shared_ptr<Incoming>& incoming,
                             std::unique_ptr<PartDecode> decode, Duration took) {
  const Arrival& arrival = incoming->arrival;
  Block& block = blocks_[arrival.block];
  incoming->decoding = false;
  incoming->took += took;
  --block.jobs;
  --jobs_;
  decode_took_ += took;
  if (decode->over() && incoming->received) {
    incoming->slot.Reset();  // others may wait for its room
  }
  if (decode->over() && decode->status().ok()) {
    const kernels::PartInfo& info = decode->reader()->info();
    const uint64_t raw = RawBytes(info.shape);
    core_.metrics.Coded(info.codec, {.direction = CodecDirection::kDecode,
                                     .input_bytes = arrival.bytes,
                                     .output_bytes = raw,
                                     .took = incoming->took});
    core_.codec.decode.Observe(raw, incoming->took);
  }
  if (ended_) {
    return;
  }
  if (!Current(arrival)) {
    Pump();  // a new attempt may have waited for this job
    return;
  }
  if (!decode->over()) {
    incoming->decode = std::move(decode);
    if (incoming->available > incoming->decode->available()) {
      Decode(incoming);
    }
    return;
  }
  if (decode->status().ok()) {
    CompletePart(arrival, decode->reader()->info());
  } else {
    if (absl::IsNotFound(decode->status())) {
      core_.profiles.CountMissing(decode->reader()->info().codec_profile, block.tried.back(),
                                  decode->status());
    } else {
      Suspect(arrival);
    }
    FailBlock(arrival.block, decode->status());
  }
  Pump();
}

// What the node sent was wrong: perhaps what it stores is. (Bytes of another format revision as
// well: the node has this one, or it would have been refused.) `arrival` is current, so its link
// lasts.
void GetOperation::Suspect(const Arrival& arrival) {
  NodeLink* const link = batches_[arrival.batch].maybe_link;
  TOKURA_CHECK(link != nullptr);
  core_.suspects.Report(*link, request_.match.fingerprint,
                        request_.match.keys[blocks_[arrival.block].match_index]);
}

void GetOperation::CompletePart(const Arrival& arrival, const kernels::PartInfo& info) {
  Block& block = blocks_[arrival.block];
  block.parts[arrival.part].state = Part::State::kDone;
  block.fidelity.Add(info);
  block.codec = info.codec;
  if (++block.parts_done < block.parts.size()) {
    return;
  }
  if (!block.fidelity.Acceptable(acceptance_)) {
    FailBlock(arrival.block,
              absl::NotFoundError(absl::StrCat("the node's form has an error of ",
                                               block.fidelity.Mean(), ", more than is accepted")));
    return;
  }
  Finalize(arrival.block, absl::OkStatus());
}

void GetOperation::OnReply(size_t index, const absl::Status& status,
                           std::span<const std::byte> body) {
  Batch& batch = batches_[index];
  if (ended_ || batch.state != Batch::State::kSent) {
    return;
  }
  if (absl::IsDeadlineExceeded(status) && core_.executor.Now() >= deadline()) {
    ExpireNow();
    return;
  }
  // The link stays: payloads may still be under way, and count only while it lasts.
  batch.state = Batch::State::kAnswered;
  Moved(batch);
  proto::GetReply reply;
  if (!status.ok()) {
    FailBatch(batch, status);
  } else if (!reply.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
             reply.statuses().size() != batch.attempts.size()) {
    FailBatch(batch, absl::InternalError("the node's answer cannot be read"));
  } else {
    ApplyStatuses(batch, reply);
  }
  Pump();
}

void GetOperation::ApplyStatuses(const Batch& batch, const proto::GetReply& reply) {
  for (size_t i = 0; i < batch.attempts.size(); ++i) {
    const size_t index = batch.first + i;
    Block& block = blocks_[index];
    if (block.state != Block::State::kRequested || block.attempt != batch.attempts[i]) {
      continue;
    }
    const auto code = static_cast<absl::StatusCode>(reply.statuses()[i]);
    const bool missing = std::any_of(block.parts.begin(), block.parts.end(), [](const Part& part) {
      return part.state == Part::State::kExpected;
    });
    if (code == absl::StatusCode::kNotFound && absl::IsNotFound(block.status)) {
      FailBlock(index, block.status);  // why another node's form was of no use says more
    } else if (code != absl::StatusCode::kOk) {
      FailBlock(index, absl::Status(code, absl::StrCat("node ", batch.node, " says so")));
    } else if (missing) {
      FailBlock(index, absl::NotFoundError(
                           absl::StrCat("node ", batch.node, " has only some of the parts")));
    }
  }
}

bool GetOperation::Current(const Arrival& arrival) const {
  const Block& block = blocks_[arrival.block];
  return block.state == Block::State::kRequested && block.attempt == arrival.attempt;
}

void GetOperation::FailBlock(size_t index, absl::Status status) {
  Block& block = blocks_[index];
  if (block.state != Block::State::kRequested) {
    return;
  }
  if (absl::IsDataLoss(status)) {
    core_.metrics.data_loss->Increment();
    if (!std::exchange(loss_logged_, true)) {
      Log(LogLevel::kWarn, "client", "data_loss",
          {{"node", block.tried.back()},
           {"key", ToHex(request_.match.keys[block.match_index].span())},
           {"why", status.message()}});
    }
  }
  window_bytes_ -= block.wire_bytes;
  ++block.attempt;
  block.state = Block::State::kPending;
  block.status = std::move(status);
  block.parts_done = 0;
  block.fidelity = {};
  for (Part& part : block.parts) {
    part.state = Part::State::kExpected;
  }
}

bool GetOperation::Seen(const Block& block) const {
  return scope_->progress.enabled() &&
         std::any_of(block.parts.begin(), block.parts.end(), [this](const Part& part) {
           return scope_->progress.Started(part.progress_part);
         });
}

void GetOperation::FailBatch(const Batch& batch, const absl::Status& status) {
  for (size_t i = 0; i < batch.attempts.size(); ++i) {
    if (blocks_[batch.first + i].attempt == batch.attempts[i]) {
      FailBlock(batch.first + i, status);
    }
  }
}

void GetOperation::Finalize(size_t index, absl::Status status) {
  Block& block = blocks_[index];
  if (block.state == Block::State::kRequested) {
    window_bytes_ -= block.wire_bytes;
  }
  block.state = Block::State::kFinal;
  block.status = std::move(status);
  --open_blocks_;
  if (!block.status.ok() && scope_->progress.enabled()) {
    std::vector<size_t> parts;
    for (const Part& part : block.parts) {
      parts.push_back(part.progress_part);
    }
    scope_->progress.OnFailed(parts);
  }
}

void GetOperation::OnLinkDraining(NodeLink& link, const absl::Status& why) {
  for (Batch& batch : batches_) {
    if (batch.maybe_link == &link && batch.state == Batch::State::kQueued) {
      LoseBatch(batch, why);
    }
  }
  Pump();
}

void GetOperation::OnLinkLost(NodeLink& link, const absl::Status& why) {
  for (Batch& batch : batches_) {
    if (batch.maybe_link == &link) {
      LoseBatch(batch, why);
    }
  }
  Pump();
}

void GetOperation::LoseBatch(Batch& batch, const absl::Status& why) {
  batch.maybe_link = nullptr;
  batch.state = Batch::State::kLost;
  if (!ended_) {
    FailBatch(batch, LostStatus(why));
  }
}

void GetOperation::Cancel() {
  if (!ended_) {
    End(absl::CancelledError("cancelled by the caller"));
  }
}

void GetOperation::Moved(const Batch& batch, Duration allowance) {
  // Requests of one node queue behind one another there: progress with one counts for all.
  const TimePoint moved = After(core_.executor.Now(), allowance);
  for (Batch& other : batches_) {
    if (other.maybe_link == batch.maybe_link) {
      other.moved = std::max(other.moved, moved);
    }
  }
}

bool GetOperation::WaitsForNode(const Batch& batch) {
  // A node whose payloads wait for our room may be unable to answer.
  return batch.receiving > 0 || (batch.state == Batch::State::kSent && batch.waiting == 0);
}

TimePoint GetOperation::StallsAt() const {
  TimePoint first = kNever;
  for (const Batch& batch : batches_) {
    if (batch.maybe_link != nullptr && WaitsForNode(batch)) {
      first = std::min(first, StallOf(batch.moved));
    }
  }
  return first;
}

void GetOperation::OnExpired(OperationDeadline::Verdict verdict) {
  const std::vector<NodeLink*> blamed = BlamedLinks();
  const absl::Status cause = absl::DeadlineExceededError(
      verdict == OperationDeadline::Verdict::kOver ? "the deadline passed"
                                                   : "the node made no progress");
  if (verdict == OperationDeadline::Verdict::kOver) {
    End(cause);
  }
  // Losing the link fails its blocks here and everywhere else, and other nodes are asked while time
  // is left.
  for (NodeLink* link : blamed) {
    link->Drop(cause);
  }
  if (!ended_) {
    Rearm();
  }
}

std::vector<NodeLink*> GetOperation::BlamedLinks() const {
  std::vector<NodeLink*> blamed;
  for (const Batch& batch : batches_) {
    const bool guilty = batch.maybe_link != nullptr && WaitsForNode(batch) &&
                        Blames(*batch.maybe_link, batch.moved);
    if (guilty && std::find(blamed.begin(), blamed.end(), batch.maybe_link) == blamed.end()) {
      blamed.push_back(batch.maybe_link);
    }
  }
  return blamed;
}

void GetOperation::End(const absl::Status& cause) {
  ended_ = true;
  StopClock();
  if (wait_ != 0) {
    core_.maybe_cluster->introductions.Cancel(std::exchange(wait_, 0));
  }
  // A coordinator that was silent to the end is to blame.
  absl::IsDeadlineExceeded(cause) ? relocation_.GiveUp() : relocation_.Cancel();
  core_.codec.decode_backlog_bytes -= raw_bytes_;
  for (const Batch& batch : batches_) {
    // A batch whose blocks are all done is left to be answered; telling the node would be noise.
    bool open = false;
    for (size_t i = 0; i < batch.attempts.size(); ++i) {
      open = open || blocks_[batch.first + i].state != Block::State::kFinal;
    }
    if (open && batch.state == Batch::State::kSent) {
      batch.maybe_link->Cancel(batch.request_id);
    }
  }
  for (const Ring::Ticket ticket : std::exchange(tickets_, {})) {
    core_.ring.CancelWait(ticket);
  }
  for (Block& block : blocks_) {
    if (block.state != Block::State::kFinal) {
      block.state = Block::State::kFinal;
      block.status = cause;
    }
  }
  scope_->gate.Close(core_.executor, [self = Self<GetOperation>()] { self->Deliver(); });
}

void GetOperation::Deliver() {
  GetResult result;
  size_t ok = 0;
  const absl::Status* first_failure = nullptr;
  for (Block& block : blocks_) {
    core_.metrics.BlockEnded(OperationKind::kGet, block.status);
    if (block.status.ok()) {
      ++ok;
      if (std::isfinite(block.fidelity.Mean())) {
        core_.metrics.declared_error->Observe(block.fidelity.Mean());
      }
      for (const Part& part : block.parts) {
        const kernels::PartShape shape = request_.ns->Shape(part.id.group);
        result.bytes_logical += RawBytes(shape) / shape.layers * LayersAsked(part.id.group);
      }
    } else if (first_failure == nullptr) {
      first_failure = &block.status;
    }
    result.blocks.push_back(block.status);
    result.codecs.push_back(block.status.ok() ? block.codec : "");
    result.declared_error.push_back(block.status.ok() ? block.fidelity.Mean() : 0);
    result.proxy_error.push_back(block.status.ok() && block.fidelity.proxy());
  }
  result.bytes_moved = bytes_moved_;
  result.timings = {.wire = wire_.duration(), .codec = decode_took_};
  core_.metrics.logical_received_bytes->Increment(static_cast<double>(result.bytes_logical));
  const ResultLabel failed = ok > 0                     ? ResultLabel::kPartial
                             : first_failure != nullptr ? LabelOf(*first_failure)
                                                        : ResultLabel::kOk;
  Retire(first_failure == nullptr ? ResultLabel::kOk : failed);
  done_(std::move(result));
}

}  // namespace tokura
