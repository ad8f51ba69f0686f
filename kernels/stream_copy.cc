#include "kernels/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

// Sanitizers do not see stores made by instructions: they get the plain copy.
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TOKURA_STREAMS 1
#include <emmintrin.h>
#endif

namespace tokura::kernels {

#ifdef TOKURA_STREAMS

namespace {

constexpr size_t kLine = 64;

void StreamLine(std::byte* to, const std::byte* from) {
  const auto* in = reinterpret_cast<const __m128i*>(from);
  auto* out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in);
  const __m128i b = _mm_loadu_si128(in + 1);
  const __m128i c = _mm_loadu_si128(in + 2);
  const __m128i d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

}  // namespace

void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = std::min<size_t>(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; bytes - done >= kLine; done += kLine) {
    StreamLine(to + done, from + done);
  }
  std::memcpy(to + done, from + done, bytes - done);
}

void StreamFence() {
  _mm_sfence();
}

#else

void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void StreamFence() {}

#endif

}  // namespace tokura::kernels
