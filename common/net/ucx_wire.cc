#include "common/net/ucx_wire.h"

namespace tokura::net {
namespace {

void Put64(uint64_t value, std::byte* out) {
  for (int i = 0; i < 8; ++i) {
    out[i] = static_cast<std::byte>(value >> (8 * i));
  }
}

uint64_t Get64(const std::byte* in) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) {
    value |= std::to_integer<uint64_t>(in[i]) << (8 * i);
  }
  return value;
}

}  // namespace

void SerializeControl(UcxControl control, std::span<std::byte, kControlBytes> out) {
  Put64(static_cast<uint64_t>(control.op), out.data());
  Put64(control.argument, out.data() + 8);
}

std::optional<UcxControl> ParseControl(std::span<const std::byte> bytes) {
  if (bytes.size() != kControlBytes) {
    return std::nullopt;
  }
  const uint64_t op = Get64(bytes.data());
  if (op < static_cast<uint64_t>(UcxControlOp::kOpen) ||
      op > static_cast<uint64_t>(UcxControlOp::kFinSeen)) {
    return std::nullopt;
  }
  return UcxControl{static_cast<UcxControlOp>(op), Get64(bytes.data() + 8)};
}

void SerializePayloadId(uint64_t id, std::span<std::byte, kPayloadIdBytes> out) {
  Put64(id, out.data());
}

uint64_t ParsePayloadId(std::span<const std::byte, kPayloadIdBytes> bytes) {
  return Get64(bytes.data());
}

}  // namespace tokura::net
