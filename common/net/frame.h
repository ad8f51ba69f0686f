#pragma once

// The frame header that every message and payload carries (proto/WIRE.md). Little-endian, 56 bytes.

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tokura::net {

inline constexpr uint32_t kFrameMagic = 0x41524b54;  // "TKRA"
inline constexpr uint16_t kProtocolVersion = 3;      // exact match required; see WIRE.md

enum class Op : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kRefused = 3,
  kPing = 4,
  kPong = 5,
  kGoodbye = 6,
  kLookup = 16,
  kAcquire = 17,
  kRenew = 18,
  kRelease = 19,
  kGet = 20,
  kPut = 21,
  kRemove = 22,
  kStat = 23,
  kCancel = 24,
  // Asked of coordinators.
  kLocate = 32,
  kPlan = 33,
  kWatch = 34,
  kNodes = 35,
  kRegister = 48,
  kReport = 49,
  kInventory = 50,
};

enum FrameFlags : uint16_t {
  kFrameReply = 1,    // answers request_id
  kFramePayload = 2,  // travels as a payload offer; payload_bytes follow by rendezvous
};

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t version = kProtocolVersion;
  Op op = Op::kPing;
  uint16_t flags = 0;
  uint16_t status = 0;         // absl::StatusCode of a reply
  uint32_t index = 0;          // payload frames: item in the request
  uint64_t request_id = 0;     // unique per connection and direction of asking
  uint64_t incarnation = 0;    // of the node that answers; 0 from clients
  uint32_t deadline_us = 0;    // requests: microseconds left when sent; 0 = none
  uint32_t body_bytes = 0;     // protobuf bytes behind the header
  uint64_t payload_bytes = 0;  // payload frames only
  uint16_t group = 0;          // payload frames: part id
  uint16_t shard = 0;
  uint32_t crc = 0;  // CRC-32C of the header (this field 0) and the body
};

inline constexpr size_t kFrameBytes = 56;

// Write `header` with its CRC over header and `body`.
void SerializeFrame(FrameHeader header, std::span<const std::byte> body,
                    std::span<std::byte, kFrameBytes> out);

// Parse and check a frame from untrusted bytes. INVALID_ARGUMENT: too short, wrong magic, body size
// not as declared; FAILED_PRECONDITION: another protocol version (the message has both); DATA_LOSS:
// the CRC does not match.
absl::StatusOr<FrameHeader> ParseFrame(std::span<const std::byte> header,
                                       std::span<const std::byte> body);

const char* OpName(Op op);

}  // namespace tokura::net
