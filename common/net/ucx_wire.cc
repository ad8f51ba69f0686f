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

void SerializeChunk(const UcxChunk& chunk, std::span<std::byte, kChunkHeaderBytes> out) {
  Store(chunk.payload_id, out.data());
  Store(chunk.offset, out.data() + 8);
  Store(chunk.total, out.data() + 16);
  Store(Crc32c(out.first<24>()), out.data() + 24);
}

std::optional<UcxChunk> ParseChunk(std::span<const std::byte, kChunkHeaderBytes> bytes) {
  if (Load<uint32_t>(bytes.data() + 24) != Crc32c(bytes.first<24>())) {
    return std::nullopt;
  }
  return UcxChunk{Load<uint64_t>(bytes.data()), Load<uint64_t>(bytes.data() + 8),
                  Load<uint64_t>(bytes.data() + 16)};
}

size_t ChunkBytes(size_t total) {
  const size_t chunks = total / kChunkBytesMin;
  if (chunks < 2) {
    return total;
  }
  // Whole cache lines. A few bytes above the even share keep the last chunk from being a crumb.
  constexpr size_t kLine = 64;
  const size_t share = (total + chunks - 1) / chunks;
  return (share + kLine - 1) / kLine * kLine;
}

}  // namespace tokura::net
