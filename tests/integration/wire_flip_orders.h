#pragma once

// What a test and the library made of wire_flip.cc share: a file that both have mapped, the test in
// its own process, the library in the one whose bytes it flips.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tokura::integration {

// The environment variable with the path of that file.
inline constexpr char kWireFlipFileVariable[] = "TOKURA_WIRE_FLIP_FILE";

// A piece of a gathered send is payload when it has at least this size. UCX's own headers and the
// frames of these tests are smaller.
inline constexpr size_t kPayloadPieceBytesMin = 4096;

enum class WireFlipTarget : uint32_t {
  kNothing = 0,
  kPayload = 1,  // a piece of payload
  kFrame = 2,    // a Tokura frame: its header, then its body
  kControl = 3,  // a control message of the transport: common/net/ucx_wire.h
};

// All zero in the beginning.
struct WireFlipOrders {
  // What to flip a bit of next. The library takes it away, and puts it back when the system did not
  // take the flipped byte.
  std::atomic<uint32_t> target;
  std::atomic<uint32_t> skip;   // as many sends of the target's kind pass before
  std::atomic<uint64_t> bit;    // of the target, modulo its size
  std::atomic<uint64_t> flips;  // how many bits have left the process flipped
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tokura::integration
