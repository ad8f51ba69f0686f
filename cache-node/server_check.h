#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/block_store.h"
#include "cache-node/check_budget.h"
#include "cache-node/server_context.h"
#include "cache-node/server_request.h"
#include "cache-node/server_verify.h"
#include "proto/tokura.pb.h"

namespace tokura::node {

// Take a form whose bytes were found damaged (`why`) out of the store: a reader misses it and a
// writer may store its block again.
void RemoveDamaged(ServerContext& context, const FormPin& pin, const absl::Status& why,
                   TimePoint now);

// Verifies pinned forms on the worker pool, a layer a step: of every part its prefix, its identity
// and every layer, until the first that is damaged. What was found is handed back on an executor.
class FormsCheck final : public Job {
 public:
  struct Checked {
    FormPin pin;
    absl::Status status;  // OK: sound; DATA_LOSS
  };
  using DoneCallback = absl::AnyInvocable<void(std::vector<Checked>)>;
  // `executor` outlives the job. `done` is destroyed without a call when the pool or the executor
  // ends first, after the pins; it keeps the store.
  FormsCheck(std::vector<FormPin> pins, Executor& executor, DoneCallback done);

  Progress Step() override;
  Load load() const override { return load_; }

 private:
  // In the order in which it may be let go of.
  struct Findings {
    DoneCallback done;
    std::vector<Checked> forms;
  };
  // Set verify_ to check the next part; none is left when it stays empty.
  void OpenNext();

  Findings findings_;
  Executor& executor_;
  Load load_;
  std::optional<PartVerify> verify_;
  size_t form_ = 0;
  uint32_t group_ = 0;  // the next part to open
  uint32_t shard_ = 0;
};

// A REMOVE of blocks only where they are damaged, which this node finds out itself: a client that
// met wrong bytes cannot know whether they were stored or became so on the way. Block by block,
// every form that is held is checked; those that are damaged are removed, each exactly as it was
// checked. Transfers under way finish; leases keep its memory, and do not serve it any more.
class CheckRequest final : public ServerRequest {
 public:
  struct Query {
    Fingerprint fingerprint;
    std::vector<BlockKey> keys;
  };
  // INVALID_ARGUMENT names what is wrong.
  static absl::StatusOr<Query> Read(const proto::RemoveRequest& message, uint32_t blocks_max);

  CheckRequest(std::shared_ptr<ServerConnection> connection, const net::FrameHeader& frame,
               Query query);

  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  size_t blocks() const override { return query_.keys.size(); }
  size_t parts() const override { return 0; }
  bool Uses(const LeaseToken&) const override { return false; }
  uint64_t next_bytes() override { return 0; }
  Started StartNext() override { return Started::kNo; }

 protected:
  void Begin() override { CheckNext(); }
  void GiveUp(const absl::Status& why) override;

 private:
  // A block on its way through the pool. Owner: the job's callback; executor only.
  struct UnderWay {
    std::shared_ptr<CheckRequest> request;  // keeps the store and the budget: declared first
    CheckBudget::Leave leave;
  };
  // Check from the next block on until one is under way; answer after the last.
  void CheckNext();
  void OnChecked(UnderWay& under_way, std::vector<FormsCheck::Checked> forms);
  void Finish(absl::StatusCode status);
  void Reply(const absl::Status& result);

  const Query query_;
  std::vector<absl::StatusCode> statuses_;  // of the leading blocks that are finished
};

}  // namespace tokura::node
