#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "common/executor.h"
#include "common/net/frame.h"
#include "common/time.h"

namespace tokura::coordinator {

// What a cluster state is known by.
struct StateVersion {
  uint64_t epoch = 0;  // 0: none yet
  uint64_t policy_version = 0;
};

// A long poll: a request that is answered when there is news.
struct Watch {
  uint64_t connection = 0;
  net::FrameHeader frame;
  TimePoint arrived;
  StateVersion known;
};

// The long polls that wait for the members or the rules to change. Owned by the transport's thread.
// Shared by the server, by timers and by slices posted to the executor.
class WatchList : public std::enable_shared_from_this<WatchList> {
 public:
  // Waiting at the same time.
  static constexpr size_t kPerConnectionMax = 4;

  // Told that a watch is over and forgotten here. OK: answer it with what is current. UNAVAILABLE:
  // its connection has closed. CANCELLED: its client gave it up.
  using AnswerFunction = std::function<void(const Watch& watch, const absl::Status& why)>;
  WatchList(Executor& executor, AnswerFunction answer);
  ~WatchList();

  // Whether `current` is news to somebody who knows `known`. Nobody goes back to a lower epoch, so
  // that is none.
  static bool IsNews(const StateVersion& current, const StateVersion& known);

  // Let `watch` wait until `Changed` brings news to it, at most half of its deadline.
  // RESOURCE_EXHAUSTED: its connection has kPerConnectionMax waiting.
  absl::Status Add(const Watch& watch);
  // The state is `current` now: answer those to whom that is news, in slices posted to the
  // executor, so that no lookup waits for all of them.
  void Changed(const StateVersion& current);
  // Answer them all, now.
  void AnswerAll();
  // End the watch that this request of this connection is, if it is one that waits.
  void Cancel(uint64_t connection, uint64_t request_id);
  void ConnectionClosed(uint64_t connection);
  size_t size() const { return watches_.size(); }

 private:
  struct Entry {
    Watch watch;
    TimerId timer = 0;
  };

  void PostSlice();
  void AnswerSlice();
  // The watches of a connection, oldest first.
  std::set<uint64_t> Of(uint64_t connection) const;
  // Take it out and let it be answered.
  void Finish(uint64_t id, const absl::Status& why);

  Executor& executor_;
  const AnswerFunction answer_;
  std::map<uint64_t, Entry> watches_;  // by number, in the order of arrival
  std::map<uint64_t, std::set<uint64_t>> by_connection_;
  uint64_t last_id_ = 0;
  StateVersion current_;
  uint64_t next_in_pass_ = 0;  // watches below it have been looked at since the last change
  bool slice_posted_ = false;
};

}  // namespace tokura::coordinator
