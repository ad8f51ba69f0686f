// Frame headers from untrusted bytes: nothing crashes, and what parses is what would be written.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "common/net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tokura::net::kFrameBytes;
  const auto input = std::as_bytes(std::span<const uint8_t>(data, size));
  const auto header = input.first(std::min(size, kFrameBytes));
  const auto body = input.subspan(header.size());
  const auto frame = tokura::net::ParseFrame(header, body);
  if (frame.ok()) {
    std::array<std::byte, kFrameBytes> again;
    tokura::net::SerializeFrame(*frame, body, again);
    if (!std::equal(again.begin(), again.end(), header.begin())) {
      std::abort();
    }
  }
  // With the checksum made right the fuzzer reaches what lies behind it.
  if (header.size() == kFrameBytes) {
    tokura::net::FrameHeader made;
    made.op = static_cast<tokura::net::Op>(data[0] | data[1] << 8);
    made.flags = static_cast<uint16_t>(data[2]);
    made.status = static_cast<uint16_t>(data[3]);
    std::array<std::byte, kFrameBytes> bytes;
    tokura::net::SerializeFrame(made, body, bytes);
    const auto parsed = tokura::net::ParseFrame(bytes, body);
    if (!parsed.ok() || parsed->op != made.op || tokura::net::OpName(parsed->op) == nullptr) {
      std::abort();
    }
  }
  return 0;
}
