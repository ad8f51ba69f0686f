#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client-lib/src/operation.h"
#include "client-lib/src/part_encode.h"
#include "client-lib/src/policy.h"
#include "client-lib/src/wire_span.h"
#include "proto/tokura.pb.h"

namespace tokura {

// Encodes blocks from a view into the ring and offers them to one node: the one that a plan placed
// them on, or else the directory's choice. Two events: the view is
// released once everything is encoded or the operation has ended; the outcome follows. Owned by the
// core's executor.
//
// A block is visible at the node only when all its parts have arrived; so a block of which not all
// parts were offered can honestly be called CANCELLED, and one whose parts were all offered cannot.
class PutOperation final : public Operation {
 public:
  // What a plan says of the blocks that go to one node.
  struct Placement {
    std::string node;
    uint64_t incarnation = 0;
    uint64_t epoch = 0;
    std::vector<uint32_t>
        positions;  // in the chain, rising; options.first_block and blocks count not
    // Called once no block can be refused for its placement any more; not when the outcome comes
    // first.
    Task admitted;
  };
  struct Request {
    NamespaceRef ns;
    std::vector<BlockKey> keys;  // of the whole chain
    SequenceView view;
    PutOptions options;
    ContentId content_id;
    std::optional<Placement> placement = std::nullopt;
  };
  PutOperation(CoreContext& core, Identity identity, Request request, Task released,
               ClientCore::PutCallback stored);

  void Start() override;
  void Cancel() override;
  void OnLinkDraining(NodeLink& link, const absl::Status& why) override;
  void OnLinkLost(NodeLink& link, const absl::Status& why) override;

 private:
  class PutCall;
  class EncodeJob;

  struct Block {
    uint32_t parts_offered = 0;
    bool final = false;
    absl::Status status;
  };
  struct Part {
    size_t block;  // in blocks_
    PartId id;
  };
  struct Encoded {
    size_t part;
    RingSlot slot;
    size_t bytes;
  };
  // Blocks [first, first + count) of blocks_, announced in one request.
  struct Batch {
    size_t first = 0;
    size_t count = 0;
    enum class State { kUnsent, kQueued, kSent, kAnswered } state = State::kUnsent;
    uint64_t request_id = 0;
    uint32_t sending = 0;        // transfers under way
    bool taken = false;          // the node took a part: it does not refuse the batch
    std::vector<Encoded> ready;  // encoded before the announcement could be sent
  };

  absl::Status Prepare();
  // Which blocks: positions_. INVALID_ARGUMENT: more than the chain has.
  absl::Status PreparePositions();
  // The node to put to. UNAVAILABLE: none is reachable.
  absl::Status PrepareLink();
  absl::Status PrepareCodec();
  void PrepareBatches();
  Duration PredictedTotal() const;

  // Encode what the ring has room for.
  void Pump();
  bool BlockOver(size_t part) const { return blocks_[parts_[part].block].final; }
  void Encode(size_t part, RingSlot slot);
  void OnEncoded(size_t part, const PartEncode& encode, RingSlot slot, Duration took);
  void Offer(Encoded encoded);
  void Announce(size_t batch);
  void SendBatch(size_t batch);
  void SendPart(Encoded encoded);
  void OnSent(size_t batch, size_t bytes, const absl::Status& status);
  void OnReply(size_t batch, const absl::Status& status, std::span<const std::byte> body);

  Batch& BatchOf(size_t block);
  void Finalize(size_t block, absl::Status status);
  bool Offered(const Block& block) const {
    return parts_per_block_ > 0 && block.parts_offered == parts_per_block_;
  }
  // Give up on a batch: the node forgets it.
  void Abandon(Batch& batch);
  // Tell the placement's owner when every batch was taken or answered.
  void TellAdmitted();
  // Nothing more will be encoded: release the view as soon as no step is inside.
  void Release();
  void OnQuiet();
  void FinishIfOver();

  // The node made progress, or has to from now on, with `allowance` for a transfer.
  void Moved(Duration allowance = Duration::zero());
  // Whether all parts of the batch's blocks are offered.
  bool AllOffered(const Batch& batch) const;
  // Whether the node, and nothing of ours, is what some batch waits for.
  bool WaitsForNode() const;
  TimePoint StallsAt() const override;
  void OnExpired(OperationDeadline::Verdict verdict) override;
  // The outcome of a block that has none when `cause` ends the operation.
  absl::Status StatusAtEnd(const Block& block, const absl::Status& cause) const;
  // Finish; `cause` is why blocks without an outcome have none.
  void End(const absl::Status& cause);
  void Deliver();

  Request request_;
  Task released_;
  ClientCore::PutCallback stored_;
  std::shared_ptr<EncodeScope> scope_;
  Encoding chosen_;
  uint32_t group_mask_ = 0;
  std::vector<size_t> bytes_max_;  // of a part, by group
  NodeLink* maybe_link_ = nullptr;
  RingWindowRef window_;             // of the link, since it was chosen
  std::vector<uint32_t> positions_;  // in the chain, of each block
  std::vector<Block> blocks_;
  std::vector<Part> parts_;  // block by block
  std::vector<Batch> batches_;
  size_t blocks_per_batch_ = 1;
  size_t parts_per_block_ = 0;
  uint64_t raw_bytes_per_block_ = 0;
  uint64_t backlog_bytes_ = 0;
  size_t next_part_ = 0;
  size_t open_blocks_ = 0;
  uint32_t encoding_ = 0;
  TimePoint moved_;  // when the node last made progress, or later: when it may be expected to
  Ring::Ticket ticket_ = 0;
  uint64_t bytes_moved_ = 0;
  WireSpan wire_;
  Duration encode_took_ = Duration::zero();
  enum class ViewState { kHeld, kClosing, kReleased } view_state_ = ViewState::kHeld;
  bool ended_ = false;
};

}  // namespace tokura
