#include "client-lib/src/put_operation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client-lib/src/sequence_plan.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

// One announced block takes about this much of a message; generous.
constexpr size_t kAnnouncementBytes = 128;

absl::Status NeverSent(const absl::Status& cause) {
  return absl::CancelledError(absl::StrCat("not sent: ", cause.message()));
}

absl::Status MaybeStored(const absl::Status& cause) {
  return absl::UnknownError(absl::StrCat("sent, may be stored: ", cause.message()));
}

}  // namespace

class PutOperation::PutCall final : public net::Call {
 public:
  PutCall(std::shared_ptr<PutOperation> operation, size_t batch)
      : operation_(std::move(operation)), batch_(batch) {}
  // A put receives nothing: dropping the payload rejects it.
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    operation_->OnReply(batch_, status, body);
  }

 private:
  std::shared_ptr<PutOperation> operation_;  // owners: the core and the calls under way
  const size_t batch_;
};

// Encodes one part on the pool and hands slot and outcome back to the executor.
class PutOperation::EncodeJob final : public Job {
 public:
  EncodeJob(std::shared_ptr<PutOperation> operation, size_t part,
            std::unique_ptr<PartEncode> encode, RingSlot slot)
      : operation_(std::move(operation)),
        part_(part),
        encode_(std::move(encode)),
        slot_(std::move(slot)) {}
  Progress Step() override {
    Executor& executor = operation_->core_.executor;
    const TimePoint before = executor.Now();
    const Progress progress = encode_->Step();
    took_ += executor.Now() - before;
    if (progress == Progress::kDone) {
      executor.Post([operation = std::move(operation_), part = part_, encode = std::move(encode_),
                     slot = std::move(slot_), took = took_]() mutable {
        operation->OnEncoded(part, *encode, std::move(slot), took);
      });
    }
    return progress;
  }
  Load load() const override { return load_; }

 private:
  std::shared_ptr<PutOperation> operation_;  // owners: the core and the jobs under way
  const Load load_ = LoadOf(operation_->raw_bytes_per_block_ * operation_->blocks_.size());
  const size_t part_;
  std::unique_ptr<PartEncode> encode_;
  RingSlot slot_;
  Duration took_ = Duration::zero();
};

PutOperation::PutOperation(CoreContext& core, Identity identity, Request request, Task released,
                           ClientCore::PutCallback stored)
    : Operation(core, std::move(identity)),
      request_(std::move(request)),
      released_(std::move(released)),
      stored_(std::move(stored)) {}

void PutOperation::Start() {
  const absl::Status prepared = Prepare();
  open_blocks_ = blocks_.size();
  StartClock(request_.options.deadline.value_or(PredictedTotal()));
  backlog_bytes_ = raw_bytes_per_block_ * blocks_.size();
  core_.codec.encode_backlog_bytes += backlog_bytes_;
  if (prepared.ok() && open_blocks_ > 0) {
    Pump();
    return;
  }
  core_.executor.Post([self = Self<PutOperation>(), prepared] {
    if (!self->ended_) {
      self->End(prepared);
    }
  });
}

absl::Status PutOperation::Prepare() {
  scope_ = std::make_shared<EncodeScope>(std::move(request_.view));
  TOKURA_RETURN_IF_ERROR(PreparePositions());
  if (blocks_.empty()) {
    return absl::OkStatus();
  }
  const BlockRange range{positions_.front(), positions_.back() - positions_.front() + 1};
  TOKURA_RETURN_IF_ERROR(CheckSequenceView(*request_.ns, scope_->view, range, ViewUse::kRead));
  TOKURA_RETURN_IF_ERROR(PrepareCodec());
  TOKURA_RETURN_IF_ERROR(PrepareLink());
  PrepareBatches();
  return absl::OkStatus();
}

absl::Status PutOperation::PreparePositions() {
  absl::Status status;
  if (request_.placement) {
    positions_ = request_.placement->positions;
  } else {
    const PutRange asked =
        RangeOfPut(*request_.ns, request_.keys.size(), scope_->view, request_.options);
    status = asked.status;
    for (uint64_t i = 0; i < asked.range.count; ++i) {
      positions_.push_back(static_cast<uint32_t>(asked.range.first + i));
    }
  }
  blocks_.resize(positions_.size());
  return status;
}

absl::Status PutOperation::PrepareLink() {
  if (request_.placement) {
    maybe_link_ = core_.directory.Find(request_.placement->node, request_.placement->incarnation);
  } else if (const auto links = core_.directory.ForPut(request_.keys.front()); !links.empty()) {
    maybe_link_ = links.front();
  }
  if (maybe_link_ == nullptr) {
    return absl::UnavailableError("no node is reachable");
  }
  window_ = maybe_link_->send_window();
  return absl::OkStatus();
}

