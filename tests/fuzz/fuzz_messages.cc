// Frames and control messages as a peer may send them. The first byte selects a message; what
// parses must serialise to something that parses to the same.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>

#include "common/check.h"
#include "common/net/frame.h"
#include "proto/cluster.pb.h"
#include "proto/tokura.pb.h"

namespace tokura {
namespace {

using Bytes = std::span<const std::byte>;

// Untrusted bytes as header and body: an accepted frame is written back bit for bit.
void CheckFrame(Bytes input) {
  const size_t header_bytes = std::min(input.size(), net::kFrameBytes);
  const Bytes header = input.first(header_bytes);
  const Bytes body = input.subspan(header_bytes);
  const auto frame = net::ParseFrame(header, body);
  if (frame.ok()) {
    std::array<std::byte, net::kFrameBytes> out;
    net::SerializeFrame(*frame, body, out);
    TOKURA_CHECK(std::memcmp(out.data(), header.data(), out.size()) == 0);
  }
}

// The same bytes as fields behind a right CRC: accepted, unless one byte of it is changed.
void CheckSealedFrame(Bytes input) {
  if (input.size() < net::kFrameBytes) {
    return;
  }
  net::FrameHeader header;
  std::memcpy(&header.index, input.data(), sizeof(header.index));
  std::memcpy(&header.request_id, input.data() + 4, sizeof(header.request_id));
  std::memcpy(&header.payload_bytes, input.data() + 12, sizeof(header.payload_bytes));
  std::memcpy(&header.flags, input.data() + 20, sizeof(header.flags));
  const Bytes body = input.subspan(net::kFrameBytes);
  std::array<std::byte, net::kFrameBytes> out;
  net::SerializeFrame(header, body, out);
  const auto frame = net::ParseFrame(out, body);
  TOKURA_CHECK(frame.ok() && frame->request_id == header.request_id &&
               frame->payload_bytes == header.payload_bytes);
  const auto at = std::to_integer<size_t>(input[22]) % out.size();
  const std::byte change = input[23];
  if (change != std::byte{0}) {
    out[at] ^= change;
    TOKURA_CHECK(!net::ParseFrame(out, body).ok());
  }
}

template <typename Message>
void CheckMessage(Bytes input) {
  Message message;
  if (!message.ParseFromArray(input.data(), static_cast<int>(input.size()))) {
    return;
  }
  const std::string once = message.SerializeAsString();
  Message again;
  TOKURA_CHECK(again.ParseFromString(once));
  TOKURA_CHECK(again.SerializeAsString() == once);
}

constexpr void (*kChecks[])(Bytes) = {
    CheckFrame,
    CheckSealedFrame,
    CheckMessage<proto::Hello>,
    CheckMessage<proto::Welcome>,
    CheckMessage<proto::Refused>,
    CheckMessage<proto::Goodbye>,
    CheckMessage<proto::ErrorReply>,
    CheckMessage<proto::LookupRequest>,
    CheckMessage<proto::LookupReply>,
    CheckMessage<proto::AcquireRequest>,
    CheckMessage<proto::AcquireReply>,
    CheckMessage<proto::RenewRequest>,
    CheckMessage<proto::RenewReply>,
    CheckMessage<proto::ReleaseRequest>,
    CheckMessage<proto::GetRequest>,
    CheckMessage<proto::GetReply>,
    CheckMessage<proto::PutRequest>,
    CheckMessage<proto::PutReply>,
    CheckMessage<proto::RemoveRequest>,
    CheckMessage<proto::RemoveReply>,
    CheckMessage<proto::CancelRequest>,
    CheckMessage<proto::StatRequest>,
    CheckMessage<proto::StatReply>,
    CheckMessage<proto::LocateRequest>,
    CheckMessage<proto::LocateReply>,
    CheckMessage<proto::PlanRequest>,
    CheckMessage<proto::PlanReply>,
    CheckMessage<proto::WatchRequest>,
    CheckMessage<proto::ClusterState>,
    CheckMessage<proto::NodesReply>,
    CheckMessage<proto::RegisterRequest>,
    CheckMessage<proto::RegisterReply>,
    CheckMessage<proto::ReportRequest>,
    CheckMessage<proto::ReportReply>,
    CheckMessage<proto::InventoryBatch>,
    CheckMessage<proto::InventoryReply>,
};

}  // namespace
}  // namespace tokura

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto input = std::as_bytes(std::span<const uint8_t>(data, size));
  tokura::kChecks[data[0] % std::size(tokura::kChecks)](input.subspan(1));
  return 0;
}
