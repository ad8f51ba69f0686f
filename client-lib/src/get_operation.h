#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "client-lib/src/acceptance.h"
#include "client-lib/src/introductions.h"
#include "client-lib/src/operation.h"
#include "client-lib/src/part_decode.h"
#include "client-lib/src/relocation.h"
#include "client-lib/src/wire_span.h"
#include "proto/tokura.pb.h"

namespace tokura {

// Fetches blocks into a view: asks in batches, receives parts into the ring, has them verified and
// decoded, and asks other nodes for what failed while there is time: those that the match names,
// then those that a coordinator names, who is asked once. Owned by the core's executor.
//
// A block's attempt number rises with every failure; whatever belongs to an older attempt (a
// payload, a transfer, a decode job) is dropped when it surfaces. A new attempt starts only once no
// job of an older one runs, so two attempts never write the view at the same time.
class GetOperation final : public Operation {
 public:
  struct Request {
    NamespaceRef ns;
    Match match;
    SequenceView view;
    GetOptions options;
  };
  GetOperation(CoreContext& core, Identity identity, Request request, ClientCore::GetCallback done);

  void Start() override;
  void Cancel() override;
  void OnLinkDraining(NodeLink& link, const absl::Status& why) override;
  void OnLinkLost(NodeLink& link, const absl::Status& why) override;

 private:
  class GetCall;
  class DecodeJob;
  struct Incoming;

  struct Part {
    PartId id;
    enum class State { kExpected, kArrived, kDone } state = State::kExpected;
    size_t progress_part = 0;
  };
  struct Block {
    size_t match_index = 0;
    uint32_t groups = 0;
    uint64_t wire_bytes = 0;  // predicted
    std::vector<Part> parts;
    enum class State { kPending, kRequested, kFinal } state = State::kPending;
    uint32_t attempt = 0;
    uint32_t jobs = 0;  // decode jobs under way, of any attempt
    size_t parts_done = 0;
    std::vector<std::string> tried;  // nodes
    absl::Status status;             // of the last attempt, then final
    BlockFidelity fidelity;
    std::string codec;
  };
  // Blocks [first, first + count) of blocks_, each at one attempt, asked of one node.
  struct Batch {
    size_t first = 0;
    std::vector<uint32_t> attempts;
    enum class State { kQueued, kSent, kAnswered, kLost } state = State::kQueued;
    NodeLink* maybe_link = nullptr;  // null once lost
    std::string node;
    uint64_t request_id = 0;
    uint32_t receiving = 0;  // transfers under way
    uint32_t waiting = 0;    // payloads that wait for room in the ring
    // When the node last made progress with this operation, or later: when it may be expected to.
    TimePoint moved;
  };
  // Which payload, of which attempt.
  struct Arrival {
    size_t batch;
    size_t block;
    size_t part;
    uint32_t attempt;
    size_t bytes;
    TimePoint started;
  };

  absl::Status Prepare();
  void PrepareBlocks();
  Duration PredictedTotal() const;

  // Ask for pending blocks as far as the ring's window allows; give up those nobody else may have.
  void AskForPending();
  // The same, and finish when every block has its outcome. Not from Start: callbacks come later.
  void Pump();
  NodeLink* ChooseLink(const Block& block) const;
  // The lease that covers the block at `link`; empty when there is none.
  LeaseToken LeaseAt(const Block& block, const NodeLink& link) const;
  // No holder of the block is connected: whether to wait for one that is expected, which joins
  // `expected`.
  bool AwaitsNode(const Block& block, std::vector<Introductions::Node>* expected);
  // Once: go on when all of them are here, or will not come.
  void AwaitNodes(std::vector<Introductions::Node> expected);
  // Nobody known has the block: whether to wait for what a coordinator says.
  bool AwaitsRelocation(const Block& block);
  void Relocate();
  size_t BatchEnd(size_t first, const NodeLink& link) const;
  void Ask(size_t first, size_t end, NodeLink& link);
  void Send(size_t batch);

  void OnPayload(size_t batch, const net::FrameHeader& frame, net::IncomingPayload payload);
  void TakeRoom(const Arrival& arrival, net::IncomingPayload payload);
  void Receive(Arrival arrival, net::IncomingPayload payload, RingSlot slot);
  void OnArrived(const std::shared_ptr<Incoming>& incoming, size_t bytes);
  void OnReceived(const std::shared_ptr<Incoming>& incoming, const absl::Status& status);
  // Have decoded what has arrived, unless that is being done or is not wanted any more.
  void Decode(const std::shared_ptr<Incoming>& incoming);
  PartDecode MakeDecode(const Arrival& arrival, std::span<const std::byte> payload) const;
  void OnDecoded(const std::shared_ptr<Incoming>& incoming, std::unique_ptr<PartDecode> decode,
                 Duration took);
  void OnReply(size_t batch, const absl::Status& status, std::span<const std::byte> body);
  void ApplyStatuses(const Batch& batch, const proto::GetReply& reply);

  bool Current(const Arrival& arrival) const;
  // Have the node check the block of which it sent wrong bytes.
  void Suspect(const Arrival& arrival);
  void CompletePart(const Arrival& arrival, const kernels::PartInfo& info);
  void FailBlock(size_t block, absl::Status status);
  void FailBatch(const Batch& batch, const absl::Status& status);
  // Nothing more comes from the batch's node, and what is under way from it does not count.
  void LoseBatch(Batch& batch, const absl::Status& why);
  // Whether a layer of some attempt at `block` was decoded, which the caller may have seen.
  bool Seen(const Block& block) const;
  void Finalize(size_t block, absl::Status status);
  uint32_t LayersAsked(size_t group) const;

  // The node of `batch` made progress, or has to from now on, with `allowance` for a transfer.
  void Moved(const Batch& batch, Duration allowance = Duration::zero());
  // Whether the node, and nothing of ours, is what `batch` waits for.
  static bool WaitsForNode(const Batch& batch);
  TimePoint StallsAt() const override;
  void OnExpired(OperationDeadline::Verdict verdict) override;
  std::vector<NodeLink*> BlamedLinks() const;
  // Finish with `cause` for every block without an outcome.
  void End(const absl::Status& cause);
  void Deliver();

  Request request_;
  ClientCore::GetCallback done_;
  std::shared_ptr<DecodeScope> scope_;
  Acceptance acceptance_;
  Relocation relocation_;
  uint64_t wait_ = 0;  // for nodes; 0: none is under way
  bool wait_over_ = false;
  std::vector<Block> blocks_;
  std::vector<Batch> batches_;
  std::set<Ring::Ticket> tickets_;
  size_t open_blocks_ = 0;
  uint64_t window_bytes_ = 0;  // predicted bytes of requested blocks
  uint64_t raw_bytes_ = 0;     // of all blocks asked for
  uint32_t jobs_ = 0;
  uint64_t bytes_moved_ = 0;
  WireSpan wire_;
  Duration decode_took_ = Duration::zero();
  bool loss_logged_ = false;
  bool ended_ = false;
};

}  // namespace tokura
