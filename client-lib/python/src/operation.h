#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <nanobind/nanobind.h>
#include <unistd.h>

#include "names.h"
#include "tokura.h"

namespace tokura::python {

// Numbers of operations that ended, for a thread that tells Python: the client's own threads never
// wait for the interpreter lock. Thread-safe.
class EndingQueue {
 public:
  void Push(uint64_t number);
  // The next number; nothing once closed and empty.
  std::optional<uint64_t> Pop();
  void Close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint64_t> numbers_;
  bool closed_ = false;
};

// Python's end of a queue, which the operations under way share. (A shared pointer to the Python
// object itself would take the interpreter lock where the last one goes.)
struct Endings {
  Endings() = default;
  Endings(const Endings&) = delete;
  Endings& operator=(const Endings&) = delete;
  ~Endings();
  std::shared_ptr<EndingQueue> queue = std::make_shared<EndingQueue>();
  const pid_t process = getpid();
};

// The outcome of a get, put or remove. Immutable; the operation's arrays.
class BlocksResult {
 public:
  BlocksResult(std::shared_ptr<tokura_operation> operation, tokura_blocks_result result)
      : operation_(std::move(operation)), result_(result) {}
  const tokura_blocks_result& get() const { return result_; }
  double seconds() const {
    return static_cast<double>(tokura_operation_elapsed_ns(operation_.get())) * 1e-9;
  }

 private:
  std::shared_ptr<tokura_operation> operation_;  // owners: this and the operation
  tokura_blocks_result result_;
};

// An operation under way. Keeps what it reads or writes alive until it does so no more; its end
// waits for that, without the interpreter lock.
class Operation {
 public:
  Operation(tokura_operation* handle, nanobind::object kept);
  Operation(Operation&&) = default;
  ~Operation();

  bool done() const { return tokura_operation_done(handle_.get()) != 0; }
  bool released() const { return tokura_operation_released(handle_.get()) != 0; }
  // Wait at most `seconds`, for ever where negative; whether what the name says is so. Without the
  // interpreter lock; throws what a signal's handler raises.
  bool Wait(double seconds) const;
  bool WaitReleased(double seconds) const;
  bool WaitLayer(uint32_t group, uint32_t layer, double seconds) const;
  // As Wait for ever, deaf to signals: until nobody touches the view.
  void WaitQuiet() const;
  void Cancel() const { tokura_operation_cancel(handle_.get()); }
  // Push `number` once it ended.
  void Notify(const Endings& endings, uint64_t number) const;
  // Throw what it ended with, unless that is OK.
  void Check() const;
  Match TakeMatch() const;
  BlocksResult Result() const;
  nanobind::list Nodes() const;
  double seconds() const {
    return static_cast<double>(tokura_operation_elapsed_ns(handle_.get())) * 1e-9;
  }

 private:
  // Owners: this and the results that point into it. The last one frees it.
  std::shared_ptr<tokura_operation> handle_;
  nanobind::object kept_;
};

void BindOperation(nanobind::module_& module);

}  // namespace tokura::python