absl::Status PutOperation::PrepareCodec() {
  group_mask_ = ViewGroups(scope_->view);
  TOKURA_ASSIGN_OR_RETURN(chosen_,
                          ChooseEncoding(core_, *request_.ns, group_mask_, request_.options.codec));
  bytes_max_.assign(scope_->view.groups.size(), 0);
  for (size_t g = 0; g < bytes_max_.size(); ++g) {
    if ((group_mask_ & (1u << g)) == 0) {
      continue;
    }
    const kernels::PartShape shape = request_.ns->Shape(g);
    TOKURA_ASSIGN_OR_RETURN(bytes_max_[g], kernels::PartBytesMax(shape, chosen_.codec));
    raw_bytes_per_block_ += RawBytes(shape) * scope_->view.shards;
    if (bytes_max_[g] > std::min(core_.options.part_bytes_max, core_.ring.capacity())) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a part of group ", g, " may take ", bytes_max_[g], " bytes; part_bytes_max is ",
          core_.options.part_bytes_max, ", the ring ", core_.ring.capacity()));
    }
  }
  return absl::OkStatus();
}

void PutOperation::PrepareBatches() {
  const std::vector<PartId> ids = PartsOf(scope_->view, group_mask_);
  parts_per_block_ = ids.size();
  uint64_t block_bytes_max = 0;
  for (const PartId id : ids) {
    block_bytes_max += bytes_max_[id.group];
  }
  const uint64_t by_ring = core_.ring.capacity() / 4 / std::max<uint64_t>(block_bytes_max, 1);
  const uint32_t by_node = maybe_link_->limits().blocks_max();
  uint64_t most = std::min<uint64_t>(by_ring, net::kMessageBytesMax / 2 / kAnnouncementBytes);
  most = by_node == 0 ? most : std::min<uint64_t>(most, by_node);
  blocks_per_batch_ = std::max<uint64_t>(most, 1);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (b % blocks_per_batch_ == 0) {
      Batch batch;
      batch.first = b;
      batches_.push_back(std::move(batch));
    }
    ++batches_.back().count;
    for (const PartId id : ids) {
      parts_.push_back({b, id});
    }
  }
}

Duration PutOperation::PredictedTotal() const {
  const uint64_t raw_bytes = raw_bytes_per_block_ * blocks_.size();
  const Duration wire = maybe_link_ == nullptr
                            ? Duration::zero()
                            : maybe_link_->rate().Predict(raw_bytes + core_.ring.used());
  const Duration codec = core_.codec.encode.Predict(raw_bytes + core_.codec.encode_backlog_bytes);
  return OperationDeadline::DefaultTotal(core_.options.progress_timeout, wire + codec);
}

void PutOperation::Pump() {
  const uint32_t encoders_max = 2 * std::max(core_.options.codec_threads, 1u);
  while (!ended_ && view_state_ == ViewState::kHeld && ticket_ == 0 && encoding_ < encoders_max) {
    while (next_part_ < parts_.size() && BlockOver(next_part_)) {
      ++next_part_;
    }
    if (next_part_ == parts_.size()) {
      break;
    }
    const size_t bytes = bytes_max_[parts_[next_part_].id.group];
    if (RingSlot slot = core_.ring.TryTake(bytes, window_); slot.valid()) {
      Encode(next_part_++, std::move(slot));
      continue;
    }
    ticket_ = core_.ring.Wait(bytes, window_, [self = Self<PutOperation>()](RingSlot slot) {
      self->ticket_ = 0;
      const bool wanted = !self->ended_ && self->view_state_ == ViewState::kHeld &&
                          !self->BlockOver(self->next_part_);
      if (wanted) {
        self->Encode(self->next_part_++, std::move(slot));
      }
      self->Pump();
    });
    if (ticket_ == 0) {
      core_.metrics.queue_rejected->Increment();
      core_.executor.Post([self = Self<PutOperation>()] {
        if (!self->ended_) {
          self->End(absl::ResourceExhaustedError("no room in the ring"));
        }
      });
      return;
    }
  }
  if (!ended_ && next_part_ == parts_.size() && encoding_ == 0 && ticket_ == 0) {
    Release();
  }
}

