#include "kernels/layout.h"

#include <algorithm>

#include "kernels/format.h"
#include "kernels/quantize.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {
namespace {

constexpr uint64_t kAlignment = format::kSlabAlignment;

uint64_t RawBytes(const SlabShape& shape, uint64_t tokens, uint32_t dim) {
  return tokens * dim * DTypeBytes(shape.dtype);
}

uint64_t SideBytesMax(const CodecSide& side, const SlabShape& shape, uint32_t dim) {
  const SideBytes coded = SideBytesOf(side, {shape.coded_tokens, dim, shape.dtype});
  return std::max(coded.codes + coded.exact, RawBytes(shape, shape.coded_tokens, dim)) +
         coded.parameters;
}

}  // namespace

SlabLayout SlabLayoutOf(const SlabShape& shape) {
  SlabLayout layout;
  layout.k = sizeof(format::Slab);
  layout.v = layout.k +
             SideBytesOf(shape.codec.k, {shape.coded_tokens, shape.k_dim, shape.dtype}).padded();
  layout.exact =
      layout.v +
      SideBytesOf(shape.codec.v, {shape.coded_tokens, shape.v_dim, shape.dtype}).padded();
  layout.exact_k =
      layout.exact + AlignUp(uint64_t{shape.exact_tokens} * sizeof(uint32_t), kAlignment);
  layout.exact_v =
      layout.exact_k + AlignUp(RawBytes(shape, shape.exact_tokens, shape.k_dim), kAlignment);
  layout.bytes =
      layout.exact_v + AlignUp(RawBytes(shape, shape.exact_tokens, shape.v_dim), kAlignment);
  return layout;
}

uint64_t SlabBytesMax(const SlabShape& shape) {
  if (shape.codec.raw()) {
    return SlabLayoutOf(shape).bytes;
  }
  // A token takes the larger of its coded and its raw bytes, whichever list it is in; parameters
  // only get fewer with fewer coded tokens; nine arrays are padded.
  return sizeof(format::Slab) + SideBytesMax(shape.codec.k, shape, shape.k_dim) +
         SideBytesMax(shape.codec.v, shape, shape.v_dim) +
         AlignUp(uint64_t{shape.coded_tokens} * sizeof(uint32_t), kAlignment) + 9 * kAlignment;
}

uint64_t LayerHeaderBytes(uint32_t heads) {
  return AlignUp(sizeof(format::Layer) + uint64_t{heads} * sizeof(uint32_t), kAlignment);
}

uint64_t LayerBytes(uint32_t heads, uint64_t slab_bytes) {
  return AlignUp(LayerHeaderBytes(heads) + heads * slab_bytes, format::kSectionAlignment);
}

}  // namespace tokura::kernels
