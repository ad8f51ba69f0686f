#include "kernels/exemplars.h"

#include <algorithm>

#include "kernels/kernel_set.h"

namespace tokura::kernels {

uint32_t ExemplarOffset(uint32_t index, uint32_t count, uint32_t window) {
  const uint32_t span =
      window == 0 ? kExemplarSpan : std::clamp<uint32_t>(window / 2, 1, kExemplarSpan);
  if (count <= 1) {
    return 1;
  }
  return 1 + (2 * (span - 1) * index + (count - 1)) / (2 * (count - 1));
}

size_t ExemplarTileFloats(uint32_t count, uint32_t k_dim) {
  constexpr uint32_t kTile = kRecordTile;
  return size_t{(count + kTile - 1) / kTile} * ((k_dim + kRecordQuad - 1) / kRecordQuad) * kTile *
         kRecordQuad;
}

size_t ExemplarTileIndex(uint32_t exemplar, uint32_t channel, uint32_t k_dim) {
  return ExemplarTileFloats(exemplar / kRecordTile * kRecordTile, k_dim) +
         size_t{channel / kRecordQuad} * kRecordTile * kRecordQuad +
         exemplar % kRecordTile * kRecordQuad + channel % kRecordQuad;
}

void AppendExemplarRows(const Exemplars& exemplars, uint64_t last_position,
                        std::vector<float>* out) {
  std::vector<Rotation> rotations(exemplars.rope.pairs());
  RotationsAt(exemplars.turns, last_position, rotations);
  for (uint32_t i = 0; i < exemplars.count; ++i) {
    const size_t begin = out->size();
    for (uint32_t c = 0; c < exemplars.k_dim; ++c) {
      out->push_back(exemplars.tiles[ExemplarTileIndex(i, c, exemplars.k_dim)]);
    }
    Rotate(exemplars.rope, rotations, out->data() + begin);
  }
}

}  // namespace tokura::kernels
