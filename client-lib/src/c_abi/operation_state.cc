#include "client-lib/src/c_abi/operation_state.h"

#include <algorithm>
#include <chrono>

namespace tokura::c_abi {
namespace {

// Longer waits have no end: the condition variable's clock must not overflow.
constexpr Duration kLongest = std::chrono::hours(24 * 365);

}  // namespace

void OperationState::OnStarted(ClientCore& core, ClientCore::OperationId id) {
  id_ = id;
  if (cancelled_) {
    core.Cancel(id);
  }
}

void OperationState::CancelOn(ClientCore& core) {
  cancelled_ = true;
  if (id_ != 0) {
    core.Cancel(id_);
  }
}

void OperationState::OnLayer(size_t group, uint32_t layer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  layers_.emplace(group, layer);
  changed_.notify_all();
}

void OperationState::OnReleased() {
  const std::lock_guard<std::mutex> lock(mutex_);
  released_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void OperationState::OnEnded(Outcome outcome) {
  void (*notify)(void*) = nullptr;
  void* context = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    outcome_ = std::move(outcome);
    ended_ = SystemClock().Now();
    released_.store(true, std::memory_order_release);
    done_.store(true, std::memory_order_release);
    notify = notify_;
    context = notify_context_;
    changed_.notify_all();
  }
  if (notify != nullptr) {
    notify(context);
  }
}

template <typename Condition>
bool OperationState::WaitUntil(Duration timeout, Condition condition) {
  if (done()) {
    return true;  // and in a forked child nobody unlocks what was locked when it was forked
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (timeout > kLongest) {
    changed_.wait(lock, condition);
    return true;
  }
  return changed_.wait_for(lock, std::max(timeout, Duration::zero()), condition);
}

bool OperationState::WaitDone(Duration timeout) {
  return WaitUntil(timeout, [this] { return done(); });
}

bool OperationState::WaitReleased(Duration timeout) {
  return WaitUntil(timeout, [this] { return released(); });
}

bool OperationState::WaitLayer(size_t group, uint32_t layer, Duration timeout) {
  return WaitUntil(timeout, [&] { return done() || layers_.count({group, layer}) > 0; });
}

absl::Status OperationState::Notify(void (*done)(void* context), void* context) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (notify_set_) {
      return absl::FailedPreconditionError("the operation has a callback already");
    }
    notify_set_ = true;
    if (!this->done()) {
      notify_ = done;
      notify_context_ = context;
      return absl::OkStatus();
    }
  }
  done(context);
  return absl::OkStatus();
}

absl::Status OperationState::status() const {
  if (stamp_.forked()) {
    return stamp_.Check();
  }
  if (!done()) {
    return absl::FailedPreconditionError("the operation has not ended");
  }
  if (const auto* ready = std::get_if<absl::Status>(&outcome_)) {
    return *ready;
  }
  if (const auto* match = std::get_if<absl::StatusOr<Match>>(&outcome_)) {
    return match->status();
  }
  return absl::OkStatus();
}

Duration OperationState::elapsed() const {
  const bool ended = done_.load(std::memory_order_acquire);
  return (ended ? ended_ : SystemClock().Now()) - started_;
}

void OperationState::FillBlocks(const std::vector<absl::Status>& blocks) {
  for (const absl::Status& status : blocks) {
    arrays_.codes.push_back(static_cast<uint8_t>(status.code()));
    arrays_.texts.emplace_back(status.message());
    arrays_.result.blocks_ok += status.ok() ? 1 : 0;
  }
  for (const std::string& text : arrays_.texts) {
    arrays_.messages.push_back(text.c_str());
  }
  const auto bad = std::find_if(blocks.begin(), blocks.end(),
                                [](const absl::Status& status) { return !status.ok(); });
  arrays_.result.prefix_ok = static_cast<size_t>(bad - blocks.begin());
  arrays_.result.blocks = blocks.size();
  arrays_.result.codes = arrays_.codes.data();
  arrays_.result.messages = arrays_.messages.data();
}

void OperationState::FillGet(const GetResult& got) {
  FillBlocks(got.blocks);
  for (const std::string& codec : got.codecs) {
    arrays_.codecs.push_back(codec.c_str());
  }
  arrays_.proxy_error.assign(got.proxy_error.begin(), got.proxy_error.end());
  arrays_.result.codecs = arrays_.codecs.data();
  arrays_.result.declared_error = got.declared_error.data();
  arrays_.result.proxy_error = arrays_.proxy_error.data();
  arrays_.result.bytes_moved = got.bytes_moved;
  arrays_.result.bytes_logical = got.bytes_logical;
  arrays_.result.wire_ns = got.timings.wire.count();
  arrays_.result.codec_ns = got.timings.codec.count();
}

tokura_blocks_result OperationState::BlocksResult() {
  std::call_once(arrays_once_, [this] {
    if (const auto* got = std::get_if<GetResult>(&outcome_)) {
      FillGet(*got);
    } else if (const auto* put = std::get_if<PutResult>(&outcome_)) {
      FillBlocks(put->blocks);
      arrays_.result.bytes_moved = put->bytes_moved;
      arrays_.result.bytes_logical = put->bytes_logical;
      arrays_.result.wire_ns = put->timings.wire.count();
      arrays_.result.codec_ns = put->timings.codec.count();
    } else if (const auto* removed = std::get_if<RemoveResult>(&outcome_)) {
      FillBlocks(removed->blocks);
    }
  });
  return arrays_.result;
}

}  // namespace tokura::c_abi