void PutOperation::Encode(size_t part, RingSlot slot) {
  const Part& which = parts_[part];
  // The node hears of a batch while its first part is being encoded.
  Announce(which.block / blocks_per_batch_);
  const uint64_t position = positions_[which.block];
  PartEncode::Request request;
  request.identity = {.fingerprint = request_.ns->fingerprint(),
                      .key = request_.keys[position],
                      .content_id = request_.content_id,
                      .part = which.id};
  request.shape = request_.ns->Shape(which.id.group);
  request.first_head = FirstHead(*request_.ns, scope_->view, which.id);
  request.first_token = FirstToken(*request_.ns, scope_->view, position);
  request.options.codec = chosen_.codec;
  request.options.sink_tokens = core_.options.sink_tokens;
  request.options.block_position = static_cast<uint32_t>(position);
  request.options.record = chosen_.record;
  request.options.profiles = &core_.profiles.store();
  request.options.profile = chosen_.profile;
  auto encode = std::make_unique<PartEncode>(scope_, std::move(request), slot.span().bytes());
  ++encoding_;
  core_.pool.Add(
      std::make_unique<EncodeJob>(Self<PutOperation>(), part, std::move(encode), std::move(slot)));
}

void PutOperation::OnEncoded(size_t part, const PartEncode& encode, RingSlot slot, Duration took) {
  --encoding_;
  encode_took_ += took;
  const uint64_t raw = RawBytes(request_.ns->Shape(parts_[part].id.group));
  if (encode.status().ok()) {
    core_.metrics.Coded(chosen_.codec, {.direction = CodecDirection::kEncode,
                                        .input_bytes = raw,
                                        .output_bytes = encode.bytes(),
                                        .took = took});
    core_.metrics.raw_fallbacks->Increment(encode.raw_fallback_layers());
    core_.codec.encode.Observe(raw, took);
  }
  if (ended_) {
    return;
  }
  if (!encode.status().ok() && !BlockOver(part)) {
    // The view was checked before, so this is the same for every block of the operation.
    End(encode.status());
    return;
  }
  if (!BlockOver(part)) {
    slot.Trim(encode.bytes());
    Offer({part, std::move(slot), encode.bytes()});
  }
  Pump();
}

void PutOperation::Offer(Encoded encoded) {
  const size_t index = parts_[encoded.part].block / blocks_per_batch_;
  Batch& batch = batches_[index];
  if (batch.state == Batch::State::kSent) {
    SendPart(std::move(encoded));
    return;
  }
  batch.ready.push_back(std::move(encoded));
}

void PutOperation::Announce(size_t index) {
  Batch& batch = batches_[index];
  if (batch.state == Batch::State::kUnsent) {
    batch.state = Batch::State::kQueued;
    maybe_link_->WhenCapacity([self = Self<PutOperation>(), index] { self->SendBatch(index); });
  }
}

void PutOperation::SendBatch(size_t index) {
  Batch& batch = batches_[index];
  if (ended_ || batch.state != Batch::State::kQueued) {
    return;
  }
  proto::PutRequest body;
  body.set_fingerprint(request_.ns->fingerprint().bytes.data(), Fingerprint::kBytes);
  for (size_t b = batch.first; b < batch.first + batch.count; ++b) {
    const size_t position = positions_[b];
    proto::PutBlock* block = body.add_blocks();
    block->set_key(request_.keys[position].bytes.data(), BlockKey::kBytes);
    if (position > 0) {
      block->set_parent(request_.keys[position - 1].bytes.data(), BlockKey::kBytes);
    }
    block->set_position(static_cast<uint32_t>(position));
    block->set_content_id(request_.content_id.bytes.data(), ContentId::kBytes);
  }
  body.set_codec(chosen_.codec);
  body.set_group_mask(group_mask_);
  body.set_shards(request_.ns->spec().head_shards);
  body.set_first_shard(scope_->view.first_shard);
  body.set_shard_count(scope_->view.shards);
  body.set_ttl_us(TtlUs(core_, request_.ns->spec()));
  body.set_placement_epoch(request_.placement ? request_.placement->epoch : 0);
  batch.state = Batch::State::kSent;
  Moved();
  batch.request_id = maybe_link_->Send(net::Op::kPut, body, deadline(),
                                       std::make_shared<PutCall>(Self<PutOperation>(), index));
  for (Encoded& encoded : std::exchange(batch.ready, {})) {
    SendPart(std::move(encoded));
  }
}

