#pragma once

// A client at the level of the channel: a real session whose HELLO and requests a test makes up.

#include <functional>
#include <memory>
#include <string>

#include "common/net/channel.h"
#include "common/net/ucx_transport.h"

namespace tokura::integration {

// A transport that moves only while a test polls it: a client that stands still otherwise.
class PolledTransport {
 public:
  PolledTransport();

  net::UcxTransport& operator*() { return *transport_; }
  net::UcxTransport* operator->() { return transport_.get(); }
  // Poll until `condition` holds; false when it does not within 20 seconds, scaled.
  bool PollUntil(const std::function<bool()>& condition);

 private:
  std::unique_ptr<net::UcxContext> context_;
  std::unique_ptr<net::UcxTransport> transport_;
};

// What this build says of itself; tests change what they lie about.
net::ClientChannel::Options SoundHello(PolledTransport& transport);

// Connected and welcomed or turned away when constructed, or the test has failed.
class RawChannel final : public net::ClientChannelOwner {
 public:
  RawChannel(PolledTransport& transport, const std::string& target,
             net::ClientChannel::Options options);
  ~RawChannel() override;

  net::ClientChannel& channel() { return *channel_; }
  bool down() const { return down_; }
  // Why the channel ended; OK while it has not.
  const absl::Status& why() const { return why_; }

  absl::Status OnWelcome(net::ClientChannel&, const proto::Welcome&) override;
  void OnGoodbye(net::ClientChannel&) override {}
  void OnDown(net::ClientChannel&, absl::Status why) override;

 private:
  PolledTransport& transport_;
  bool welcomed_ = false;
  bool down_ = false;
  absl::Status why_;
  std::unique_ptr<net::ClientChannel> channel_;
};

}  // namespace tokura::integration
