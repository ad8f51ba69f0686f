#include "cache-node/server_get.h"

#include <algorithm>
#include <utility>

#include "cache-node/server_check.h"
#include "cache-node/server_connection.h"
#include "cache-node/server_wire.h"
#include "common/status_macros.h"
#include "kernels/part.h"

namespace tokura::node {
namespace {

constexpr uint32_t kGroupsMax = 8;

}  // namespace

absl::StatusOr<GetRequest::Query> GetRequest::Read(const proto::GetRequest& message,
                                                   uint32_t blocks_max) {
  Query query;
  TOKURA_ASSIGN_OR_RETURN(query.fingerprint, ReadFingerprint(message.fingerprint()));
  TOKURA_ASSIGN_OR_RETURN(query.keys, ReadKeys(message.keys(), blocks_max));
  TOKURA_ASSIGN_OR_RETURN(query.content_ids,
                          ReadContentIds(message.content_ids(), query.keys.size()));
  TOKURA_ASSIGN_OR_RETURN(query.accept, ReadAccept(message.accept()));
  if (!message.lease().empty()) {
    TOKURA_ASSIGN_OR_RETURN(query.lease, ReadId<LeaseToken>(message.lease(), "lease"));
  }
  if (message.group_mask() >> kGroupsMax != 0) {
    return absl::InvalidArgumentError("group_mask names groups above 7");
  }
  query.accept.required_groups = message.group_mask();
  query.group_mask = message.group_mask();
  query.first_shard = message.first_shard();
  query.shard_count = message.shard_count();
  query.first_layer = message.first_layer();
  query.layer_count = message.layer_count();
  return query;
}

GetRequest::GetRequest(std::shared_ptr<ServerConnection> connection, const net::FrameHeader& frame,
                       Query query)
    : ServerRequest(std::move(connection), frame), query_(std::move(query)) {}

void GetRequest::OnPayload(const net::FrameHeader&, net::IncomingPayload) {}

bool GetRequest::Uses(const LeaseToken& lease) const {
  return lease_use_.valid() && query_.lease == lease;
}

void GetRequest::PinBlocks() {
  ServerContext& context = connection().context();
  PinQuery pins;
  std::vector<const FormPin*> held;
  if (!query_.lease.empty()) {
    // A lease that has ended is no error: the blocks may still be there.
    auto use = context.leases.Use(query_.lease, connection().tenant(), connection().id(), Now());
    if (use.ok()) {
      lease_use_ = std::move(*use);
      for (const BlockKey& key : query_.keys) {
        held.push_back(lease_use_.Find(query_.fingerprint, key));
      }
      pins.held = held;
    }
  }
  pins.fingerprint = query_.fingerprint;
  pins.keys = query_.keys;
  pins.accept = query_.accept;
  pins.content_ids = query_.content_ids;
  pins.gaps = Gaps::kKeep;
  std::vector<FormPin> found = context.store->Pin(pins, Now());
  blocks_.resize(query_.keys.size());
  for (size_t i = 0; i < found.size(); ++i) {
    blocks_[i].pin = std::move(found[i]);
  }
}

void GetRequest::Begin() {
  PinBlocks();
  FindNext();
  if (!next_) {
    Reply(absl::OkStatus());
    return;
  }
  connection().slot().Add(shared_from_this());
}

void GetRequest::FindNext() {
  next_.reset();
  for (; block_ < blocks_.size(); ++block_, group_ = 0, shard_ = 0) {
    Block& block = blocks_[block_];
    if (!block.pin.valid()) {
      FinishBlock(block, block.status);
      continue;
    }
    absl::StatusOr<std::optional<Offer>> offer = NextOfBlock(block.pin);
    if (!offer.ok()) {
      if (offer.status().code() == absl::StatusCode::kDataLoss) {
        // What cannot be read is not kept: the next writer may store it again.
        RemoveDamaged(connection().context(), block.pin, offer.status(), Now());
      }
      FinishBlock(block, offer.status().code());
    } else if (!*offer) {
      FinishBlock(block, absl::StatusCode::kOk);
    } else {
      next_ = std::move(*offer);
      return;
    }
  }
}

absl::StatusOr<std::optional<GetRequest::Offer>> GetRequest::NextOfBlock(const FormPin& pin) {
  const FormInfo& info = pin.info();
  if (query_.first_shard >= info.shards || query_.shard_count > info.shards - query_.first_shard) {
    return absl::InvalidArgumentError("the block has fewer head shards");
  }
  const uint32_t count =
      query_.shard_count != 0 ? query_.shard_count : info.shards - query_.first_shard;
  const uint32_t mask = query_.group_mask != 0 ? query_.group_mask : info.group_mask;
  for (; group_ < kGroupsMax; ++group_, shard_ = 0) {
    if ((mask >> group_ & 1) == 0 || shard_ >= count) {
      continue;
    }
    Offer offer;
    offer.block = block_;
    offer.part = {static_cast<uint8_t>(group_), static_cast<uint8_t>(query_.first_shard + shard_)};
    ++shard_;
    TOKURA_RETURN_IF_ERROR(Cut(pin.part(offer.part), &offer));
    return offer;
  }
  return std::nullopt;
}

absl::Status GetRequest::Cut(std::span<std::byte> part, Offer* offer) const {
  offer->bytes = part.size();
  offer->pieces[0] = part;
  if (query_.first_layer == 0 && query_.layer_count == 0) {
    return absl::OkStatus();
  }
  // The prefix was verified when it came in; this finds bits that flipped since.
  auto reader = kernels::PartReader::Open(part);
  if (!reader.ok()) {
    return absl::DataLossError(reader.status().message());
  }
  const kernels::PartInfo& info = reader->info();
  const uint64_t layers = info.layer_offset.size() - 1;
  const uint64_t first = std::min<uint64_t>(query_.first_layer, layers);
  const uint64_t end =
      query_.layer_count == 0 ? layers : std::min<uint64_t>(layers, first + query_.layer_count);
  const size_t from = info.layer_offset[first];
  offer->pieces[0] = part.first(info.prefix_bytes);
  offer->pieces[1] = part.subspan(from, info.layer_offset[end] - from);
  offer->bytes = offer->pieces[0].size() + offer->pieces[1].size();
  return absl::OkStatus();
}

GetRequest::Started GetRequest::StartNext() {
  if (PastDeadline()) {
    End(absl::DeadlineExceededError("the request's deadline has passed"));
    return Started::kNo;
  }
  const Offer offer = *next_;
  const net::MemoryRegion* region = connection().context().region.get();
  std::array<net::RegisteredSpan, 2> pieces;
  size_t count = 0;
  for (const std::span<std::byte>& piece : offer.pieces) {
    if (!piece.empty()) {
      pieces[count++] = {region, piece.data(), piece.size()};
    }
  }
  ++payloads_;
  ++blocks_[offer.block].under_way;
  TransferStarted();
  auto self = std::static_pointer_cast<GetRequest>(shared_from_this());
  connection().channel().SendPayload(
      frame(), offer.block, offer.part, std::span(pieces.data(), count),
      [self = std::move(self), block = offer.block, bytes = offer.bytes](absl::Status status) {
        self->OnDelivered(block, bytes, status);
      });
  FindNext();
  if (!next_) {
    Reply(absl::OkStatus());
  }
  return Started::kYes;
}

void GetRequest::OnDelivered(uint32_t block, uint64_t bytes, const absl::Status& status) {
  if (status.ok()) {
    connection().context().metrics.Sent(bytes);
    if (lease_use_.valid()) {
      lease_use_.Progress(Now());
    }
  }
  Progress();
  Block& entry = blocks_[block];
  --entry.under_way;
  if (entry.finished && entry.under_way == 0) {
    entry.pin.Reset();
  }
  TransferEnded(bytes);
  if (answered() && transfers_under_way() == 0) {
    lease_use_.Reset();
  }
}

void GetRequest::FinishBlock(Block& block, absl::StatusCode status) {
  block.status = status;
  block.finished = true;
  if (block.under_way == 0) {
    block.pin.Reset();
  }
}

void GetRequest::GiveUp(const absl::Status& why) {
  next_.reset();
  for (; block_ < blocks_.size(); ++block_) {
    Block& block = blocks_[block_];
    FinishBlock(block, block.pin.valid() ? why.code() : block.status);
  }
  Reply(why);
}

void GetRequest::Reply(const absl::Status& result) {
  proto::GetReply reply;
  reply.set_payloads(payloads_);
  for (const Block& block : blocks_) {
    reply.mutable_statuses()->push_back(static_cast<char>(block.status));
    connection().context().metrics.GetBlockEnded(block.status);
  }
  Answer(result, &reply);
  if (transfers_under_way() == 0) {
    lease_use_.Reset();
  }
}

}  // namespace tokura::node
