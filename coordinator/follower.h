#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/net/channel.h"
#include "common/net/reconnector.h"
#include "common/net/transport.h"
#include "common/random.h"
#include "coordinator/cluster_view.h"

namespace tokura::coordinator {

// The view of a coordinator that follows the holder at an address: WATCHes it, keeps what it said
// last while it is gone, and never goes back to a lower epoch. Naming the epoch that it knows is
// what lets a holder that starts again go on above it.
class Follower final : public ClusterView {
 public:
  struct Options {
    net::Address holder;
    std::string name;      // of this coordinator, for HELLO
    std::string instance;  // 16 random bytes of this process
    net::ChannelTimeouts timeouts;
    // A WATCH is answered at half of this at the latest.
    Duration watch_deadline = std::chrono::seconds(10);
    // Pause before the next WATCH after one that failed or brought nothing before its time.
    Duration retry = std::chrono::milliseconds(200);
  };
  // `transport` and `random` outlive Stop's `done`.
  Follower(net::Transport& transport, RandomSource& random, Options options);
  ~Follower() override;

  void Start(Listener on_change) override;
  void Stop(Task done) override;
  const proto::ClusterState& state() const override;
  bool holder() const override { return false; }
  absl::StatusOr<uint64_t> Register(const proto::RegisterRequest& request) override;
  absl::StatusOr<uint64_t> Report(const std::string& node,
                                  const proto::ReportRequest& request) override;
  void ConnectionLost(const std::string& node, uint64_t incarnation) override;
  void NameEpoch(uint64_t epoch) override;

  // Whether the holder can be asked now. What is known stays in force either way.
  bool connected() const;

 private:
  class Watch;
  enum class Life : uint8_t { kStarting, kAdmitted };
  // What a process of `node` gets that has this incarnation, by the members known.
  absl::StatusOr<uint64_t> Known(const std::string& node, uint64_t incarnation, Life life) const;

  std::shared_ptr<Watch> watch_;  // owners: this and its own requests and timers under way
};

}  // namespace tokura::coordinator