void PutOperation::SendPart(Encoded encoded) {
  const Part& part = parts_[encoded.part];
  const size_t index = part.block / blocks_per_batch_;
  Batch& batch = batches_[index];
  ++blocks_[part.block].parts_offered;
  ++batch.sending;
  wire_.Begin(core_.executor.Now());
  Moved(2 * maybe_link_->rate().Predict(encoded.bytes));
  const net::RegisteredSpan piece = encoded.slot.span().Sub(0, encoded.bytes);
  // The slot is the transport's until Done, whatever becomes of the operation.
  maybe_link_->SendPayload(batch.request_id, static_cast<uint32_t>(part.block - batch.first),
                           part.id, std::span(&piece, 1),
                           [self = Self<PutOperation>(), index, bytes = encoded.bytes,
                            slot = std::move(encoded.slot)](absl::Status status) mutable {
                             slot.Reset();
                             self->OnSent(index, bytes, status);
                           });
}

void PutOperation::OnSent(size_t index, size_t bytes, const absl::Status& status) {
  if (status.ok()) {
    bytes_moved_ += bytes;
    core_.metrics.sent_bytes->Increment(static_cast<double>(bytes));
    batches_[index].taken = true;
    TellAdmitted();
  }
  --batches_[index].sending;
  Moved();
}

void PutOperation::OnReply(size_t index, const absl::Status& status,
                           std::span<const std::byte> body) {
  Batch& batch = batches_[index];
  if (ended_ || batch.state != Batch::State::kSent) {
    return;
  }
  if (absl::IsDeadlineExceeded(status) && core_.executor.Now() >= deadline()) {
    ExpireNow();
    return;
  }
  batch.state = Batch::State::kAnswered;
  wire_.Extend(core_.executor.Now());
  Moved();
  proto::PutReply reply;
  absl::Status readable = status;
  if (status.ok() && (!reply.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
                      reply.statuses().size() != batch.count)) {
    readable = absl::InternalError("the node's answer cannot be read");
  }
  int failed = 0;
  for (size_t i = 0; i < batch.count; ++i) {
    if (!readable.ok()) {
      Finalize(batch.first + i, readable);
      continue;
    }
    const auto code = static_cast<absl::StatusCode>(reply.statuses()[i]);
    const bool has_reason = code != absl::StatusCode::kOk && failed < reply.reasons_size();
    Finalize(batch.first + i,
             absl::Status(code, has_reason ? reply.reasons(failed) : std::string()));
    failed += code != absl::StatusCode::kOk ? 1 : 0;
  }
  TellAdmitted();
  Pump();
  FinishIfOver();
}

void PutOperation::Finalize(size_t index, absl::Status status) {
  Block& block = blocks_[index];
  if (block.final) {
    return;
  }
  block.final = true;
  block.status = std::move(status);
  --open_blocks_;
}

void PutOperation::OnLinkDraining(NodeLink& link, const absl::Status& why) {
  if (ended_ || maybe_link_ != &link) {
    return;
  }
  for (Batch& batch : batches_) {
    if (batch.state != Batch::State::kUnsent && batch.state != Batch::State::kQueued) {
      continue;
    }
    Abandon(batch);
    for (size_t b = batch.first; b < batch.first + batch.count; ++b) {
      Finalize(b, absl::UnavailableError(why.message()));
    }
  }
  Pump();
  FinishIfOver();
}

void PutOperation::OnLinkLost(NodeLink& link, const absl::Status& why) {
  if (ended_ || maybe_link_ != &link) {
    return;
  }
  maybe_link_ = nullptr;
  for (Batch& batch : batches_) {
    batch.state = Batch::State::kAnswered;  // nothing more will come
  }
  End(absl::UnavailableError(why.message()));
}

void PutOperation::Abandon(Batch& batch) {
  if (batch.state == Batch::State::kSent) {
    maybe_link_->Cancel(batch.request_id);
  }
  batch.state = Batch::State::kAnswered;
  batch.ready.clear();
}

void PutOperation::Cancel() {
  if (ended_) {
    return;
  }
  const absl::Status cause = absl::CancelledError("cancelled by the caller");
  for (Batch& batch : batches_) {
    const bool all_offered = batch.state == Batch::State::kSent && AllOffered(batch);
    if (all_offered || batch.state == Batch::State::kAnswered) {
      continue;  // the node will tell what became of it
    }
    Abandon(batch);
    for (size_t b = batch.first; b < batch.first + batch.count; ++b) {
      Finalize(b, Offered(blocks_[b]) ? MaybeStored(cause) : NeverSent(cause));
    }
  }
  next_part_ = parts_.size();
  core_.ring.CancelWait(std::exchange(ticket_, 0));
  if (open_blocks_ == 0) {
    End(cause);
    return;
  }
  Release();
  Hurry(core_.options.progress_timeout);
}

