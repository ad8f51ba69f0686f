#include "tests/unit/client/profile_testing.h"

#include <algorithm>

#include "kernels/codec.h"

namespace tokura {
namespace {

kernels::ProfileHead MakeHead(const kernels::ProfileGroup& group, uint32_t exemplars,
                              uint32_t seed) {
  kernels::ProfileHead head;
  head.sign_seed = seed;
  for (uint32_t c = 0; c < group.k_head_dim; ++c) {
    head.smooth.push_back(1 + static_cast<float>((std::min(c, group.rope.Partner(c)) + seed) % 5));
    head.order.push_back(static_cast<uint16_t>(c));
  }
  for (uint16_t i = 0; i < group.k_outliers / 2; ++i) {
    head.k_outliers.push_back(i);
  }
  for (uint16_t i = 0; i < group.k_outliers / 2; ++i) {
    head.k_outliers.push_back(static_cast<uint16_t>(group.rope.Partner(i)));
  }
  for (uint16_t i = 0; i < group.v_outliers; ++i) {
    head.v_outliers.push_back(i);
  }
  head.factors.assign(size_t{group.k_head_dim} * (group.k_head_dim - 1) / 2, 0.125f);
  for (uint32_t i = 0; i < exemplars; ++i) {
    head.positions.push_back(i * 10);
    for (uint32_t c = 0; c < group.k_head_dim; ++c) {
      head.queries.push_back((i + c + seed) % 2 == 0 ? uint16_t{0x3c00}
                                                     : uint16_t{0xbc00});  // 1 and -1
    }
  }
  return head;
}

}  // namespace

kernels::ProfileData ProfileFor(const NamespaceSpec& spec, uint32_t seed) {
  kernels::ProfileData data;
  data.model = spec.model;
  data.exemplars = 4;
  for (const LayerGroup& layers : spec.groups) {
    kernels::ProfileGroup& group = data.groups.emplace_back();
    group.kv_heads = layers.kv_heads;
    group.queries_per_head = 1;
    group.k_head_dim = layers.k_head_dim;
    group.v_head_dim = layers.v_head_dim;
    group.rope = {kernels::RopeKind::kHalfSplit, 0, layers.k_head_dim};
    group.softmax_scale = 0.125f;
    for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
      group.k_outliers =
          std::max(group.k_outliers, kernels::OutlierChannels(preset.k, layers.k_head_dim));
      group.v_outliers =
          std::max(group.v_outliers, kernels::OutlierChannels(preset.v, layers.v_head_dim));
    }
    group.rounding = true;
    for (const uint32_t index : layers.layers) {
      group.layers.push_back({index, 10000, kernels::TurnsOf(10000, layers.k_head_dim)});
      for (uint32_t head = 0; head < layers.kv_heads; ++head) {
        group.heads.push_back(MakeHead(group, data.exemplars, seed + index * 2 + head));
      }
    }
  }
  return data;
}

}  // namespace tokura
