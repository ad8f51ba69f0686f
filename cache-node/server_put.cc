#include "cache-node/server_put.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache-node/server_connection.h"
#include "cache-node/server_wire.h"
#include "common/status_macros.h"
#include "kernels/codec.h"

namespace tokura::node {
namespace {

constexpr uint32_t kGroupsMax = 8;
// A client announces a put before it encodes, which takes it about so long for the first part.
constexpr Duration kPayloadSoon = std::chrono::microseconds(300);
constexpr uint32_t kShardsMax = 256;
constexpr size_t kPartsMax = size_t{1} << 16;  // of one PUT
// A reply tells the reasons of the first failed blocks only; each is cut.
constexpr int kReasonsMax = 64;
constexpr size_t kReasonBytesMax = 256;
// Longer times to live are as good as this (ten years), which a Duration holds.
constexpr uint64_t kTtlMicrosMax = uint64_t{3650} * 24 * 3600 * 1'000'000;

// A reason as protobuf text may carry it: what is not ASCII may come from the part's bytes.
std::string ReasonText(absl::string_view message) {
  std::string text(message.substr(0, kReasonBytesMax));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

absl::StatusOr<PutRequest::BlockIds> ReadBlock(const proto::PutBlock& message) {
  PutRequest::BlockIds ids;
  TOKURA_ASSIGN_OR_RETURN(ids.key, ReadId<BlockKey>(message.key(), "key"));
  if (!message.parent().empty()) {
    TOKURA_ASSIGN_OR_RETURN(ids.parent, ReadId<BlockKey>(message.parent(), "parent"));
  }
  TOKURA_ASSIGN_OR_RETURN(ids.content_id, ReadId<ContentId>(message.content_id(), "content_id"));
  ids.position = message.position();
  return ids;
}

// The one name of a codec that this build knows, so that names cannot fill the store's table.
absl::StatusOr<std::string> ReadCodec(const std::string& name) {
  const absl::StatusOr<kernels::CodecPreset> codec = kernels::FindCodec(name);
  if (!codec.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("codec: ", codec.status().message()));
  }
  return kernels::CodecNameOf(codec->k, codec->v);
}

absl::Status CheckShape(const PutRequest::Announcement& put) {
  if (put.group_mask == 0 || put.group_mask >> kGroupsMax != 0) {
    return absl::InvalidArgumentError("group_mask is empty or names groups above 7");
  }
  if (put.shards == 0 || put.shards > kShardsMax) {
    return absl::InvalidArgumentError(absl::StrCat("shards is ", put.shards, ", not 1 to 256"));
  }
  if (put.shard_count == 0 || put.first_shard >= put.shards ||
      put.shard_count > put.shards - put.first_shard) {
    return absl::InvalidArgumentError("this writer's shards are none or not among the block's");
  }
  const size_t parts = size_t{put.shard_count} * std::popcount(put.group_mask);
  if (parts * put.blocks.size() > kPartsMax) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kPartsMax, " parts in one put"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PutRequest::Announcement> PutRequest::Read(const proto::PutRequest& message,
                                                          uint32_t blocks_max) {
  Announcement put;
  TOKURA_ASSIGN_OR_RETURN(put.fingerprint, ReadFingerprint(message.fingerprint()));
  if (message.blocks_size() == 0 || static_cast<uint32_t>(message.blocks_size()) > blocks_max) {
    return absl::InvalidArgumentError(absl::StrCat("blocks has ", message.blocks_size(),
                                                   " entries; this node takes 1 to ", blocks_max));
  }
  for (const proto::PutBlock& block : message.blocks()) {
    TOKURA_ASSIGN_OR_RETURN(BlockIds ids, ReadBlock(block));
    put.blocks.push_back(ids);
  }
  TOKURA_ASSIGN_OR_RETURN(put.codec, ReadCodec(message.codec()));
  put.group_mask = message.group_mask();
  put.shards = message.shards();
  put.first_shard = message.first_shard();
  put.shard_count = message.shard_count();
  put.ttl = std::chrono::microseconds(std::min(message.ttl_us(), kTtlMicrosMax));
  TOKURA_RETURN_IF_ERROR(CheckShape(put));
  return put;
}

PutRequest::PutRequest(std::shared_ptr<ServerConnection> connection, const net::FrameHeader& frame,
                       Announcement announcement)
    : ServerRequest(std::move(connection), frame), announced_(std::move(announcement)) {
  Block fresh;
  fresh.parts_left = parts_per_block();
  blocks_.assign(announced_.blocks.size(), fresh);
  blocks_left_ = blocks_.size();
  offered_.assign(blocks_.size() * parts_per_block(), false);
  this->connection().channel().transport().Expect(kPayloadSoon);
}

uint32_t PutRequest::parts_per_block() const {
  return announced_.shard_count * static_cast<uint32_t>(std::popcount(announced_.group_mask));
}

absl::Status PutRequest::TakePart(uint32_t block, PartId part) {
  const uint32_t mask = announced_.group_mask;
  if (part.group >= kGroupsMax || (mask >> part.group & 1) == 0 ||
      part.shard < announced_.first_shard ||
      part.shard - announced_.first_shard >= announced_.shard_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part.group, "/", part.shard, " was not announced"));
  }
  const auto group = static_cast<uint32_t>(std::popcount(mask & ((1u << part.group) - 1)));
  const size_t index = size_t{block} * parts_per_block() + group * announced_.shard_count +
                       (part.shard - announced_.first_shard);
  if (offered_[index]) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part.group, "/", part.shard, " came twice"));
  }
  offered_[index] = true;
  return absl::OkStatus();
}

