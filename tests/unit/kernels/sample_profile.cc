#include "tests/unit/kernels/sample_profile.h"

#include <algorithm>
#include <numeric>

#include "kernels/float_convert.h"

namespace tokura::kernels {
namespace {

constexpr uint32_t kExemplars = 5;

ProfileHead SampleHead(const ProfileGroup& group, uint32_t seed) {
  ProfileHead head;
  head.sign_seed = 0x0102030405060708u * (seed + 1);
  head.smooth.resize(group.k_head_dim);
  for (uint32_t c = 0; c < group.k_head_dim; ++c) {
    const uint32_t pair = std::min(c, group.rope.Partner(c));
    head.smooth[c] = 0.5f + static_cast<float>((pair * 7 + seed) % 11) / 4;
  }
  if (group.k_outliers > 0) {
    const auto partner = static_cast<uint16_t>(group.rope.Partner(1));
    head.k_outliers = {std::min<uint16_t>(1, partner), std::max<uint16_t>(1, partner)};
  }
  if (group.v_outliers > 0) {
    head.v_outliers = {0, 3};
  }
  if (group.rounding) {
    head.order.resize(group.k_head_dim);
    std::iota(head.order.rbegin(), head.order.rend(), uint16_t{0});
    head.factors.resize(size_t{group.k_head_dim} * (group.k_head_dim - 1) / 2);
    for (size_t i = 0; i < head.factors.size(); ++i) {
      head.factors[i] = static_cast<float>((i * 5 + seed) % 9) / 16 - 0.25f;
    }
  }
  for (uint32_t i = 0; i < kExemplars; ++i) {
    head.positions.push_back(100 * i + seed);
    for (uint32_t c = 0; c < group.k_head_dim; ++c) {
      const float value = static_cast<float>((i * 31 + c * 17 + seed * 3) % 41) / 16 - 1.25f;
      head.queries.push_back(FloatToHalf(value));
    }
  }
  return head;
}

void AddLayers(std::initializer_list<uint32_t> indices, double base, ProfileGroup* group) {
  for (const uint32_t index : indices) {
    ProfileLayer& layer = group->layers.emplace_back();
    layer.index = index;
    layer.rope_base = base;
    for (uint32_t i = 0; i < group->rope.pairs(); ++i) {
      // Written out, so that no mathematics library has a say in the golden file.
      layer.turns.push_back(uint64_t{0x28be60db9391054a} >> (2 * i));
    }
    for (uint32_t head = 0; head < group->kv_heads; ++head) {
      group->heads.push_back(SampleHead(*group, index * 2 + head));
    }
  }
}

}  // namespace

ProfileData SampleProfile() {
  ProfileData data;
  data.model = "sample";
  data.exemplars = kExemplars;
  ProfileGroup full;
  full.kv_heads = 2;
  full.queries_per_head = 3;
  full.k_head_dim = 16;
  full.v_head_dim = 12;
  full.rope = {RopeKind::kHalfSplit, 0, 16};
  full.softmax_scale = 0.25f;
  full.k_outliers = 2;
  full.v_outliers = 2;
  full.rounding = true;
  ProfileGroup sliding = full;
  sliding.attention = ProfileAttention::kSliding;
  sliding.window = 256;
  sliding.kv_heads = 1;
  sliding.v_head_dim = 16;
  sliding.rope.kind = RopeKind::kInterleaved;
  sliding.rounding = false;
  ProfileGroup latent;
  latent.attention = ProfileAttention::kLatent;
  latent.kv_heads = 1;
  latent.queries_per_head = 4;
  latent.k_head_dim = 24;
  latent.rope = {RopeKind::kHalfSplit, 16, 8};
  latent.softmax_scale = 0.125f;
  AddLayers({1, 3}, 10000, &full);
  AddLayers({0, 2}, 500, &sliding);
  AddLayers({4}, 10000, &latent);
  data.groups = {full, sliding, latent};
  return data;
}

}  // namespace tokura::kernels
