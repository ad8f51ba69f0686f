#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "client-lib/src/operation.h"

namespace tokura {

// An operation that asks one or more nodes one question each and is over when all have answered, or
// when it has heard enough. Owned by the core's executor.
class FanOut : public Operation {
 public:
  using Operation::Operation;
  void Cancel() override;
  void OnLinkDraining(NodeLink& link, const absl::Status& why) override;
  void OnLinkLost(NodeLink& link, const absl::Status& why) override;

 protected:
  struct Question {
    NodeLink* link;
    std::unique_ptr<google::protobuf::MessageLite> body;
  };
  // Send the questions and start the clock. Without questions the operation finishes soon.
  void Ask(net::Op op, std::vector<Question> questions, Duration total);

  // Called once for every question: the node's answer, or why there is none.
  virtual void OnAnswer(size_t question, const absl::Status& status,
                        std::span<const std::byte> body) = 0;
  // How long after the end answers are still taken, to undo at the node what they tell of: such
  // requests are not cancelled. Zero: none are.
  virtual Duration LateAnswersFor() const { return Duration::zero(); }
  // An answer that came after the end.
  virtual void OnLateAnswer(size_t /*question*/, const absl::Status& /*status*/,
                            std::span<const std::byte> /*body*/) {}
  // Whether the answers so far suffice.
  virtual bool Satisfied() const { return false; }
  // Retire and call back. `cause`: OK, or why the operation was cut short.
  virtual void Finish(const absl::Status& cause) = 0;

  TimePoint StallsAt() const override;
  void OnExpired(OperationDeadline::Verdict verdict) override;

 private:
  struct Query {
    enum class State { kQueued, kSent, kAnswered } state = State::kQueued;
    NodeLink* maybe_link = nullptr;  // null once answered or lost
    std::unique_ptr<google::protobuf::MessageLite> body;
    uint64_t request_id = 0;
    TimePoint sent;
  };
  class ReplyCall;
  void Send(size_t question);
  void OnReply(size_t question, const absl::Status& status, std::span<const std::byte> body);
  enum class Which { kQueued, kAll };
  // Answer the questions that `link` cannot answer any more.
  void AnswerFor(const NodeLink& link, Which which, const absl::Status& why);
  void Answer(size_t question, const absl::Status& status, std::span<const std::byte> body);
  // Answer everything that is open with `cause`, then finish.
  void End(const absl::Status& cause);
  void FinishIfOver();

  net::Op op_ = net::Op::kLookup;
  std::vector<Query> queries_;
  size_t open_ = 0;
  bool asked_ = false;
  bool ended_ = false;
};

// Messages that carry keys.
std::string ConcatKeys(std::span<const BlockKey> keys);
// Keys that fit one message beside everything else in it.
inline constexpr size_t kKeysPerMessageMax = net::kMessageBytesMax / 2 / BlockKey::kBytes;
// How many keys one message to this peer may carry.
size_t KeysMax(const NodeLink& link);

}  // namespace tokura