void PutRequest::OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) {
  if (answered() || frame.index >= blocks_.size()) {
    connection().context().metrics.PutPartEnded(answered() ? PutPartResult::kAborted
                                                           : PutPartResult::kInvalid);
    return;
  }
  const PartId part{static_cast<uint8_t>(frame.group), static_cast<uint8_t>(frame.shard)};
  if (absl::Status status = TakePart(frame.index, part); !status.ok()) {
    FailBlock(frame.index, PutPartResult::kInvalid, std::move(status));
    return;
  }
  if (blocks_[frame.index].ended) {
    connection().context().metrics.PutPartEnded(PutPartResult::kAborted);
    return;
  }
  const uint64_t bytes = payload.size();
  if (bytes == 0 || bytes > connection().context().options.part_bytes_max) {
    FailBlock(frame.index, PutPartResult::kInvalid,
              absl::InvalidArgumentError(
                  absl::StrCat("a part of ", bytes, " bytes; this node takes 1 to ",
                               connection().context().options.part_bytes_max)));
    return;
  }
  blocks_[frame.index].offered.push_back(next_offer_);
  offers_.emplace(next_offer_++, Offer{frame.index, part, std::move(payload)});
  connection().slot().Add(shared_from_this());
}

uint64_t PutRequest::next_bytes() {
  return offers_.empty() ? 0 : offers_.begin()->second.payload.size();
}

absl::StatusOr<Reservation> PutRequest::Reserve(const Offer& offer) {
  const BlockIds& ids = announced_.blocks[offer.block];
  ReserveRequest request;
  request.fingerprint = announced_.fingerprint;
  request.key = ids.key;
  request.parent = ids.parent;
  request.position = ids.position;
  request.content_id = ids.content_id;
  request.codec = announced_.codec;
  request.group_mask = announced_.group_mask;
  request.shards = announced_.shards;
  request.part = offer.part;
  request.bytes = offer.payload.size();
  request.owner = connection().id();
  request.ttl = announced_.ttl;
  return connection().context().store->Reserve(request, Now());
}

