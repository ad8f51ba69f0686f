#pragma once

#include <vector>

#include "client-lib/src/fan_out.h"
#include "proto/tokura.pb.h"

namespace tokura {

// What a node's reply says about a chain, as a Match: the longest usable prefix (DESIGN §4). An
// empty match when the reply contradicts itself. `keys`: as asked, in chain order.
Match MatchFromReply(const Namespace& ns, std::span<const BlockKey> keys,
                     const proto::LookupReply& reply);

// Ask every reachable node which leading blocks it holds; the longest usable prefix wins.
class LookupOperation final : public FanOut {
 public:
  struct Request {
    NamespaceRef ns;
    std::vector<BlockKey> keys;
    LookupOptions options;
  };
  LookupOperation(CoreContext& core, Identity identity, Request request,
                  ClientCore::LookupCallback done);
  void Start() override;

 private:
  void OnAnswer(size_t question, const absl::Status& status,
                std::span<const std::byte> body) override;
  bool Satisfied() const override { return best_.keys.size() == request_.keys.size(); }
  void Finish(const absl::Status& cause) override;

  Request request_;
  ClientCore::LookupCallback done_;
  struct Asked {
    std::string node;
    uint64_t incarnation;
  };
  std::vector<Asked> asked_;
  Match best_;
  bool answered_ = false;
};

}  // namespace tokura
