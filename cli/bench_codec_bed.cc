#include "cli/bench_codec_bed.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "kernels/float_convert.h"
#include "kernels/fp_environment.h"

namespace tokura::cli {
namespace {

size_t SideBytes(const kernels::PartShape& shape, uint32_t dim) {
  return size_t{shape.heads} * shape.tokens * dim * DTypeBytes(shape.dtype);
}

size_t LayerBytes(const kernels::PartShape& shape) {
  return SideBytes(shape, shape.k_head_dim) + SideBytes(shape, shape.v_head_dim);
}

kernels::KvStrides StridesOf(const kernels::PartShape& shape, BedLayout layout, uint32_t dim) {
  const auto element = static_cast<int64_t>(DTypeBytes(shape.dtype));
  const int64_t row = element * dim;
  kernels::KvStrides strides;
  strides.page = static_cast<int64_t>(BedBlockBytes(shape));
  strides.channel = element;
  strides.token = layout == BedLayout::kTokenMajor ? row * shape.heads : row;
  strides.head = layout == BedLayout::kTokenMajor ? row : row * shape.tokens;
  return strides;
}

// Uniform numbers of -0.5 to 0.5.
class Uniform {
 public:
  explicit Uniform(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  float Next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<float>(state_ >> 40) / static_cast<float>(1 << 24) - 0.5F;
  }

