#pragma once

// Sizes and offsets that follow from a shape and a codec; FORMAT.md, "Layer" and "Slab". Used by
// writer and reader alike, so that they cannot disagree. Internal to kernels/.

#include <cstdint>

#include "common/dtype.h"
#include "kernels/codec.h"

namespace tokura::kernels {

struct CodecPair {
  CodecSide k;
  CodecSide v;
  bool raw() const { return k.raw() && v.raw(); }
  bool exact(DType dtype) const { return k.exact(dtype) && v.exact(dtype); }
  friend bool operator==(const CodecPair&, const CodecPair&) = default;
};

struct SlabShape {
  CodecPair codec;
  DType dtype = DType::kFloat16;
  uint32_t k_dim = 0;
  uint32_t v_dim = 0;
  uint32_t coded_tokens = 0;
  uint32_t exact_tokens = 0;
};

// Offsets from the slab's first byte.
struct SlabLayout {
  uint64_t k = 0;
  uint64_t v = 0;
  uint64_t exact = 0;    // uint32_t index[exact_tokens]
  uint64_t exact_k = 0;  // [exact_tokens, k_dim] of dtype
  uint64_t exact_v = 0;
  uint64_t bytes = 0;
};

// Within format.h's limits nothing overflows.
SlabLayout SlabLayoutOf(const SlabShape& shape);

// At least SlabLayoutOf(…).bytes for every split of `shape.coded_tokens` tokens into coded and
// exact ones, and for a raw slab; equal to the latter when the codec is raw.
uint64_t SlabBytesMax(const SlabShape& shape);

// Offset of the first slab of a layer.
uint64_t LayerHeaderBytes(uint32_t heads);
// Of a layer of `heads` slabs of `slab_bytes` each.
uint64_t LayerBytes(uint32_t heads, uint64_t slab_bytes);

}  // namespace tokura::kernels
