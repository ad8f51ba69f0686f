#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client-lib/src/c_abi/route.h"
#include "common/time.h"
#include "tokura.h"
#include "tokura/client.h"

namespace tokura::c_abi {

// One operation as its caller sees it: whether it ended, what came of it, and who is to be told.
// Thread-safe.
class OperationState {
 public:
  using Outcome = std::variant<absl::Status, absl::StatusOr<Match>, GetResult, PutResult,
                               RemoveResult, std::vector<absl::StatusOr<NodeStat>>>;
  enum class Kind : uint8_t { kReady, kMatch, kGet, kPut, kRemove, kStat };
  explicit OperationState(Kind kind) : kind_(kind), started_(SystemClock().Now()) {}

  Kind kind() const { return kind_; }

  // Called by the client.
  void OnStarted(ClientCore& core, ClientCore::OperationId id);  // progress thread
  void OnLayer(size_t group, uint32_t layer);
  void OnReleased();
  void OnEnded(Outcome outcome);
  // End it on the progress thread, also when it has not been started there yet.
  void CancelOn(ClientCore& core);

  // Called by the owner. A forked child finds everything ended, with FAILED_PRECONDITION.
  bool done() const { return done_.load(std::memory_order_acquire) || stamp_.forked(); }
  bool released() const { return released_.load(std::memory_order_acquire) || done(); }
  bool forked() const { return stamp_.forked(); }
  // Wait at most `timeout`, for ever where it is Duration::max(), until what the name says; whether
  // that is so.
  bool WaitDone(Duration timeout);
  bool WaitReleased(Duration timeout);
  bool WaitLayer(size_t group, uint32_t layer, Duration timeout);
  // Call once it ended; now when it has. FAILED_PRECONDITION: there is somebody to call already.
  absl::Status Notify(void (*done)(void* context), void* context);

  // OK; how a match or readiness ended; FAILED_PRECONDITION: not yet.
  absl::Status status() const;
  // Valid once done() and not forked().
  const Outcome& outcome() const { return outcome_; }
  Duration elapsed() const;
  // The C view of the outcome of a get, put or remove: arrays that live as long as this.
  tokura_blocks_result BlocksResult();

 private:
  struct Arrays {
    std::vector<uint8_t> codes;
    std::vector<std::string> texts;
    std::vector<const char*> messages;
    std::vector<const char*> codecs;
    std::vector<uint8_t> proxy_error;
    tokura_blocks_result result{};
  };
  // `condition` holds once the operation ended; called with the lock.
  template <typename Condition>
  bool WaitUntil(Duration timeout, Condition condition);
  void FillBlocks(const std::vector<absl::Status>& blocks);
  void FillGet(const GetResult& got);

  const Kind kind_;
  const ForkStamp stamp_;
  const TimePoint started_;
  std::atomic<bool> done_ = false;
  std::atomic<bool> released_ = false;
  Outcome outcome_;  // written before done_
  TimePoint ended_;  // written before done_

  // Progress thread only.
  ClientCore::OperationId id_ = 0;
  bool cancelled_ = false;

  std::mutex mutex_;  // a leaf
  std::condition_variable changed_;
  std::set<std::pair<size_t, uint32_t>> layers_;  // complete ones
  void (*notify_)(void* context) = nullptr;
  void* notify_context_ = nullptr;
  bool notify_set_ = false;

  std::once_flag arrays_once_;
  Arrays arrays_;
};

}  // namespace tokura::c_abi