 private:
  uint64_t state_;
};

// Calls visit(address, channel) for the elements of one side of one layer of one block.
template <typename Visit>
void ForEachElement(const kernels::KvView& view, const kernels::KvStrides& strides,
                    std::byte* first, uint32_t dim, const Visit& visit) {
  for (uint32_t head = 0; head < view.heads; ++head) {
    for (uint32_t token = 0; token < view.page_tokens; ++token) {
      for (uint32_t c = 0; c < dim; ++c) {
        visit(first + head * strides.head + token * strides.token + c * strides.channel, c);
      }
    }
  }
}

// Calls visit(address, channel) for K and then V of every layer of a block.
template <typename Visit>
void ForEachElementOf(const kernels::KvView& view, size_t block, const Visit& visit) {
  for (const bool k_side : {true, false}) {
    for (const kernels::KvLayer& layer : view.layers) {
      const kernels::KvStrides& strides = k_side ? view.k_strides : view.v_strides;
      std::byte* base = k_side ? layer.k : layer.v;
      const uint32_t dim = k_side ? view.k_head_dim : view.v_head_dim;
      if (dim != 0) {
        ForEachElement(view, strides, base + static_cast<int64_t>(block) * strides.page, dim,
                       visit);
      }
    }
  }
}

std::vector<uint16_t> Outliers(uint32_t dim) {
  const uint32_t pairs = (dim + 127) / 128;
  std::vector<uint16_t> channels;
  for (uint32_t i = 0; i < pairs && 2 * i + 1 < dim; ++i) {
    channels.push_back(static_cast<uint16_t>(5 + i));
    channels.push_back(static_cast<uint16_t>(5 + i + dim / 2));
  }
  std::sort(channels.begin(), channels.end());
  return channels;
}

// Of errors of neighbouring channels that add up, more of them in the first ones.
kernels::GuideArrays Guide(uint32_t dim) {
  std::vector<double> hessian(size_t{dim} * dim);
  for (uint32_t i = 0; i < dim; ++i) {
    for (uint32_t j = 0; j < dim; ++j) {
      const double distance = std::abs(static_cast<double>(i) - j);
      hessian[size_t{i} * dim + j] = std::exp2(-distance) * std::exp2(-(i + j) / (2.0 * dim));
    }
  }
  const kernels::ScopedFloatEnvironment environment;
  kernels::GuideArrays guide;
  kernels::AppendGuide(dim, hessian, kernels::kChannelDamping, &guide);
  return guide;
}

}  // namespace

size_t BedBlockBytes(const kernels::PartShape& shape) {
  return shape.layers * LayerBytes(shape);
}

BedPages::BedPages(const kernels::PartShape& shape, BedLayout layout, size_t blocks)
    : shape_(shape), buffer_(blocks * BedBlockBytes(shape)) {
  view_.dtype = shape.dtype;
  view_.heads = shape.heads;
  view_.k_head_dim = shape.k_head_dim;
  view_.v_head_dim = shape.v_head_dim;
  view_.page_tokens = shape.tokens;
  view_.tokens = static_cast<uint32_t>(blocks) * shape.tokens;
  for (uint32_t page = 0; page < blocks; ++page) {
    view_.page_table.push_back(page);
  }
  view_.k_strides = StridesOf(shape, layout, shape.k_head_dim);
  view_.v_strides = StridesOf(shape, layout, shape.v_head_dim);
  size_t v_at = SideBytes(shape, shape.k_head_dim);
  if (layout == BedLayout::kChannelMajor) {
    const auto k_head = static_cast<int64_t>(v_at / shape.heads);
    const auto v_head = static_cast<int64_t>(SideBytes(shape, shape.v_head_dim) / shape.heads);
    view_.k_strides.token = view_.k_strides.channel;
    view_.k_strides.channel = view_.k_strides.token * shape.tokens;
    view_.k_strides.head = k_head + v_head;
    view_.v_strides.head = k_head + v_head;
    v_at = static_cast<size_t>(k_head);
  }
  for (size_t layer = 0; layer < shape.layers; ++layer) {
    std::byte* k = buffer_.bytes().data() + layer * LayerBytes(shape);
    view_.layers.push_back({k, shape.v_head_dim == 0 ? nullptr : k + v_at});
  }
}

std::span<std::byte> BedPages::Block(size_t block) const {
  const size_t bytes = BedBlockBytes(shape_);
  return buffer_.bytes().subspan(block * bytes, bytes);
}

void BedPages::FillBlock(size_t block, uint64_t seed) {
  // The sum of three uniform numbers stands in for a Gaussian.
  Uniform uniform(seed);
  ForEachElementOf(view_, block, [&](std::byte* at, uint32_t channel) {
    const float mean = channel % 32 == 5 ? 6.0F : 0.25F * static_cast<float>(channel % 7);
    const float noise = uniform.Next() + uniform.Next() + uniform.Next();
    kernels::StoreElement(shape_.dtype, mean + 2.0F * noise, at);
  });
}

std::vector<float> BedPages::Values(size_t block) const {
  std::vector<float> values;
  values.reserve(BedBlockBytes(shape_) / DTypeBytes(shape_.dtype));
  ForEachElementOf(view_, block, [&](const std::byte* at, uint32_t) {
    values.push_back(kernels::LoadElement(shape_.dtype, at));
  });
  return values;
}

BedProfile::BedProfile(uint32_t k_dim, uint32_t v_dim)
    : k_dim_(k_dim),
      v_dim_(v_dim),
      k_outliers_(Outliers(k_dim)),
      v_outliers_(Outliers(v_dim)),
      guide_(Guide(k_dim)),
      exemplars_(kernels::ExemplarTileFloats(kernels::kExemplarsMax, k_dim)) {
  for (uint32_t c = 0; c < k_dim; ++c) {
    smooth_.push_back(c % (k_dim / 2) == 5 ? 2.5F : 1.0F);
  }
  Uniform uniform(1);
  const float scale = 1.0F / std::sqrt(static_cast<float>(k_dim));
  for (float& x : exemplars_) {
    x = 2.0F * (uniform.Next() + uniform.Next() + uniform.Next()) * scale;
  }
}

absl::Status BedProfile::CheckPart(PartId, const kernels::PartShape& shape, const Needs&) const {
  return shape.k_head_dim == k_dim_ && shape.v_head_dim == v_dim_
             ? absl::OkStatus()
             : absl::FailedPreconditionError("the profile is of other head sizes");
}

kernels::HeadProfile BedProfile::Head(const kernels::ProfileSlot&) const {
  kernels::HeadProfile head;
  head.k.smooth = smooth_;
  head.k.outliers = k_outliers_;
  head.k.guide = guide_.view();
  head.k.sign_seed = 1;
  head.v.outliers = v_outliers_;
  return head;
}

kernels::Exemplars BedProfile::ExemplarsOf(const kernels::ProfileSlot&, uint32_t count) const {
  kernels::Exemplars exemplars;
  exemplars.count = std::min(count, kernels::kExemplarsMax);
  exemplars.k_dim = k_dim_;
  exemplars.tiles = exemplars_.data();
  return exemplars;
}

std::shared_ptr<const kernels::ModelProfile> BedProfile::Find(uint64_t id) const {
  return id == this->id() ? std::shared_ptr<const kernels::ModelProfile>(
                                std::shared_ptr<void>(), static_cast<const ModelProfile*>(this))
                          : nullptr;
}

}  // namespace tokura::cli
