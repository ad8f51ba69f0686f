#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "cache-node/server_transfers.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/net/channel.h"
#include "common/time.h"

namespace google::protobuf {
class MessageLite;
}

namespace tokura::node {

class ServerConnection;

// A request that takes time: a GET or a PUT, which move payloads, or a REMOVE that checks what it
// removes. It is answered once: when it is complete, at its
// deadline, when it is cancelled, or (then only counted) when its connection ends. Transfers that
// were started before go on until the transport's Done; until then the request, and with it every
// pin and reservation that they need, stays. Owned by its connection's I/O thread; shared by the
// connection's table and by transfers under way.
class ServerRequest : public TransferSource, public std::enable_shared_from_this<ServerRequest> {
 public:
  // The deadline's timer starts with Start.
  ServerRequest(std::shared_ptr<ServerConnection> connection, const net::FrameHeader& frame);
  ~ServerRequest() override;

  // Begin. The request is in the connection's table.
  void Start();
  // A payload of this request; one that is not wanted is dropped, which rejects it.
  virtual void OnPayload(const net::FrameHeader& frame, net::IncomingPayload payload) = 0;
  // Answer now with `why` for everything that is not finished; start nothing more.
  void End(const absl::Status& why);

  const net::FrameHeader& frame() const { return frame_; }
  TimePoint arrived() const { return arrived_; }
  // Blocks that it names.
  virtual size_t blocks() const = 0;
  // Payloads that it may be offered.
  virtual size_t parts() const = 0;
  // Whether it reads what `lease` pins.
  virtual bool Uses(const LeaseToken& lease) const = 0;
  bool answered() const { return answered_; }
  TimePoint answered_at() const { return answered_at_; }
  uint32_t transfers_under_way() const { return under_way_; }
  // The last time that bytes of it moved or, with no transfer under way before, one started.
  TimePoint last_progress() const { return last_progress_; }

 protected:
  // What Start does first. May answer at once.
  virtual void Begin() = 0;
  // Give up what has not finished, then Answer.
  virtual void GiveUp(const absl::Status& why) = 0;

  // Reply with OK and `body`, the statuses being in it, or with `result` alone where there is no
  // body. `result` is what the metrics count. Once.
  void Answer(const absl::Status& result, const google::protobuf::MessageLite* body);
  // Bookkeeping of transfers. TransferEnded may drop the connection's reference to this request.
  void TransferStarted();
  void TransferEnded(uint64_t bytes);
  // Bytes moved.
  void Progress();
  bool PastDeadline() const { return Now() >= deadline_; }
  TimePoint Now() const;
  ServerConnection& connection() const { return *connection_; }

 private:
  // Keeps the connection, and with it the store, until the last transfer has ended.
  const std::shared_ptr<ServerConnection> connection_;
  const net::FrameHeader frame_;
  const TimePoint arrived_;
  const TimePoint deadline_;
  TimePoint answered_at_;
  TimePoint last_progress_;
  TimerId timer_ = 0;
  uint32_t under_way_ = 0;
  bool answered_ = false;
};

}  // namespace tokura::node
