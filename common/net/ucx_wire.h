#pragma once

// What the UCX transport puts on the wire beneath Connection: active-message ids, what precedes the
// bytes of a payload, and the transport's own control messages. Both ends run the same
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
  kUcxPayload = 2,  // UcxChunk, in the first one of a payload its header; bytes: rendezvous
  kUcxControl = 3,  // UcxControl: eager, no body
};

// A payload travels in chunks, one message each, in order and all offered at once. The receiver
// fetches them one after the other and may work on those that it has while the rest moves: several
// of them fit a processor's second cache, and what has arrived is still there when it is read.
struct UcxChunk {
  uint64_t payload_id = 0;  // rises with every payload of one direction of a connection
  uint64_t offset = 0;      // of the chunk's first byte in the payload
  uint64_t total = 0;       // bytes of the payload
};
inline constexpr size_t kChunkHeaderBytes = 28;  // with its CRC
inline constexpr size_t kPayloadHeaderBytesMax = kChunkHeaderBytes + kHeaderBytesMax;
// Payloads of less than twice this many bytes are one chunk; no chunk but the last has less.
inline constexpr size_t kChunkBytesMin = size_t{256} << 10;

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

// Write the three numbers and their CRC.
void SerializeChunk(const UcxChunk& chunk, std::span<std::byte, kChunkHeaderBytes> out);
// Nothing when the CRC does not match.
std::optional<UcxChunk> ParseChunk(std::span<const std::byte, kChunkHeaderBytes> bytes);
// Bytes of every chunk but the last of a payload of `total` bytes; the last may have up to that.
size_t ChunkBytes(size_t total);

}  // namespace tokura::net
