#include "kernels/profile_maker.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"
#include "kernels/exemplar_choice.h"
#include "kernels/float_convert.h"
#include "kernels/fp_environment.h"
#include "kernels/guided_rounding.h"

namespace tokura::kernels {
namespace {

// Tokens of a block that exemplars are tried on, and how many of them in all.
constexpr uint32_t kTrialTokens = 64;
constexpr uint32_t kTrialBlocksMax = 16;
// Positions behind a block that exemplars are tried at.
constexpr uint32_t kTrialOffsets = 4;
// Guided rounding weighs errors by queries behind blocks that end below this position, at so many
// places each: slow pairs of channels keep their phase over such a range, fast ones have any.
constexpr uint64_t kRoundingPositions = 4096;
constexpr uint32_t kRoundingPlaces = 8;

// Sums over the tokens behind the sinks.
struct ChannelStatistics {
  std::vector<float> peak;   // largest magnitude
  std::vector<double> mean;  // sum of magnitudes
};

template <typename RowsOf>
ChannelStatistics StatisticsOf(const HeadSamples& samples, uint32_t dim, const RowsOf& rows_of) {
  ChannelStatistics out{std::vector<float>(dim), std::vector<double>(dim)};
  for (const TokenRun& run : samples.runs) {
    const float* rows = rows_of(run);
    for (uint32_t t = 0; t < run.tokens; ++t) {
      if (run.first_position + t < kProfileSinks) {
        continue;
      }
      for (uint32_t c = 0; c < dim; ++c) {
        const float magnitude = std::abs(rows[size_t{t} * dim + c]);
        out.peak[c] = std::max(out.peak[c], magnitude);
        out.mean[c] += static_cast<double>(magnitude);
      }
    }
  }
  return out;
}

// λ = sqrt(largest magnitude), the larger one of a pair; 1 where all is zero.
std::vector<float> Smoothing(const RopeShape& rope, const ChannelStatistics& k) {
  std::vector<float> smooth(k.peak.size());
  for (uint32_t c = 0; c < smooth.size(); ++c) {
    const float peak = std::max(k.peak[c], k.peak[rope.Partner(c)]);
    smooth[c] = peak > 0 ? std::sqrt(peak) : 1;
  }
  return smooth;
}

// The `count` channels that are largest on average, pairs of `rope` as wholes, ascending. A pair
// that does not fit any more is left out for the next single channel.
std::vector<uint16_t> Outliers(const RopeShape& rope, const ChannelStatistics& statistics,
                               uint32_t count) {
  std::vector<uint16_t> order(statistics.mean.size());
  std::iota(order.begin(), order.end(), uint16_t{0});
  const auto strength = [&](uint16_t c) {
    return std::max(statistics.mean[c], statistics.mean[rope.Partner(c)]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint16_t a, uint16_t b) { return strength(a) > strength(b); });
  std::vector<uint16_t> chosen;
  for (const uint16_t c : order) {
    const auto partner = static_cast<uint16_t>(rope.Partner(c));
    if (partner < c || chosen.size() + (partner == c ? 1 : 2) > count) {
      continue;
    }
    chosen.push_back(c);
    if (partner != c) {
      chosen.push_back(partner);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Turns rows by `by` positions (two's complement for backwards).
class Turner {
 public:
  Turner(const ProfileGroup& group, const ProfileLayer& layer)
      : group_(group), layer_(layer), rotations_(group.rope.pairs()) {}
  void Turn(uint64_t by, float* row) {
    RotationsAt(layer_.turns, by, rotations_);
    Rotate(group_.rope, rotations_, row);
  }

 private:
  const ProfileGroup& group_;
  const ProfileLayer& layer_;
  std::vector<Rotation> rotations_;
};

// Values of one token, where K holds them too.
uint32_t ValueDim(const ProfileGroup& group) {
  return group.v_head_dim != 0                ? group.v_head_dim
         : group.rope.kind == RopeKind::kNone ? group.k_head_dim
                                              : group.rope.first;
}

struct TrialBlock {
  uint32_t tokens = 0;
  std::vector<float> k;
  std::vector<float> v;
};

// Tokens [first, first + tokens) of the run, turned so that the last one is at position 0.
TrialBlock MakeTrialBlock(const ProfileGroup& group, const TokenRun& run, uint32_t first,
                          uint32_t tokens, Turner* turner) {
  TrialBlock block;
  block.tokens = tokens;
  const uint32_t v_dim = ValueDim(group);
  const uint64_t last = run.first_position + first + tokens - 1;
  for (uint32_t t = first; t < first + tokens; ++t) {
    const float* k = run.k.data() + size_t{t} * group.k_head_dim;
    const float* v = group.v_head_dim != 0 ? run.v.data() + size_t{t} * v_dim : k;
    block.v.insert(block.v.end(), v, v + v_dim);
    block.k.insert(block.k.end(), k, k + group.k_head_dim);
    turner->Turn(0 - last, block.k.data() + size_t{t - first} * group.k_head_dim);
  }
  return block;
}

// Whole blocks of all runs, evenly spread where there are more than enough.
std::vector<TrialBlock> TrialBlocks(const ProfileGroup& group, const HeadSamples& samples,
                                    Turner* turner) {
  struct Place {
    const TokenRun* run;
    uint32_t first;
  };
  std::vector<Place> places;
  for (const TokenRun& run : samples.runs) {
    for (uint32_t first = 0; first + kTrialTokens <= run.tokens; first += kTrialTokens) {
      places.push_back({&run, first});
    }
  }
  const size_t count = std::min<size_t>(places.size(), kTrialBlocksMax);
  std::vector<TrialBlock> blocks;
  for (size_t i = 0; i < count; ++i) {
    // From the middle of each share, so that first blocks are no more frequent than they are.
    const Place& place = places[(2 * i + 1) * places.size() / (2 * count)];
    const uint64_t position = place.run->first_position + place.first;
    const auto sinks =
        static_cast<uint32_t>(position < kProfileSinks ? kProfileSinks - position : 0);
    blocks.push_back(
        MakeTrialBlock(group, *place.run, place.first + sinks, kTrialTokens - sinks, turner));
  }
  return blocks;
}

std::vector<uint32_t> Choose(const ProfileGroup& group, const HeadSamples& samples,
                             uint32_t exemplars, Turner* turner) {
  const auto count = static_cast<uint32_t>(samples.positions.size());
  std::vector<float> queries;
  queries.reserve(size_t{kTrialOffsets} * samples.queries.size());
  for (uint32_t o = 0; o < kTrialOffsets; ++o) {
    const uint64_t offset = ExemplarOffset(o, kTrialOffsets, group.window);
    for (uint32_t i = 0; i < count; ++i) {
      const float* q = samples.queries.data() + size_t{i} * group.k_head_dim;
      for (uint32_t c = 0; c < group.k_head_dim; ++c) {
        queries.push_back(q[c] * group.softmax_scale);
      }
      turner->Turn(offset - samples.positions[i],
                   queries.data() + queries.size() - group.k_head_dim);
    }
  }
  const std::vector<TrialBlock> blocks = TrialBlocks(group, samples, turner);
  std::vector<CalibrationBlock> views;
  for (const TrialBlock& block : blocks) {
    views.push_back({block.tokens, ValueDim(group), block.k, block.v});
  }
  return ChooseExemplars({count, group.k_head_dim, kTrialOffsets, queries}, views, exemplars);
}

// Mean of q qᵀ over all queries, behind blocks that end anywhere.
std::vector<double> QueryMoments(const ProfileGroup& group, const HeadSamples& samples,
                                 Turner* turner) {
  const uint32_t dim = group.k_head_dim;
  std::vector<double> moments(size_t{dim} * dim);
  std::vector<float> q(dim);
  uint64_t place = 0;
  for (size_t i = 0; i < samples.positions.size(); ++i) {
    for (uint32_t p = 0; p < kRoundingPlaces; ++p, ++place) {
      std::copy_n(samples.queries.begin() + static_cast<ptrdiff_t>(i * dim), dim, q.begin());
      // Places follow one another by the golden ratio, which fills the range evenly.
      const uint64_t end = (place * 2654435769u & 0xffffffffu) * kRoundingPositions >> 32;
      const uint64_t offset = ExemplarOffset(p, kRoundingPlaces, group.window);
      turner->Turn(end + offset - samples.positions[i], q.data());
      for (uint32_t a = 0; a < dim; ++a) {
        const double x = q[a];
        double* row = moments.data() + size_t{a} * dim;
        for (uint32_t b = 0; b < dim; ++b) {
          row[b] += x * static_cast<double>(q[b]);
        }
      }
    }
  }
  for (double& x : moments) {
    x /= static_cast<double>(std::max<uint64_t>(place, 1));
  }
  return moments;
}

// Scrambles all bits: neighbours in, strangers out.
uint64_t SignSeed(uint32_t layer, uint32_t head) {
  uint64_t x = (uint64_t{layer} << 32 | head) + 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

ProfileHead MakeProfileHead(const ProfileGroup& group, const HeadPlace& place,
                            const HeadSamples& samples, uint32_t exemplars) {
  TOKURA_CHECK(samples.queries.size() == samples.positions.size() * group.k_head_dim);
  TOKURA_CHECK(exemplars <= samples.positions.size());
  const ScopedFloatEnvironment environment;
  const ProfileLayer& layer = group.layers[place.layer];
  Turner turner(group, layer);
  ProfileHead head;
  head.sign_seed = SignSeed(layer.index, place.head);
  const ChannelStatistics k =
      StatisticsOf(samples, group.k_head_dim, [](const TokenRun& run) { return run.k.data(); });
  const ChannelStatistics v =
      StatisticsOf(samples, group.v_head_dim, [](const TokenRun& run) { return run.v.data(); });
  head.smooth = Smoothing(group.rope, k);
  head.k_outliers = Outliers(group.rope, k, group.k_outliers);
  head.v_outliers = Outliers(RopeShape{}, v, group.v_outliers);
  if (group.rounding) {
    GuideArrays guide;
    AppendGuide(group.k_head_dim, QueryMoments(group, samples, &turner), kChannelDamping, &guide);
    head.order = std::move(guide.order);
    head.factors = std::move(guide.factors);
  }
  for (const uint32_t index : Choose(group, samples, exemplars, &turner)) {
    head.positions.push_back(samples.positions[index]);
    for (uint32_t c = 0; c < group.k_head_dim; ++c) {
      head.queries.push_back(FloatToHalf(samples.queries[size_t{index} * group.k_head_dim + c]));
    }
  }
  return head;
}

}  // namespace tokura::kernels
