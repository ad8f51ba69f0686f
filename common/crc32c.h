#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tokura {

// CRC-32C (Castagnoli, reflected, initial and final XOR 0xffffffff) of `bytes`, continuing `crc` (0
// at the start): Crc32c(b, Crc32c(a)) == Crc32c(a ‖ b). "123456789" gives 0xe3069283. Thread-safe.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace tokura