void PutOperation::TellAdmitted() {
  if (!request_.placement || !request_.placement->admitted || open_blocks_ == 0) {
    return;
  }
  const bool settled = std::all_of(batches_.begin(), batches_.end(), [](const Batch& batch) {
    return batch.taken || batch.state == Batch::State::kAnswered;
  });
  const bool refused = std::any_of(blocks_.begin(), blocks_.end(), [](const Block& block) {
    return absl::IsFailedPrecondition(block.status);
  });
  if (settled && !refused) {
    std::exchange(request_.placement->admitted, nullptr)();
  }
}

void PutOperation::Release() {
  if (view_state_ != ViewState::kHeld) {
    return;
  }
  view_state_ = ViewState::kClosing;
  scope_->gate.Close(core_.executor, [self = Self<PutOperation>()] { self->OnQuiet(); });
}

void PutOperation::OnQuiet() {
  view_state_ = ViewState::kReleased;
  if (Task released = std::move(released_); released) {
    released();
  }
  if (ended_) {
    Deliver();
  }
}

void PutOperation::FinishIfOver() {
  if (!ended_ && open_blocks_ == 0) {
    End(absl::OkStatus());
  }
}

void PutOperation::Moved(Duration allowance) {
  moved_ = std::max(moved_, After(core_.executor.Now(), allowance));
}

bool PutOperation::AllOffered(const Batch& batch) const {
  for (size_t b = batch.first; b < batch.first + batch.count; ++b) {
    if (!blocks_[b].final && !Offered(blocks_[b])) {
      return false;
    }
  }
  return true;
}

bool PutOperation::WaitsForNode() const {
  return std::any_of(batches_.begin(), batches_.end(), [this](const Batch& batch) {
    return batch.state == Batch::State::kSent && (batch.sending > 0 || AllOffered(batch));
  });
}

TimePoint PutOperation::StallsAt() const {
  return maybe_link_ != nullptr && WaitsForNode() ? StallOf(moved_) : kNever;
}

void PutOperation::OnExpired(OperationDeadline::Verdict) {
  const bool guilty = maybe_link_ != nullptr && WaitsForNode() && Blames(*maybe_link_, moved_);
  NodeLink* const maybe_blamed = guilty ? maybe_link_ : nullptr;
  const absl::Status cause = absl::DeadlineExceededError("the node did not answer in time");
  End(cause);
  if (maybe_blamed != nullptr) {
    maybe_blamed->Drop(cause);
  }
}

absl::Status PutOperation::StatusAtEnd(const Block& block, const absl::Status& cause) const {
  const bool cut_short = absl::IsDeadlineExceeded(cause) || absl::IsCancelled(cause);
  if (!Offered(block)) {
    return cut_short ? NeverSent(cause) : cause;
  }
  const bool says_nothing = absl::IsDeadlineExceeded(cause) || absl::IsUnavailable(cause);
  return says_nothing ? cause : MaybeStored(cause);
}

void PutOperation::End(const absl::Status& cause) {
  ended_ = true;
  StopClock();
  core_.codec.encode_backlog_bytes -= backlog_bytes_;
  core_.ring.CancelWait(std::exchange(ticket_, 0));
  for (size_t b = 0; b < blocks_.size(); ++b) {
    Finalize(b, StatusAtEnd(blocks_[b], cause));
  }
  for (Batch& batch : batches_) {
    Abandon(batch);
  }
  next_part_ = parts_.size();
  if (view_state_ == ViewState::kReleased) {
    Deliver();
    return;
  }
  Release();
}

void PutOperation::Deliver() {
  PutResult result;
  size_t ok = 0;
  const absl::Status* first_failure = nullptr;
  for (Block& block : blocks_) {
    if (counted()) {
      core_.metrics.BlockEnded(OperationKind::kPut, block.status);
    }
    ok += block.status.ok() ? 1 : 0;
    first_failure = first_failure == nullptr && !block.status.ok() ? &block.status : first_failure;
    result.blocks.push_back(block.status);
  }
  result.bytes_moved = bytes_moved_;
  result.timings = {.wire = wire_.duration(), .codec = encode_took_};
  result.bytes_logical = ok * raw_bytes_per_block_;
  if (counted()) {
    core_.metrics.logical_sent_bytes->Increment(static_cast<double>(result.bytes_logical));
  }
  ResultLabel label = ResultLabel::kOk;
  if (first_failure != nullptr) {
    label = ok > 0 ? ResultLabel::kPartial : LabelOf(*first_failure);
  }
  Retire(label);
  stored_(std::move(result));
}

}  // namespace tokura
