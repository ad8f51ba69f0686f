#pragma once

// What the UCX transport puts on the wire beneath Connection: active-message ids, the number that
// precedes a payload's header, and the transport's own control messages. Both ends run the same
// version (the client id says so), little-endian. Each has a CRC-32C, because a flipped bit could
// otherwise refuse, release or count another payload than the one meant.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/net/transport.h"

namespace tokura::net {

enum UcxMessageId : unsigned {
  kUcxMessage = 1,  // header, body: eager
  kUcxPayload = 2,  // payload id, its CRC and the header, bytes: rendezvous
  kUcxControl = 3,  // UcxControl: eager, no body
};

inline constexpr size_t kPayloadIdBytes = 12;  // with its CRC
inline constexpr size_t kPayloadHeaderBytesMax = kPayloadIdBytes + kHeaderBytesMax;

enum class UcxControlOp : uint32_t {
  // Server to client, first of all: the endpoint exists on both sides.
  kOpen = 1,
  // Receiver to sender: payload `argument` is refused. The sender answers kRejectSeen, and only
  // then does the receiver let UCX forget the offer: UCX tells the sender nothing but success.
  kReject = 2,
  kRejectSeen = 3,
  // The end of an orderly close. Everything sent before has been handed to the peer's handler when
  // its kFinSeen arrives.
  kFin = 4,
  kFinSeen = 5,
};

struct UcxControl {
  UcxControlOp op;
  uint64_t argument = 0;
};
inline constexpr size_t kControlBytes = 16;

// Write op, CRC of op and argument, argument.
void SerializeControl(UcxControl control, std::span<std::byte, kControlBytes> out);
// Nothing when the bytes are no control message or their CRC does not match.
std::optional<UcxControl> ParseControl(std::span<const std::byte> bytes);

void SerializePayloadId(uint64_t id, std::span<std::byte, kPayloadIdBytes> out);
// Nothing when the CRC does not match.
std::optional<uint64_t> ParsePayloadId(std::span<const std::byte, kPayloadIdBytes> bytes);

}  // namespace tokura::net
