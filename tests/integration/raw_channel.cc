#include "tests/integration/raw_channel.h"

#include <array>
#include <utility>

#include <gtest/gtest.h>

#include "common/check.h"
#include "kernels/part.h"
#include "tests/integration/process.h"

namespace tokura::integration {

PolledTransport::PolledTransport() {
  auto context = net::UcxContext::Create({});
  TOKURA_CHECK(context.ok());
  context_ = std::move(*context);
  auto transport = net::UcxTransport::Create(*context_, {});
  TOKURA_CHECK(transport.ok());
  transport_ = std::move(*transport);
}

bool PolledTransport::PollUntil(const std::function<bool()>& condition) {
  const TimePoint end = SystemClock().Now() + Scaled(std::chrono::seconds(20));
  while (!condition()) {
    if (SystemClock().Now() > end) {
      return false;
    }
    transport_->Poll(std::chrono::milliseconds(5));
  }
  return true;
}

net::ClientChannel::Options SoundHello(PolledTransport& transport) {
  const std::array<std::byte, 16> instance = {std::byte{1}};
  net::ClientChannel::Options options;
  options.hello = net::MakeHello(*transport, "client", "raw", instance);
  options.hello.set_format_version(kernels::FormatVersionString());
  // Silence is what some of these tests are about: it must not end a session.
  options.timeouts.hello = Scaled(std::chrono::seconds(20));
  options.timeouts.heartbeat = std::chrono::seconds(60);
  options.timeouts.dead_after = std::chrono::seconds(120);
  return options;
}

RawChannel::RawChannel(PolledTransport& transport, const std::string& target,
                       net::ClientChannel::Options options)
    : transport_(transport),
      channel_(net::ClientChannel::Start(*transport, *net::Address::Parse(target),
                                         std::move(options), *this)) {
  EXPECT_TRUE(transport_.PollUntil([this] { return welcomed_ || down_; }));
}

RawChannel::~RawChannel() {
  channel_->Close(net::CloseMode::kAbort);
  EXPECT_TRUE(transport_.PollUntil([this] { return down_; }));
}

absl::Status RawChannel::OnWelcome(net::ClientChannel&, const proto::Welcome&) {
  welcomed_ = true;
  return absl::OkStatus();
}

void RawChannel::OnDown(net::ClientChannel&, absl::Status why) {
  down_ = true;
  why_ = std::move(why);
}

}  // namespace tokura::integration
