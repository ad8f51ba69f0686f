#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/child_process.h"
#include "common/ids.h"
#include "common/time.h"

namespace tokura::cli {

// Counts replies that are integers in RESP, Redis's protocol (":1\r\n"), as they come in pieces.
class RespIntegers {
 public:
  // INTERNAL: there is something else; the message has its first line as far as it is known.
  absl::Status Feed(std::string_view bytes);
  uint64_t replies() const { return replies_; }
  uint64_t sum() const { return sum_; }

 private:
  std::string line_;  // the beginning of one that is not whole
  uint64_t replies_ = 0;
  uint64_t sum_ = 0;
};

// A Redis server of this program's own, on loopback and in memory only, as the peer that lookups
// are compared with. Killed with this object. Thread-compatible.
class RedisPeer {
 public:
  // NOT_FOUND: redis-server is not installed; UNAVAILABLE: it does not start.
  static absl::StatusOr<std::unique_ptr<RedisPeer>> Start();
  ~RedisPeer();
  RedisPeer(const RedisPeer&) = delete;
  RedisPeer& operator=(const RedisPeer&) = delete;

  // Let it hold the keys of made-up blocks [0, blocks) at least.
  absl::Status Grow(uint64_t blocks);
  // Ask for each key by an EXISTS of its own, all in one write: from that write to the last answer,
  // read. The thread waits as a transport does, awake for some microseconds, then asleep.
  // DATA_LOSS: one does not exist.
  absl::StatusOr<Duration> TimeExists(std::span<const BlockKey> keys);
  pid_t pid() const { return process_->pid(); }

 private:
  RedisPeer() = default;
  absl::Status Launch(const std::string& program);
  absl::Status ConnectTo(uint16_t port);
  absl::Status Write(std::string_view bytes) const;
  // Wait for `count` integers; their sum.
  absl::StatusOr<uint64_t> ReadIntegers(uint64_t count) const;

  std::unique_ptr<ChildProcess> process_;
  int socket_ = -1;
  uint64_t blocks_ = 0;
};

}  // namespace tokura::cli
