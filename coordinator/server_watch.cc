#include "coordinator/server_watch.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tokura::coordinator {
namespace {

// Of a watch without a deadline.
constexpr Duration kWaitMax = std::chrono::seconds(30);
// Watches that are looked at in one go.
constexpr size_t kSlice = 32;

Duration WaitOf(const net::FrameHeader& frame) {
  return frame.deadline_us == 0 ? kWaitMax
                                : Duration(std::chrono::microseconds(frame.deadline_us)) / 2;
}

}  // namespace

WatchList::WatchList(Executor& executor, AnswerFunction answer)
    : executor_(executor), answer_(std::move(answer)) {}

WatchList::~WatchList() = default;

bool WatchList::IsNews(const StateVersion& current, const StateVersion& known) {
  return current.epoch > known.epoch ||
         (current.epoch == known.epoch && current.policy_version != known.policy_version);
}

absl::Status WatchList::Add(const Watch& watch) {
  std::set<uint64_t>& waiting = by_connection_[watch.connection];
  if (waiting.size() >= kPerConnectionMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a connection may have ", kPerConnectionMax, " watches waiting"));
  }
  const uint64_t id = ++last_id_;
  waiting.insert(id);
  Entry& entry = watches_[id];
  entry.watch = watch;
  entry.timer = executor_.RunAt(watch.arrived + WaitOf(watch.frame), [weak = weak_from_this(), id] {
    if (auto self = weak.lock()) {
      self->Finish(id, absl::OkStatus());
    }
  });
  return absl::OkStatus();
}

void WatchList::Changed(const StateVersion& current) {
  current_ = current;
  next_in_pass_ = 0;
  PostSlice();
}

void WatchList::PostSlice() {
  if (slice_posted_ || watches_.empty()) {
    return;
  }
  slice_posted_ = true;
  executor_.Post([weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->slice_posted_ = false;
      self->AnswerSlice();
    }
  });
}

void WatchList::AnswerSlice() {
  std::vector<uint64_t> due;
  auto it = watches_.lower_bound(next_in_pass_);
  for (size_t i = 0; i < kSlice && it != watches_.end(); ++i, ++it) {
    if (IsNews(current_, it->second.watch.known)) {
      due.push_back(it->first);
    }
  }
  const bool more = it != watches_.end();
  next_in_pass_ = more ? it->first : last_id_ + 1;
  for (const uint64_t id : due) {
    Finish(id, absl::OkStatus());
  }
  if (more) {
    PostSlice();
  }
}

void WatchList::AnswerAll() {
  while (!watches_.empty()) {
    Finish(watches_.begin()->first, absl::OkStatus());
  }
}

std::set<uint64_t> WatchList::Of(uint64_t connection) const {
  auto it = by_connection_.find(connection);
  return it == by_connection_.end() ? std::set<uint64_t>() : it->second;
}

void WatchList::Cancel(uint64_t connection, uint64_t request_id) {
  for (const uint64_t id : Of(connection)) {
    if (watches_.at(id).watch.frame.request_id == request_id) {
      Finish(id, absl::CancelledError("the client cancelled the request"));
    }
  }
}

void WatchList::ConnectionClosed(uint64_t connection) {
  for (const uint64_t id : Of(connection)) {
    Finish(id, absl::UnavailableError("the connection is closed"));
  }
}

void WatchList::Finish(uint64_t id, const absl::Status& why) {
  auto it = watches_.find(id);
  if (it == watches_.end()) {
    return;
  }
  const Watch watch = it->second.watch;
  executor_.CancelTimer(it->second.timer);
  watches_.erase(it);
  auto waiting = by_connection_.find(watch.connection);
  waiting->second.erase(id);
  if (waiting->second.empty()) {
    by_connection_.erase(waiting);
  }
  answer_(watch, why);
}

}  // namespace tokura::coordinator
