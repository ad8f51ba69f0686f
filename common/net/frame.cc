#include "common/net/frame.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"

namespace tokura::net {
namespace {

// Byte offsets of the fields (proto/WIRE.md). Written out, so that neither padding nor the host's
// byte order can change the wire.
inline constexpr size_t kMagicAt = 0;
inline constexpr size_t kVersionAt = 4;
inline constexpr size_t kOpAt = 6;
inline constexpr size_t kFlagsAt = 8;
inline constexpr size_t kStatusAt = 10;
inline constexpr size_t kIndexAt = 12;
inline constexpr size_t kRequestIdAt = 16;
inline constexpr size_t kIncarnationAt = 24;
inline constexpr size_t kDeadlineAt = 32;
inline constexpr size_t kBodyBytesAt = 36;
inline constexpr size_t kPayloadBytesAt = 40;
inline constexpr size_t kGroupAt = 48;
inline constexpr size_t kShardAt = 50;
inline constexpr size_t kCrcAt = 52;
static_assert(kCrcAt + sizeof(uint32_t) == kFrameBytes);

template <typename T>
void Put(std::byte* base, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    base[at + i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <typename T>
T Take(const std::byte* base, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(base[at + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

// CRC of the header with its CRC field zero, then of the body.
uint32_t FrameCrc(std::span<const std::byte> header, std::span<const std::byte> body) {
  static constexpr std::array<std::byte, sizeof(uint32_t)> kZero{};
  return Crc32c(body, Crc32c(kZero, Crc32c(header.first(kCrcAt))));
}

}  // namespace

void SerializeFrame(FrameHeader header, std::span<const std::byte> body,
                    std::span<std::byte, kFrameBytes> out) {
  std::byte* base = out.data();
  Put(base, kMagicAt, header.magic);
  Put(base, kVersionAt, header.version);
  Put(base, kOpAt, static_cast<uint16_t>(header.op));
  Put(base, kFlagsAt, header.flags);
  Put(base, kStatusAt, header.status);
  Put(base, kIndexAt, header.index);
  Put(base, kRequestIdAt, header.request_id);
  Put(base, kIncarnationAt, header.incarnation);
  Put(base, kDeadlineAt, header.deadline_us);
  Put(base, kBodyBytesAt, static_cast<uint32_t>(body.size()));
  Put(base, kPayloadBytesAt, header.payload_bytes);
  Put(base, kGroupAt, header.group);
  Put(base, kShardAt, header.shard);
  Put(base, kCrcAt, FrameCrc(out, body));
}

absl::StatusOr<FrameHeader> ParseFrame(std::span<const std::byte> header,
                                       std::span<const std::byte> body) {
  if (header.size() < kOpAt) {
    return absl::InvalidArgumentError(absl::StrCat("frame header of ", header.size(), " bytes"));
  }
  const std::byte* base = header.data();
  const auto magic = Take<uint32_t>(base, kMagicAt);
  if (magic != kFrameMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a Tokura frame (magic 0x", absl::Hex(magic, absl::kZeroPad8), ")"));
  }
  // The version comes before the size and the CRC: another version may define both differently, and
  // its peer is to be told about versions, not about corruption.
  const auto version = Take<uint16_t>(base, kVersionAt);
  if (version != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the peer speaks protocol version ", version,
                                                      ", this side ", kProtocolVersion));
  }
  if (header.size() != kFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame header of ", header.size(), " bytes, not ", kFrameBytes));
  }
  FrameHeader frame;
  frame.op = static_cast<Op>(Take<uint16_t>(base, kOpAt));
  frame.flags = Take<uint16_t>(base, kFlagsAt);
  frame.status = Take<uint16_t>(base, kStatusAt);
  frame.index = Take<uint32_t>(base, kIndexAt);
  frame.request_id = Take<uint64_t>(base, kRequestIdAt);
  frame.incarnation = Take<uint64_t>(base, kIncarnationAt);
  frame.deadline_us = Take<uint32_t>(base, kDeadlineAt);
  frame.body_bytes = Take<uint32_t>(base, kBodyBytesAt);
  frame.payload_bytes = Take<uint64_t>(base, kPayloadBytesAt);
  frame.group = Take<uint16_t>(base, kGroupAt);
  frame.shard = Take<uint16_t>(base, kShardAt);
  frame.crc = Take<uint32_t>(base, kCrcAt);
  if (frame.body_bytes != body.size()) {
    return absl::InvalidArgumentError(absl::StrCat("frame declares a body of ", frame.body_bytes,
                                                   " bytes but has ", body.size()));
  }
  if (frame.crc != FrameCrc(header, body)) {
    return absl::DataLossError("the frame's CRC does not match");
  }
  return frame;
}

const char* OpName(Op op) {
  switch (op) {
    case Op::kHello:
      return "hello";
    case Op::kWelcome:
      return "welcome";
    case Op::kRefused:
      return "refused";
    case Op::kPing:
      return "ping";
    case Op::kPong:
      return "pong";
    case Op::kGoodbye:
      return "goodbye";
    case Op::kLookup:
      return "lookup";
    case Op::kAcquire:
      return "acquire";
    case Op::kRenew:
      return "renew";
    case Op::kRelease:
      return "release";
    case Op::kGet:
      return "get";
    case Op::kPut:
      return "put";
    case Op::kRemove:
      return "remove";
    case Op::kStat:
      return "stat";
    case Op::kCancel:
      return "cancel";
    case Op::kLocate:
      return "locate";
    case Op::kPlan:
      return "plan";
    case Op::kWatch:
      return "watch";
    case Op::kNodes:
      return "nodes";
    case Op::kRegister:
      return "register";
    case Op::kReport:
      return "report";
    case Op::kInventory:
      return "inventory";
  }
  return "unknown";
}

}  // namespace tokura::net
