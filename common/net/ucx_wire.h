#pragma once

// What the UCX transport puts on the wire beneath Connection: active-message ids, the number that
// precedes a payload's header, and the transport's own control messages. Both ends run the same
// version (the client id says so), little-endian.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/net/transport.h"

namespace tokura::net {

enum UcxMessageId : unsigned {
  kUcxMessage = 1,  // header, body: eager
  kUcxPayload = 2,  // payload id and header, bytes: rendezvous
  kUcxControl = 3,  // UcxControl: eager, no body
};

inline constexpr size_t kPayloadIdBytes = 8;
inline constexpr size_t kPayloadHeaderBytesMax = kPayloadIdBytes + kHeaderBytesMax;

enum class UcxControlOp : uint64_t {
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

void SerializeControl(UcxControl control, std::span<std::byte, kControlBytes> out);
// Nothing when the bytes are no control message.
std::optional<UcxControl> ParseControl(std::span<const std::byte> bytes);

void SerializePayloadId(uint64_t id, std::span<std::byte, kPayloadIdBytes> out);
uint64_t ParsePayloadId(std::span<const std::byte, kPayloadIdBytes> bytes);

}  // namespace tokura::net
