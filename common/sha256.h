#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace tokura {

// Writes fields into SHA-256 in the encodings of proto/WIRE.md: integers little-endian, strings
// with their length before them. Reusable after Finish. Thread-compatible.
class Sha256Writer {
 public:
  using Digest = std::array<std::byte, 32>;

  Sha256Writer();
  ~Sha256Writer();
  Sha256Writer(const Sha256Writer&) = delete;
  Sha256Writer& operator=(const Sha256Writer&) = delete;

  void Raw(std::span<const std::byte> bytes);
  void Raw(std::string_view text);
  void U8(uint8_t value);
  void U32(uint32_t value);
  void U32s(std::span<const uint32_t> values);
  // u32 length, then the bytes. Requires fewer than 2^32 bytes.
  void String(std::string_view text);

  // The digest of everything written since the construction or the last Finish.
  Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tokura
