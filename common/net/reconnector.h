#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/net/breaker.h"
#include "common/net/channel.h"
#include "common/random.h"

namespace tokura::net {

// Keeps one session to an address alive: connects in the background and again after every loss,
// with backoff and jitter, so that nobody waits for a connection. Made for the links between a
// cluster's own processes, which trust each other's names less than their addresses: whoever
// answers at the address is offered to the owner. Owned by the transport's executor. Held by
// shared_ptr; owners: whoever made it, and its own posted tasks and requests under way.
class Reconnector final : public ClientChannelOwner,
                          public std::enable_shared_from_this<Reconnector> {
 public:
  // Every call comes from the executor and never inside a call into the reconnector, but for
  // OnLinkLost, which Drop and Stop make before they return.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Somebody introduced itself. An error closes the connection; the next try follows as after any
    // failure.
    virtual absl::Status AdmitPeer(Reconnector& link, const proto::Welcome& welcome) = 0;
    // Requests may be sent from now on.
    virtual void OnLinkUp(Reconnector& link) = 0;
    // The peer drains: nothing new can be sent, requests under way may still be answered. At most
    // once between OnLinkUp and OnLinkLost.
    virtual void OnLinkDraining(Reconnector& link) = 0;
    // The session is over, and nothing of it will be heard any more once the requests that are
    // still under way have been answered UNAVAILABLE. Once for each OnLinkUp, before the next one.
    virtual void OnLinkLost(Reconnector& link, const absl::Status& why) = 0;
    // After Stop: the connection is gone and every request has been answered. The last call.
    virtual void OnLinkStopped(Reconnector& link) = 0;
  };
  struct Options {
    Address address;
    ClientChannel::Options channel;  // HELLO: role, name and instance of this process (MakeHello)
    // Tries are cheap between a cluster's few processes: with these all of them are back before a
    // holder of the membership that starts again has waited for them (`forming`, 1.5 s).
    Breaker::Options breaker{.backoff_min = std::chrono::milliseconds(100),
                             .backoff_max = std::chrono::milliseconds(500)};
    std::string component;  // whose log lines these are: "node", "coordinator"
  };

  // `transport`, `random` and `owner` outlive OnLinkStopped. `random` spreads the retries: after a
  // failure a try waits for the breaker's backoff and up to half of it more.
  Reconnector(Transport& transport, RandomSource& random, Options options, Owner& owner);
  ~Reconnector() override;

  // Begin to connect. Once.
  void Start();
  // Close for good: what is under way is answered UNAVAILABLE, then comes OnLinkStopped. Further
  // calls do nothing.
  void Stop();
  // Give up on this session because of `why` (the peer connects but does not do its work); the next
  // try follows after a backoff. Without a connection it does nothing.
  void Drop(const absl::Status& why);

  // Whether a request may be sent now: between OnLinkUp and OnLinkDraining or OnLinkLost.
  bool usable() const;
  const Address& address() const { return options_.address; }
  // Name and incarnation of who answered last; empty and 0 before.
  const std::string& peer() const { return peer_; }
  uint64_t peer_incarnation() const { return peer_incarnation_; }
  // Why the link is not usable; OK when it is.
  absl::Status trouble() const;

  // As ClientChannel::Send: one OnReply, never inline, by `deadline` at the latest. On a link that
  // is not usable: 0, and `call` is answered UNAVAILABLE. Any answer with OK proves the peer well
  // and resets the backoff.
  uint64_t Send(Op op, const google::protobuf::MessageLite& body, TimePoint deadline,
                std::shared_ptr<Call> call);

  absl::Status OnWelcome(ClientChannel& channel, const proto::Welcome& welcome) override;
  void OnGoodbye(ClientChannel& channel) override;
  void OnDown(ClientChannel& channel, absl::Status why) override;

 private:
  class CountedCall;
  enum class Phase : uint8_t { kDown, kUp, kDraining };

  enum class Ended : uint8_t { kAnswered, kOtherwise };

  void Connect();
  void ScheduleRetry();
  // Remember and log why the link is not usable; the breaker opens.
  void Trouble(const absl::Status& why);
  void Fail();
  void Lose(const absl::Status& why);
  void RequestEnded(Ended how);
  void CloseIfDrained();

  Transport& transport_;
  Executor& executor_;
  RandomSource& random_;
  const Options options_;
  Owner& owner_;
  Breaker breaker_;
  std::unique_ptr<ClientChannel> channel_;
  std::string peer_;
  uint64_t peer_incarnation_ = 0;
  absl::Status last_error_;
  std::string logged_trouble_;  // so that a dead peer is one line, not one per try
  Phase phase_ = Phase::kDown;
  bool goodbye_ = false;  // the peer drains
  bool stopping_ = false;
  uint64_t generation_ = 0;  // of the channel: what an older one still says does not count
  uint64_t outstanding_ = 0;
  TimerId retry_timer_ = 0;
};

}  // namespace tokura::net
