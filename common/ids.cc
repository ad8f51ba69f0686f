#include "common/ids.h"

namespace tokura {

std::string ToHex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    out.push_back(kDigits[std::to_integer<int>(b) >> 4]);
    out.push_back(kDigits[std::to_integer<int>(b) & 15]);
  }
  return out;
}

}  // namespace tokura
