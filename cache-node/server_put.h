#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/block_store.h"
#include "cache-node/node_metrics.h"
#include "cache-node/server_request.h"
#include "cache-node/server_verify.h"
#include "proto/tokura.pb.h"

namespace tokura::node {

// A PUT: its parts come as payload offers. Each takes its turn at the transfer gate, gets room in
// the arena, is received straight into it, verified on the worker pool while it arrives, and
// committed. A block is
// OK when all parts of this writer are stored (or were held already) when the put is answered. A
// block that fails is given up as a whole: what is stored of it goes, offers that wait are
// rejected. Nothing is committed after the answer.
//
// Life of a part:
//   awaited --offer--> offered --gate--> arriving --Done, verify--> stored
//   awaited, offered --block fails--> (rejected)
//   arriving --block fails--> arriving until Done and verification ended, then its room is freed
class PutRequest final : public ServerRequest {
 public:
  struct BlockIds {
    BlockKey key;
    BlockKey parent;
    uint32_t position = 0;
    ContentId content_id;
  };
  // What the message announces, checked.
  struct Announcement {
    Fingerprint fingerprint;
    std::string codec;
    uint32_t group_mask = 0;
    uint32_t shards = 0;
    uint32_t first_shard = 0;
    uint32_t shard_count = 0;
    Duration ttl{};  // 0: none
    std::vector<BlockIds> blocks;
  };
  // INVALID_ARGUMENT names what is wrong.
  static absl::StatusOr<Announcement> Read(const proto::PutRequest& message, uint32_t blocks_max);

  PutRequest(std::shared_ptr<ServerConnection> connection, const net::FrameHeader& frame,
             Announcement announcement);

  void OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) override;
  size_t blocks() const override { return announced_.blocks.size(); }
  size_t parts() const override { return offered_.size(); }
  bool Uses(const LeaseToken&) const override { return false; }
  uint64_t next_bytes() override;
  Started StartNext() override;

 protected:
  void Begin() override {}
  void GiveUp(const absl::Status& why) override;

 private:
  struct Block {
    absl::Status status;
    uint32_t parts_left = 0;
    bool ended = false;
    bool visible = false;           // this put stored the block's last part
    std::vector<uint64_t> offered;  // in offers_, if they still wait
  };
  struct Offer {
    uint32_t block = 0;
    PartId part;
    net::IncomingPayload payload;
  };
  // A part on its way into the arena. Its room is freed with it, unless it was committed. Owners:
  // the transfer, the verification, and what they post; executor only.
  struct Arrival {
    std::shared_ptr<PutRequest> request;  // keeps the store: declared before the reservation
    Reservation reservation;
    uint32_t block = 0;
    PartId part;
    uint64_t bytes = 0;
    uint64_t available = 0;                // bytes that have arrived
    std::optional<absl::Status> received;  // how the transfer ended
    std::unique_ptr<PartVerify> verify;    // while no job has it
  };

  uint32_t parts_per_block() const;
  // Mark (block, part) offered. INVALID_ARGUMENT: it was not announced, or was offered before.
  absl::Status TakePart(uint32_t block, PartId part);
  absl::StatusOr<Reservation> Reserve(const Offer& offer);
  std::unique_ptr<PartVerify> MakeVerify(const Arrival& arrival) const;
  void OnArrived(const std::shared_ptr<Arrival>& arrival, uint64_t bytes);
  void OnReceived(const std::shared_ptr<Arrival>& arrival, const absl::Status& status);
  // Verify what has arrived, or end the part when that is done. While a job verifies, its end
  // continues.
  void Continue(const std::shared_ptr<Arrival>& arrival);
  void Verify(const std::shared_ptr<Arrival>& arrival);
  void EndPart(Arrival& arrival);
  void Commit(Arrival& arrival, const kernels::PartInfo& info);
  void FinishPart(uint32_t block, PutPartResult result);
  void FailBlock(uint32_t block, PutPartResult result, absl::Status why);
  void EndBlock(uint32_t block);
  // Before the answer: fail a block whose parts are not stored any more, because another writer of
  // the same content has given it up, or time or pressure has.
  void CheckHeld(uint32_t block);
  void DropOffers(uint32_t block);
  // Whether what arrives for `block` is still wanted.
  bool Wanted(uint32_t block) const;
  void Reply(const absl::Status& result);

  Announcement announced_;
  std::vector<Block> blocks_;
  std::vector<bool> offered_;         // [blocks, groups of the mask, shard_count]
  std::map<uint64_t, Offer> offers_;  // wait for their turn, in the order in which they came
  uint64_t next_offer_ = 0;
  size_t blocks_left_ = 0;
};

}  // namespace tokura::node
