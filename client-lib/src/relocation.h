#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "client-lib/src/locate.h"
#include "client-lib/src/operation.h"

namespace tokura {

// Asks a coordinator, once, where the blocks of a match lie now that the nodes named before have
// failed. Owned by the core's executor; belongs to one get, which cancels it or gives it up
// at its end.
class Relocation {
 public:
  struct Question {
    NamespaceRef ns;
    std::vector<BlockKey> keys;  // of the match
    Acceptance acceptance;
    TimePoint deadline;
  };
  enum class State { kIdle, kAsking, kDone };

  State state() const { return state_; }
  // A node that failed: others are preferred.
  void Avoid(const std::string& node) { avoid_.insert(node); }
  // Idle: ask, and call `done` once there is an answer, or none will come. Never inline.
  void Ask(const CoreContext& core, Question question, Task done);
  // No call of `done` any more.
  void Cancel();
  // The same, because the deadline passed.
  void GiveUp();
  // Where the blocks are, by the answer; empty before and without one.
  const Match& found() const { return found_; }

 private:
  State state_ = State::kIdle;
  std::set<std::string> avoid_;
  std::shared_ptr<HedgedRequest> asking_;
  Match found_;
};

}  // namespace tokura
