#include "tests/unit/node/fake_coordinator.h"

#include <algorithm>
#include <utility>

#include "kernels/part.h"

namespace tokura::node {
namespace {

template <typename T>
T Parse(std::span<const std::byte> body) {
  T message;
  EXPECT_TRUE(message.ParseFromArray(body.data(), static_cast<int>(body.size())));
  return message;
}

}  // namespace

FakeCoordinator::FakeCoordinator(sim::SimNetwork& network, Options options)
    : network_(network),
      options_(std::move(options)),
      host_(network.scheduler(), {.name = options_.name, .ip = options_.ip}),
      transport_(network, host_.loop()) {
  host_.loop().Enter([this] {
    auto listener = transport_.Listen(
        address(), {}, [this](net::Transport& owner, std::unique_ptr<net::Connection> connection) {
          net::ServerChannel::Options channel_options;
          channel_options.node = options_.name;
          channel_options.incarnation = incarnation_;
          channel_options.format_version = kernels::FormatVersionString();
          auto channel = net::ServerChannel::Accept(owner, std::move(connection),
                                                    std::move(channel_options), *this);
          net::ConnectionHandler* handler = &channel->handler();
          net::ServerChannel* key = channel.get();
          channels_.emplace(key, std::move(channel));
          ++connections;
          return handler;
        });
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = std::move(*listener);
  });
}

FakeCoordinator::~FakeCoordinator() {
  network_.Kill(host_, sim::SimNetwork::Death::kProcess);
  network_.scheduler().RunFor(std::chrono::seconds(1));
  host_.loop().Enter([this] { listener_.reset(); });
  EXPECT_TRUE(channels_.empty());
}

void FakeCoordinator::Disconnect() {
  host_.loop().Enter([this] {
    for (auto& [key, channel] : channels_) {
      channel->Close(net::CloseMode::kAbort);
    }
  });
}

void FakeCoordinator::AnswerKept(const absl::Status& status) {
  host_.loop().Enter([&] { std::exchange(kept_, nullptr)->Reply(kept_frame_, status); });
}

absl::Status FakeCoordinator::OnHello(net::ServerChannel&, const proto::Hello& hello,
                                      proto::Welcome*) {
  hellos.push_back(hello);
  return absl::OkStatus();
}

void FakeCoordinator::OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                                std::span<const std::byte> body) {
  if (std::find(silent.begin(), silent.end(), frame.op) != silent.end()) {
    return;
  }
  switch (frame.op) {
    case net::Op::kRegister:
      OnRegister(channel, frame, body);
      break;
    case net::Op::kReport:
      OnReport(channel, frame, body);
      break;
    case net::Op::kInventory: {
      batches.push_back(Parse<proto::InventoryBatch>(body));
      const proto::InventoryReply reply = model.Apply(batches.back());
      channel.Reply(frame, absl::OkStatus(), &reply);
      break;
    }
    default:
      channel.Reply(frame, absl::UnimplementedError("not here"));
  }
}

void FakeCoordinator::OnRegister(net::ServerChannel& channel, const net::FrameHeader& frame,
                                 std::span<const std::byte> body) {
  registers.push_back(Parse<proto::RegisterRequest>(body));
  if (std::exchange(keep_register, false)) {
    kept_ = &channel;
    kept_frame_ = frame;
    return;
  }
  if (refuse_register.has_value()) {
    channel.Reply(frame, *refuse_register);
    return;
  }
  proto::RegisterReply reply;
  reply.set_incarnation(std::max(registers.back().incarnation(), hand_out));
  reply.set_epoch(epoch);
  reply.set_holder(holder);
  reply.set_report_interval_us(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(report_interval).count()));
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeCoordinator::OnReport(net::ServerChannel& channel, const net::FrameHeader& frame,
                               std::span<const std::byte> body) {
  reports.push_back(Parse<proto::ReportRequest>(body));
  if (std::exchange(forgotten, false)) {
    channel.Reply(frame, absl::NotFoundError("register first"));
    return;
  }
  proto::ReportReply reply;
  reply.set_epoch(epoch);
  reply.set_refuse_below_epoch(refuse_below);
  reply.set_send_snapshot(std::exchange(ask_for_snapshot, false));
  for (const proto::TouchBatch& batch : std::exchange(touches, {})) {
    *reply.add_touches() = batch;
  }
  for (const proto::OrphanBatch& batch : std::exchange(orphans, {})) {
    *reply.add_orphans() = batch;
  }
  channel.Reply(frame, absl::OkStatus(), &reply);
}

void FakeCoordinator::OnClosed(net::ServerChannel& channel, absl::Status) {
  --connections;
  host_.loop().Post([this, key = &channel] { channels_.erase(key); });
}

}  // namespace tokura::node
