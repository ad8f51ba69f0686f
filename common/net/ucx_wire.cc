#include "common/net/ucx_wire.h"

#include <array>
#include <bit>
#include <cstring>

#include "common/crc32c.h"

namespace tokura::net {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename Number>
Number Load(const std::byte* in) {
  Number value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

template <typename Number>
void Store(Number value, std::byte* out) {
  std::memcpy(out, &value, sizeof(value));
}

uint32_t ControlCrc(uint32_t op, uint64_t argument) {
  std::array<std::byte, sizeof(op) + sizeof(argument)> bytes;
  Store(op, bytes.data());
  Store(argument, bytes.data() + sizeof(op));
  return Crc32c(bytes);
}

}  // namespace

void SerializeControl(UcxControl control, std::span<std::byte, kControlBytes> out) {
  const auto op = static_cast<uint32_t>(control.op);
  Store(op, out.data());
  Store(ControlCrc(op, control.argument), out.data() + 4);
  Store(control.argument, out.data() + 8);
}

std::optional<UcxControl> ParseControl(std::span<const std::byte> bytes) {
  if (bytes.size() != kControlBytes) {
    return std::nullopt;
  }
  const auto op = Load<uint32_t>(bytes.data());
  const auto argument = Load<uint64_t>(bytes.data() + 8);
  if (Load<uint32_t>(bytes.data() + 4) != ControlCrc(op, argument) ||
      op < static_cast<uint32_t>(UcxControlOp::kOpen) ||
      op > static_cast<uint32_t>(UcxControlOp::kFinSeen)) {
    return std::nullopt;
  }
  return UcxControl{static_cast<UcxControlOp>(op), argument};
}

void SerializePayloadId(uint64_t id, std::span<std::byte, kPayloadIdBytes> out) {
  Store(id, out.data());
  Store(Crc32c(out.first<sizeof(id)>()), out.data() + sizeof(id));
}

std::optional<uint64_t> ParsePayloadId(std::span<const std::byte, kPayloadIdBytes> bytes) {
  const auto id = bytes.first<sizeof(uint64_t)>();
  if (Load<uint32_t>(bytes.data() + id.size()) != Crc32c(id)) {
    return std::nullopt;
  }
  return Load<uint64_t>(id.data());
}

}  // namespace tokura::net
