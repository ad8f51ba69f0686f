#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/net/channel.h"
#include "coordinator/server_context.h"
#include "coordinator/server_request.h"

namespace tokura::coordinator {

class ServerLoop;

// The connection of one client, node or coordinator: HELLO, then its requests. Owned by the
// transport's thread. Shared by the loop (until the channel has closed) and by tasks posted.
class ServerConnection final : public net::ServerChannelOwner,
                               public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(std::shared_ptr<ServerLoop> loop, uint64_t id);
  ~ServerConnection() override;

  // Take over an accepted connection. Once, first.
  net::ConnectionHandler* Open(net::Transport& transport,
                               std::unique_ptr<net::Connection> connection);

  absl::Status OnHello(net::ServerChannel& channel, const proto::Hello& hello,
                       proto::Welcome* welcome) override;
  void OnRequest(net::ServerChannel& channel, const net::FrameHeader& frame,
                 std::span<const std::byte> body) override;
  void OnPayload(net::ServerChannel& channel, const net::FrameHeader& frame,
                 net::IncomingPayload payload) override;
  void OnClosed(net::ServerChannel& channel, absl::Status why) override;

  uint64_t id() const { return id_; }
  // A watch of this connection is over: answer it with what is current, or with why there is
  // nothing.
  void AnswerWatch(const Watch& watch, const absl::Status& why);
  // Its turn in the loop's queue: take in the batch of inventory that waits, if one still does.
  void TakeInventoryTurn();
  // Say GOODBYE and close once what was answered is sent. New requests are refused from here on.
  void Drain();
  void Abort();

 private:
  ServerContext& context() const;
  absl::StatusOr<ReplyBody> Answer(const Caller& caller, net::Op op,
                                   std::span<const std::byte> body);
  // OK: the watch has been answered, or will be by AnswerWatch.
  absl::Status StartWatch(const net::FrameHeader& frame, std::span<const std::byte> body);
  void OnCancel(std::span<const std::byte> body);
  // Let the batch wait for its turn.
  void HoldInventory(const net::FrameHeader& frame, std::span<const std::byte> body,
                     TimePoint arrived);
  void AnswerInventory();
  void AnswerNow(const net::FrameHeader& frame, std::span<const std::byte> body, TimePoint arrived);

  const std::shared_ptr<ServerLoop> loop_;
  const uint64_t id_;
  std::unique_ptr<net::ServerChannel> channel_;
  Role role_ = Role::kClient;
  std::string node_;  // registered here; empty: none
  // The one batch that may wait; a sender with more under way has lost the answer to the first.
  struct Batch {
    net::FrameHeader frame;
    std::vector<std::byte> body;
    TimePoint arrived;
  };
  std::optional<Batch> batch_;
  bool queued_ = false;  // in the loop's queue
  bool welcomed_ = false;
  bool draining_ = false;
  bool closed_ = false;
};

}  // namespace tokura::coordinator