PutRequest::Started PutRequest::StartNext() {
  Offer offer = std::move(offers_.begin()->second);
  offers_.erase(offers_.begin());
  if (!Wanted(offer.block)) {
    connection().context().metrics.PutPartEnded(PutPartResult::kAborted);
    return Started::kNo;
  }
  absl::StatusOr<Reservation> reservation = Reserve(offer);
  if (!reservation.ok()) {
    const absl::StatusCode code = reservation.status().code();
    if (code == absl::StatusCode::kAlreadyExists) {
      FinishPart(offer.block, PutPartResult::kHeld);
    } else {
      FailBlock(offer.block,
                code == absl::StatusCode::kResourceExhausted ? PutPartResult::kNoSpace
                                                             : PutPartResult::kInvalid,
                reservation.status());
    }
    return Started::kNo;  // The offer goes out of scope, which rejects it.
  }
  auto arrival = std::make_shared<Arrival>();
  arrival->request = std::static_pointer_cast<PutRequest>(shared_from_this());
  arrival->reservation = std::move(*reservation);
  arrival->block = offer.block;
  arrival->part = offer.part;
  arrival->bytes = offer.payload.size();
  arrival->verify = MakeVerify(*arrival);
  const std::span<std::byte> room = arrival->reservation.bytes();
  TransferStarted();
  offer.payload.Receive(
      {connection().context().region.get(), room.data(), room.size()},
      [arrival](size_t bytes) { arrival->request->OnArrived(arrival, bytes); },
      [arrival](const absl::Status& status) { arrival->request->OnReceived(arrival, status); });
  return Started::kYes;
}

std::unique_ptr<PartVerify> PutRequest::MakeVerify(const Arrival& arrival) const {
  const ServerContext& context = connection().context();
  const BlockIds& ids = announced_.blocks[arrival.block];
  PartVerify::Options options;
  options.bytes = arrival.reservation.bytes();
  options.expected = {announced_.fingerprint, ids.key, ids.content_id, arrival.part};
  options.layers = context.options.verify_on_put && !context.bugs.skip_crc ? LayerChecks::kAll
                                                                           : LayerChecks::kNone;
  return std::make_unique<PartVerify>(options);
}

void PutRequest::OnArrived(const std::shared_ptr<Arrival>& arrival, uint64_t bytes) {
  Progress();
  connection().Arrived(Now());
  arrival->available = bytes;
  Continue(arrival);
}

void PutRequest::OnReceived(const std::shared_ptr<Arrival>& arrival, const absl::Status& status) {
  Progress();
  arrival->received = status;
  if (status.ok()) {
    connection().context().metrics.Received(arrival->bytes);
    arrival->available = arrival->bytes;
  }
  Continue(arrival);
}

void PutRequest::Continue(const std::shared_ptr<Arrival>& arrival) {
  if (arrival->verify == nullptr) {
    return;
  }
  const bool failed = arrival->received && !arrival->received->ok();
  if (Wanted(arrival->block) && !failed && !arrival->verify->over() &&
      arrival->available > arrival->verify->available()) {
    Verify(arrival);
  } else if (arrival->received) {
    EndPart(*arrival);
  }
}

void PutRequest::Verify(const std::shared_ptr<Arrival>& arrival) {
  ServerContext& context = connection().context();
  arrival->verify->Grow(arrival->available);
  context.metrics.VerifyQueued();
  const Job::Load load = LoadOf(arrival->bytes * blocks_.size() * parts_per_block());
  context.pool.Add(
      std::make_unique<VerifyJob>(std::move(arrival->verify), load, connection().executor(),
                                  [arrival](std::unique_ptr<PartVerify> verify) {
                                    PutRequest& request = *arrival->request;
                                    request.connection().context().metrics.VerifyEnded();
                                    arrival->verify = std::move(verify);
                                    request.Continue(arrival);
                                  }));
}

void PutRequest::EndPart(Arrival& arrival) {
  const std::shared_ptr<PutRequest> self = arrival.request;
  const std::unique_ptr<PartVerify> verify = std::move(arrival.verify);
  const bool verified = arrival.received->ok() && verify->over();
  if (verified && !verify->result().ok()) {
    FailBlock(arrival.block, PutPartResult::kCorrupt, verify->result().status());
  } else if (verified && (Wanted(arrival.block) || connection().context().bugs.accept_late_write)) {
    Commit(arrival, *verify->result());
  } else {
    FailBlock(arrival.block, PutPartResult::kAborted,
              arrival.received->ok() ? absl::AbortedError("the put had ended") : *arrival.received);
  }
  // The room goes before the gate lets the next transfer in, which may need it.
  arrival.reservation.Abort();
  TransferEnded(arrival.bytes);
}

