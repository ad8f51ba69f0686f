#include "common/crc32c.h"

#include <isa-l/crc.h>

namespace tokura {

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  // ISA-L's crc32_iscsi takes and returns the register without the XORs, and declares its input
  // non-const. It takes an int length: longer spans go in pieces.
  constexpr size_t kPieceMax = size_t{1} << 30;
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t piece = bytes.size() < kPieceMax ? bytes.size() : kPieceMax;
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(piece), state);
    bytes = bytes.subspan(piece);
  }
  return ~state;
}

}  // namespace tokura
