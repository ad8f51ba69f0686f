#pragma once

#include <string>
#include <vector>

#include "client-lib/src/fan_out.h"

namespace tokura {

// Remove blocks from every reachable node. A block is OK when some node had it, NOT_FOUND when all
// answered and none had it, else UNAVAILABLE.
class RemoveOperation final : public FanOut {
 public:
  struct Request {
    NamespaceRef ns;
    std::vector<BlockKey> keys;
    std::vector<NodeLink*> links;  // usable ones
    size_t nodes_listed;           // a listed node that is not reachable may hold any block
  };
  RemoveOperation(CoreContext& core, Identity identity, Request request,
                  ClientCore::RemoveCallback done);
  void Start() override;

 private:
  void OnAnswer(size_t question, const absl::Status& status,
                std::span<const std::byte> body) override;
  void Finish(const absl::Status& cause) override;

  Request request_;
  ClientCore::RemoveCallback done_;
  struct Range {
    size_t first;
    size_t count;
  };
  std::vector<Range> ranges_;  // of each question
  std::vector<bool> removed_;
  std::vector<size_t> answers_;  // nodes that said whether they had the block
};

// Ask every listed node for its totals.
class StatOperation final : public FanOut {
 public:
  struct Target {
    NodeLink* link;
    absl::Status trouble;  // OK: usable
  };
  StatOperation(CoreContext& core, Identity identity, std::vector<Target> targets,
                ClientCore::StatCallback done);
  void Start() override;

 private:
  void OnAnswer(size_t question, const absl::Status& status,
                std::span<const std::byte> body) override;
  void Finish(const absl::Status& cause) override;

  std::vector<Target> targets_;
  ClientCore::StatCallback done_;
  std::vector<absl::StatusOr<NodeStat>> stats_;  // by target
  std::vector<size_t> target_of_question_;
};

}  // namespace tokura
