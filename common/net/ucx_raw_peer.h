#pragma once

// The bound of the transport benchmarks: two processes that move blocks by UCX active messages and
// rendezvous with the settings of UcxContext, and nothing else. No frames, no deadlines, no store:
// what remains is what UCX and the machine can do.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/transport.h"
#include "common/net/ucx_api.h"
#include "common/net/ucx_context.h"
#include "common/net/ucx_transport.h"

namespace tokura::net {

// One end. The serving end answers; the other end asks. Thread-compatible.
class UcxRawPeer {
 public:
  enum class Checksum : uint32_t { kNone, kAtReceiver };
  // Where the server receives puts: where it has not for the longest time, as a store does that
  // keeps what it is given, or always at the start of its memory, which spares it all the rest.
  enum class Room : uint32_t { kRotating, kSame };
  // Whether the asking end copies each block once, between the memory that messages go through and
  // pages of somebody else: behind the checksum of a get, before a put's block is sent.
  enum class Pages : uint32_t { kNone, kCopied };
  struct Options {
    UcxTransport::Options::Wake wake = UcxTransport::Options::Wake::kSleep;
    Duration spin = std::chrono::microseconds(50);  // before sleeping
    // Registered. The asking end's holds the largest transfer; the serving end's, in huge pages
    // where the system has them, bounds how far kRotating goes.
    size_t memory_bytes = 0;
  };
  struct Transfer {
    uint64_t block_bytes = 0;  // block_bytes · blocks ≤ memory_bytes
    uint32_t blocks = 1;       // ≤ kBlocksMax
    Checksum checksum = Checksum::kAtReceiver;
    Room room = Room::kRotating;  // of puts
    Pages pages = Pages::kNone;
  };
  static constexpr uint32_t kBlocksMax = 256;

  // Listen on a free port of loopback; memory() holds a pattern. Statuses of UCX.
  static absl::StatusOr<std::unique_ptr<UcxRawPeer>> Listen(UcxContext& context, Options options);
  // Connect to a serving end. UNAVAILABLE: nobody answers.
  static absl::StatusOr<std::unique_ptr<UcxRawPeer>> Connect(UcxContext& context, Options options,
                                                             const Address& server);
  ~UcxRawPeer();
  UcxRawPeer(const UcxRawPeer&) = delete;
  UcxRawPeer& operator=(const UcxRawPeer&) = delete;

  const Address& address() const { return address_; }
  std::span<std::byte> memory() { return memory_; }
  // The asking end's, as large as its memory; empty before the first transfer that copies.
  std::span<const std::byte> pages() const { return pages_; }

  // Answer until the asking end has gone.
  void Serve();

  // Fetch blocks from the start of the server's memory to the start of ours, or send them from
  // there. Return when all have arrived (at the server: and it said so). UNAVAILABLE: the server is
  // lost; DATA_LOSS: checksums of a put differ.
  absl::Status Get(const Transfer& transfer);
  absl::Status Put(const Transfer& transfer);
  // One small message there and back.
  absl::Status Echo();
  // CRCs of the blocks received by the last transfer, one after the other in any order, XORed.
  uint32_t received_crc() const { return received_crc_; }

 private:
  enum class Ask : uint32_t { kHello, kGet, kPut, kEcho };
  struct Request {
    Ask ask = Ask::kHello;
    Checksum checksum = Checksum::kNone;
    uint32_t blocks = 0;
    Room room = Room::kRotating;
    uint64_t block_bytes = 0;
  };
  struct Slot {
    UcxRawPeer* peer = nullptr;
    uint32_t index = 0;
  };

  UcxRawPeer(UcxContextImpl& context, Options options) : context_(context), options_(options) {}
  absl::Status Start();
  absl::Status CreateEndpoint(ucp_ep_params_t* params);
  absl::Status Do(const Request& request);
  void ChoosePages(Pages pages);
  void SendSmall(unsigned id, const void* header, size_t bytes);
  void SendBlocks();
  void ChooseRoom();
  // Wait until `done` or until the peer is lost.
  void Wait(const std::function<bool()>& done);
  void Sleep();

  static void OnConnection(ucp_conn_request_h request, void* argument);
  static void OnError(void* argument, ucp_ep_h handle, ucs_status_t status);
  static ucs_status_t OnRequest(void* argument, const void* header, size_t header_bytes, void* data,
                                size_t size, const ucp_am_recv_param_t* param);
  static ucs_status_t OnReply(void* argument, const void* header, size_t header_bytes, void* data,
                              size_t size, const ucp_am_recv_param_t* param);
  static ucs_status_t OnBlock(void* argument, const void* header, size_t header_bytes, void* data,
                              size_t size, const ucp_am_recv_param_t* param);
  static void Sent(void* request, ucs_status_t status, void* argument);
  static void Received(void* request, ucs_status_t status, size_t size, void* argument);

  UcxContextImpl& context_;
  const Options options_;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int worker_fd_ = -1;
  Address address_;
  std::span<std::byte> memory_;  // mapped for this end
  std::vector<std::byte> pages_;
  std::unique_ptr<MemoryRegion> region_;
  ucp_conn_request_h pending_ = nullptr;
  bool lost_ = false;

  size_t put_offset_ = 0;  // in memory_, of the next put

  // Of the transfer under way.
  Request request_;
  size_t receive_offset_ = 0;  // in memory_, of the first block
  bool copies_ = false;        // to or from pages_
  bool asked_ = false;
  bool replied_ = false;
  uint32_t reply_crc_ = 0;
  uint32_t blocks_received_ = 0;
  uint32_t sends_ = 0;
  uint32_t received_crc_ = 0;
  Slot slots_[kBlocksMax];
};

}  // namespace tokura::net
