#include "test_profile.h"

#include <algorithm>
#include <numeric>

#include "kernels/codec.h"

namespace tokura::kernels {

struct TestProfile::Arrays {
  ProfileSlot slot;
  std::vector<float> smooth;
  std::vector<uint16_t> k_outliers;
  std::vector<uint16_t> v_outliers;
  std::vector<uint16_t> order;
  std::vector<float> factors;
  std::vector<float> tiles;
};

absl::Status TestProfile::CheckPart(PartId, const PartShape& shape, const Needs&) const {
  return shape.k_head_dim == k_dim_ && shape.v_head_dim == v_dim_
             ? absl::OkStatus()
             : absl::FailedPreconditionError("profile of another model");
}

const TestProfile::Arrays& TestProfile::ArraysOf(const ProfileSlot& slot) const {
  for (const auto& arrays : arrays_) {
    if (arrays->slot.layer == slot.layer && arrays->slot.head == slot.head) {
      return *arrays;
    }
  }
  auto a = std::make_shared<Arrays>();
  a->slot = slot;
  const uint32_t mix = slot.layer * 7 + slot.head * 3;
  const uint32_t half = std::max(k_dim_ / 2, 1u);
  for (uint32_t c = 0; c < k_dim_; ++c) {
    a->smooth.push_back(1.0f + static_cast<float>((mix + c % half) % 5) / 2.0f);
  }
  const CodecSide side = FindCodec("atom4")->k;
  for (uint32_t i = 0; i < OutlierChannels(side, k_dim_) / 2; ++i) {
    a->k_outliers.push_back(static_cast<uint16_t>((mix + i) % half));
    a->k_outliers.push_back(static_cast<uint16_t>((mix + i) % half + half));
  }
  std::sort(a->k_outliers.begin(), a->k_outliers.end());
  for (uint32_t i = 0; i < OutlierChannels(side, v_dim_); ++i) {
    a->v_outliers.push_back(static_cast<uint16_t>((mix + 2 + i) % v_dim_));
  }
  std::sort(a->v_outliers.begin(), a->v_outliers.end());
  uint32_t step = 7;
  while (std::gcd(step, k_dim_) != 1) {
    step += 2;
  }
  for (uint32_t i = 0; i < k_dim_; ++i) {
    a->order.push_back(static_cast<uint16_t>((step * i + 3) % k_dim_));
    for (uint32_t j = i + 1; j < k_dim_; ++j) {
      a->factors.push_back((static_cast<float>((i * 31 + j * 17) % 9) - 4.0f) / 16.0f);
    }
  }
  a->tiles.resize(ExemplarTileFloats(kQueries, k_dim_));
  for (uint32_t m = 0; m < kQueries; ++m) {
    for (uint32_t c = 0; c < k_dim_; ++c) {
      a->tiles[ExemplarTileIndex(m, c, k_dim_)] =
          (static_cast<float>((m * 13 + c * 7 + mix) % 11) - 5.0f) / 32.0f;
    }
  }
  arrays_.push_back(a);
  return *arrays_.back();
}

HeadProfile TestProfile::Head(const ProfileSlot& slot) const {
  const Arrays& arrays = ArraysOf(slot);
  HeadProfile out;
  out.k.smooth = arrays.smooth;
  out.k.outliers = arrays.k_outliers;
  out.k.guide = {arrays.order, arrays.factors};
  out.k.sign_seed = 0x0123456789abcdefu + slot.layer * 16 + slot.head;
  out.v.outliers = arrays.v_outliers;
  return out;
}

Exemplars TestProfile::ExemplarsOf(const ProfileSlot& slot, uint32_t count) const {
  Exemplars out;
  out.count = std::min(count, kQueries);
  out.k_dim = k_dim_;
  out.tiles = ArraysOf(slot).tiles.data();
  return out;
}

}  // namespace tokura::kernels
