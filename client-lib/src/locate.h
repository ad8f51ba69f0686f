#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client-lib/src/acceptance.h"
#include "client-lib/src/hedged_request.h"
#include "client-lib/src/operation.h"
#include "proto/cluster.pb.h"
#include "tokura/types.h"

namespace tokura {

// A question to coordinators where a chain is.
struct LocateQuestion {
  NamespaceRef ns;
  std::vector<BlockKey> keys;  // from the chain's root; those beyond a coordinator's limit are left
  Acceptance acceptance;
  enum class Touch { kNo, kYes } touch = Touch::kYes;
  std::vector<std::string> avoid;  // nodes
};

// The request that asks it. Its answer's body is for MatchFromLocate.
HedgedRequest::Question MakeLocate(LocateQuestion question, TimePoint deadline);

// What a coordinator's answer says about a chain, as a match: a hint, without content ids, cut to
// the longest usable prefix that this software can read. Nothing when it contradicts itself.
std::optional<Match> MatchFromLocate(const Namespace& ns, std::span<const BlockKey> keys,
                                     std::span<const std::byte> body);

// Ask a coordinator for the longest usable prefix of a chain. Without an answer there is none.
class LocateOperation final : public Operation {
 public:
  struct Request {
    NamespaceRef ns;
    std::vector<BlockKey> keys;
    LookupOptions options;
  };
  LocateOperation(CoreContext& core, Identity identity, Request request,
                  ClientCore::LookupCallback done);
  void Start() override;
  void Cancel() override;
  void OnLinkDraining(NodeLink&, const absl::Status&) override {}
  void OnLinkLost(NodeLink&, const absl::Status&) override {}

 private:
  TimePoint StallsAt() const override { return kNever; }
  void OnExpired(OperationDeadline::Verdict verdict) override;
  void OnAnswer(const absl::Status& status, std::span<const std::byte> body);
  void Finish(const absl::Status& status, Match match);

  Request request_;
  ClientCore::LookupCallback done_;
  std::shared_ptr<HedgedRequest> asking_;
  bool ended_ = false;
};

}  // namespace tokura
