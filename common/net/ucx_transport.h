#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/transport.h"

namespace tokura::net {

// The process's UCX context: settings, version check, memory registration. One per process;
// outlives its transports. Thread-safe.
class UcxContext {
 public:
  struct Options {
    std::string name = "tokura";
    // UCX's memory hooks grow in an engine's process: clients and nodes both leave them off.
  };
  // FAILED_PRECONDITION: the UCX that was loaded is not the one compiled against (both versions in
  // the message); UNAVAILABLE: ucp_init failed (the message has UCX's reason and the settings in
  // force).
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create(Options options);
  virtual ~UcxContext() = default;
  virtual std::string settings() const = 0;  // the effective settings, for the log
};

// One UCX worker and its event loop. The thread that calls Run owns it.
class UcxTransport : public Transport {
 public:
  struct Options {
    std::string name = "io-0";
    enum class Wake { kSleep, kSpin } wake = Wake::kSleep;
    Duration spin = std::chrono::microseconds(50);   // before sleeping
    uint32_t posted_max = 65536;                     // TryPost refuses beyond
    uint64_t unsent_bytes_max = uint64_t{64} << 20;  // per connection, eager bytes that wait
    // Payloads of one connection that its peer has begun and this side has neither received nor
    // refused to the end; a peer that begins another loses the connection. Twice what a node lets a
    // connection's puts have under way: those of a put that it refuses come all the same, and are
    // here until the peer has seen that they are refused.
    size_t offers_max = 131072;
    Duration close_timeout = std::chrono::milliseconds(500);
  };
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(UcxContext& context, Options options);

  // Progress until Stop. Owner thread.
  virtual void Run() = 0;
  // Drive from the caller's own loop instead of Run: progress, run due timers and tasks; wait at
  // most `wait`. Returns whether anything happened. Owner thread (the first caller becomes it).
  virtual bool Poll(Duration wait) = 0;
  // Make Run return once. Any thread.
  virtual void Stop() = 0;
};

}  // namespace tokura::net