void PutRequest::Commit(Arrival& arrival, const kernels::PartInfo& info) {
  absl::StatusOr<CommitResult> result =
      connection().context().store->Commit(std::move(arrival.reservation), info, Now());
  if (result.ok()) {
    blocks_[arrival.block].visible |= *result == CommitResult::kVisible;
    FinishPart(arrival.block,
               *result == CommitResult::kDuplicate ? PutPartResult::kHeld : PutPartResult::kStored);
  } else if (result.status().code() == absl::StatusCode::kInvalidArgument) {
    FailBlock(arrival.block, PutPartResult::kCorrupt,
              absl::DataLossError(result.status().message()));
  } else {
    FailBlock(arrival.block, PutPartResult::kAborted, result.status());
  }
}

bool PutRequest::Wanted(uint32_t block) const {
  return !answered() && !blocks_[block].ended && !PastDeadline();
}

void PutRequest::FinishPart(uint32_t block, PutPartResult result) {
  connection().context().metrics.PutPartEnded(result);
  Block& entry = blocks_[block];
  if (!entry.ended && --entry.parts_left == 0) {
    EndBlock(block);
  }
}

void PutRequest::FailBlock(uint32_t block, PutPartResult result, absl::Status why) {
  ServerContext& context = connection().context();
  context.metrics.PutPartEnded(result);
  if (result == PutPartResult::kCorrupt) {
    LogLimited(context.client_log, LogLevel::kWarn, "node", "part_corrupt",
               {{"peer", connection().channel().peer()}, {"reason", why.message()}});
  }
  Block& entry = blocks_[block];
  if (entry.ended) {
    return;
  }
  entry.status = PastDeadline() ? absl::DeadlineExceededError("the put's deadline has passed")
                                : std::move(why);
  const BlockIds& ids = announced_.blocks[block];
  context.store->Abandon(announced_.fingerprint, ids.key, ids.content_id, Now());
  DropOffers(block);
  EndBlock(block);
}

void PutRequest::DropOffers(uint32_t block) {
  for (const uint64_t offer : std::exchange(blocks_[block].offered, {})) {
    if (offers_.erase(offer) != 0) {  // Destroying the payload rejects it.
      connection().context().metrics.PutPartEnded(PutPartResult::kAborted);
    }
  }
}

void PutRequest::CheckHeld(uint32_t block) {
  Block& entry = blocks_[block];
  if (!entry.status.ok() || entry.visible) {
    return;
  }
  const BlockIds& ids = announced_.blocks[block];
  const Held held = connection().context().store->Holds(
      {announced_.fingerprint, ids.key, ids.content_id, announced_.codec, announced_.group_mask,
       announced_.first_shard, announced_.shard_count});
  if (held == Held::kNo) {
    entry.status = absl::AbortedError("the block was given up or evicted before it was complete");
    connection().context().store->Abandon(announced_.fingerprint, ids.key, ids.content_id, Now());
  }
}

void PutRequest::EndBlock(uint32_t block) {
  blocks_[block].ended = true;
  if (--blocks_left_ == 0 && !answered()) {
    Reply(absl::OkStatus());
  }
}

void PutRequest::GiveUp(const absl::Status& why) {
  ServerContext& context = connection().context();
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].ended) {
      continue;
    }
    blocks_[i].ended = true;
    blocks_[i].status = why;
    const BlockIds& ids = announced_.blocks[i];
    context.store->Abandon(announced_.fingerprint, ids.key, ids.content_id, Now());
  }
  blocks_left_ = 0;
  for (size_t i = 0; i < offers_.size(); ++i) {
    context.metrics.PutPartEnded(PutPartResult::kAborted);
  }
  offers_.clear();
  Reply(why);
}

void PutRequest::Reply(const absl::Status& result) {
  proto::PutReply reply;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    CheckHeld(i);
    const Block& block = blocks_[i];
    reply.mutable_statuses()->push_back(static_cast<char>(block.status.code()));
    if (!block.status.ok() && reply.reasons_size() < kReasonsMax) {
      reply.add_reasons(ReasonText(block.status.message()));
    }
  }
  Answer(result, &reply);
}

}  // namespace tokura::node
