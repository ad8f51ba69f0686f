#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client-lib/src/client_metrics.h"
#include "client-lib/src/node_link.h"

namespace tokura {

class Coordinators;

// One question that any coordinator can answer. The preferred one is asked first; when a quarter of
// the time has passed without an answer, the next one is asked too, and so on, and one that cannot
// answer is replaced at once. The first answer wins, and who gave it is preferred from then on.
// Owned by the core's executor. Held by shared_ptr; owners: the asking operation and the calls and
// timers under way. Made by Coordinators::Ask.
class HedgedRequest final : public std::enable_shared_from_this<HedgedRequest> {
 public:
  struct Question {
    net::Op op;
    CoordinatorOp label;
    // The body for one coordinator, whose limits it has to keep.
    std::function<std::unique_ptr<google::protobuf::MessageLite>(const NodeLink&)> body;
    TimePoint deadline;  // the request ends after progress_timeout at the latest
  };
  // OK with the reply's body; INVALID_ARGUMENT, a bug of the asker; DEADLINE_EXCEEDED; UNAVAILABLE:
  // no coordinator is reachable; else what the last one said.
  using Answer = absl::AnyInvocable<void(absl::Status, std::span<const std::byte>)>;

  HedgedRequest(Coordinators& coordinators, Question question, Answer answer);
  void Start();
  // Forget it: Answer will not be called.
  void Cancel();
  // The same, because its time is up: a coordinator that was silent is not asked first next time.
  void GiveUp();
  // `link` takes nothing new (its queue is gone), or has lost everything.
  enum class Which { kQueued, kAll };
  void OnLinkGone(const NodeLink& link, Which which, const absl::Status& why);

 private:
  class ReplyCall;
  struct Attempt {
    NodeLink* link = nullptr;  // never null once asked
    enum class State { kQueued, kSent, kOver } state = State::kQueued;
    uint64_t request_id = 0;
    TimePoint sent;
  };

  // Ask the next coordinator that has not been asked. False: there is none.
  bool AskNext();
  void Send(size_t attempt);
  void OnReply(size_t attempt, const absl::Status& status, std::span<const std::byte> body);
  // An attempt came to nothing: ask another one, or give up.
  void Fail(size_t attempt, const absl::Status& why);
  void Arm();
  void OnTimer();
  void Expire();
  // What is held against those that have not answered: who was asked first is avoided, and `blamed`
  // lose their connection.
  struct Verdict {
    const NodeLink* maybe_first_silent = nullptr;
    std::vector<NodeLink*> blamed;
  };
  Verdict Judge() const;
  void Punish(const Verdict& verdict);
  void Finish(const absl::Status& status, std::span<const std::byte> body);
  // End what is under way; `why` is counted.
  void Abandon(const absl::Status& why);

  Coordinators& coordinators_;
  const Question question_;
  Answer answer_;
  std::vector<Attempt> attempts_;
  TimePoint end_;
  Duration patience_ = Duration::zero();  // before another one is asked
  TimePoint timer_due_;
  TimerId timer_ = 0;
  bool over_ = false;
};

}  // namespace tokura
