#include "kernels/packing.h"

#include <cstring>

namespace tokura::kernels {
namespace {

template <uint32_t kBits>
void PackPlane(uint32_t dim, const uint8_t* codes, std::byte* out) {
  constexpr uint32_t kPerWord = 32 / kBits;
  const uint32_t words = PlaneBytes(kBits, dim) / 4;
  for (size_t w = 0; w < words; ++w) {
    const uint8_t* c = codes + w * kPerWord;
    uint32_t word = 0;
    for (uint32_t i = 0; i < kPerWord; ++i) {
      word |= (uint32_t{c[i]} & ((1u << kBits) - 1)) << CodeBit(kBits, i);
    }
    std::memcpy(out + 4 * w, &word, sizeof(word));
  }
}

template <uint32_t kBits>
void UnpackPlane(uint32_t dim, const std::byte* in, uint8_t* codes) {
  constexpr uint32_t kPerWord = 32 / kBits;
  const uint32_t words = PlaneBytes(kBits, dim) / 4;
  for (size_t w = 0; w < words; ++w) {
    uint32_t word;
    std::memcpy(&word, in + 4 * w, sizeof(word));
    uint8_t* c = codes + w * kPerWord;
    for (uint32_t i = 0; i < kPerWord; ++i) {
      c[i] = static_cast<uint8_t>(word >> CodeBit(kBits, i) & ((1u << kBits) - 1));
    }
  }
}

// The third bits of codes whose low two are there already.
void AddHighBits(uint32_t dim, const std::byte* in, uint8_t* codes) {
  const uint32_t words = PlaneBytes(1, dim) / 4;
  for (size_t w = 0; w < words; ++w) {
    uint32_t word;
    std::memcpy(&word, in + 4 * w, sizeof(word));
    uint8_t* c = codes + w * 32;
    const uint32_t count = dim - static_cast<uint32_t>(w) * 32 < 32 ? dim % 32 : 32;
    for (uint32_t i = 0; i < count; ++i) {
      c[i] = static_cast<uint8_t>(c[i] | (word >> CodeBit(1, i) & 1u) << 2);
    }
  }
}

void PackHighBits(uint32_t dim, const uint8_t* codes, std::byte* out) {
  const uint32_t words = PlaneBytes(1, dim) / 4;
  for (size_t w = 0; w < words; ++w) {
    const uint8_t* c = codes + w * 32;
    uint32_t word = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      word |= (uint32_t{c[i]} >> 2 & 1u) << CodeBit(1, i);
    }
    std::memcpy(out + 4 * w, &word, sizeof(word));
  }
}

}  // namespace

void PackCodes(uint32_t bits, uint32_t dim, const uint8_t* codes, std::byte* out) {
  switch (bits) {
    case 8:
      std::memcpy(out, codes, dim);
      return;
    case 4:
      return PackPlane<4>(dim, codes, out);
    case 3:
      PackPlane<2>(dim, codes, out);
      return PackHighBits(dim, codes, out + PlaneBytes(2, dim));
    default:
      return PackPlane<2>(dim, codes, out);
  }
}

void UnpackCodes(uint32_t bits, uint32_t dim, const std::byte* in, uint8_t* codes) {
  switch (bits) {
    case 8:
      std::memcpy(codes, in, dim);
      return;
    case 4:
      return UnpackPlane<4>(dim, in, codes);
    case 3:
      UnpackPlane<2>(dim, in, codes);
      return AddHighBits(dim, in + PlaneBytes(2, dim), codes);
    default:
      return UnpackPlane<2>(dim, in, codes);
  }
}

}  // namespace tokura::kernels
