#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/block_store.h"
#include "cache-node/lease.h"
#include "cache-node/pin.h"
#include "cache-node/server_request.h"
#include "proto/tokura.pb.h"

namespace tokura::node {

// A GET: pins one form of every block asked for and offers its parts straight from the arena, block
// by block. A block's pin goes when its last part was delivered; until the transport's Done nothing
// moves. The reply follows the last offer, so that a client that has counted the payloads knows
// whether one is missing.
class GetRequest final : public ServerRequest {
 public:
  // What the message asks for, checked.
  struct Query {
    Fingerprint fingerprint;
    std::vector<BlockKey> keys;
    std::vector<ContentId> content_ids;
    LeaseToken lease;
    AcceptRule accept;
    uint32_t group_mask = 0;
    uint32_t first_shard = 0;
    uint32_t shard_count = 0;
    uint32_t first_layer = 0;
    uint32_t layer_count = 0;
  };
  // INVALID_ARGUMENT names what is wrong.
  static absl::StatusOr<Query> Read(const proto::GetRequest& message, uint32_t blocks_max);

  GetRequest(std::shared_ptr<ServerConnection> connection, const net::FrameHeader& frame,
             Query query);

  void OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) override;
  size_t blocks() const override { return query_.keys.size(); }
  size_t parts() const override { return 0; }
  bool Uses(const LeaseToken& lease) const override;
  uint64_t next_bytes() override { return next_ ? next_->bytes : 0; }
  Started StartNext() override;

 protected:
  void Begin() override;
  void GiveUp(const absl::Status& why) override;

 private:
  struct Block {
    FormPin pin;
    absl::StatusCode status = absl::StatusCode::kNotFound;
    uint32_t under_way = 0;
    bool finished = false;  // nothing more will be offered
  };
  // A part to offer.
  struct Offer {
    uint32_t block = 0;
    PartId part;
    std::array<std::span<std::byte>, 2> pieces;
    uint64_t bytes = 0;
  };

  void PinBlocks();
  // Set next_ to the next part to offer; empty when there is none.
  void FindNext();
  // The next part of the block under the cursor; empty when it has no more.
  absl::StatusOr<std::optional<Offer>> NextOfBlock(const FormPin& pin);
  // Prefix and wanted layers of a part.
  absl::Status Cut(std::span<std::byte> part, Offer* offer) const;
  void FinishBlock(Block& block, absl::StatusCode status);
  void Reply(const absl::Status& result);
  void OnDelivered(uint32_t block, uint64_t bytes, const absl::Status& status);

  Query query_;
  LeaseUse lease_use_;
  std::vector<Block> blocks_;
  std::optional<Offer> next_;
  uint32_t payloads_ = 0;
  // Cursor: the block, and the next group and shard of it.
  uint32_t block_ = 0;
  uint32_t group_ = 0;
  uint32_t shard_ = 0;
};

}  // namespace tokura::node
