#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client-lib/src/fan_out.h"
#include "client-lib/src/held_blocks.h"
#include "client-lib/src/introductions.h"
#include "proto/tokura.pb.h"

namespace tokura {

// Pin the blocks of a match at the nodes that hold them, each node asked once for all of its
// blocks. What comes of it is cut to the first gap and to the longest usable prefix; leases that
// hold nothing of that are released. A block whose holder is not connected is asked of its
// alternate, and where a holder is expected to be connected soon, that is waited for first.
class AcquireOperation final : public FanOut {
 public:
  struct Request {
    NamespaceRef ns;
    Match match;
    AcceptOptions accept;
  };
  AcquireOperation(CoreContext& core, Identity identity, Request request,
                   ClientCore::LookupCallback done);
  void Start() override;

 private:
  // What one node is asked to pin. As many as questions.
  struct Share {
    Match::Holder holder;        // with the lease, once it is granted
    std::vector<size_t> blocks;  // of the match, in order
  };
  struct Pinned {
    HeldBlock block;
    size_t share;
  };

  // Holders that are worth waiting for.
  std::vector<Introductions::Node> Expected() const;
  // Ask those that are connected now, in the time that is left.
  void AskHolders();
  // The blocks that some connected node can be asked for, cut to the first that none can.
  void Divide();
  Question MakeQuestion(const Share& share, NodeLink& link) const;
  void OnAnswer(size_t question, const absl::Status& status,
                std::span<const std::byte> body) override;
  void Finish(const absl::Status& cause) override;
  // A lease that nobody hears of must not keep its blocks pinned.
  Duration LateAnswersFor() const override { return core_.options.dead_after; }
  void OnLateAnswer(size_t question, const absl::Status& status,
                    std::span<const std::byte> body) override;
  // How many leading blocks are pinned and usable.
  size_t UsableBlocks() const;
  // The match of those, with the leases that hold some of them; the others are released.
  Match Held(size_t blocks);

  Request request_;
  ClientCore::LookupCallback done_;
  TimePoint begun_;
  uint64_t wait_ = 0;  // for holders; 0: none is under way
  std::vector<Share> shares_;
  std::vector<std::optional<Pinned>> pinned_;  // by block of the match
  absl::Status failure_ = absl::UnavailableError("no node that holds it is reachable");
};

}  // namespace tokura
